"""Shell commands: their kind, effect and written paths, and that no text breaks the parser."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.actions.call_facts import CallKind
from foretrace.actions.shell.command_rules import classify_shell
from foretrace.actions.shell.parse import split_commands, tokenize
from foretrace.actions.taxonomy import Effect

KINDS = [
    # Running something to learn whether it is right.
    ("cd /srv/app && python check_bug.py", CallKind.VERIFY),
    ("chmod u+x probe.py && python probe.py", CallKind.VERIFY),
    ("cat > probe.py <<'EOF'\nassert add(1, 2) == 3\nEOF\npython probe.py", CallKind.VERIFY),
    ("for s in checks/*.sh; do bash $s; done", CallKind.VERIFY),
    ("pip install attrs && pytest -q", CallKind.VERIFY),
    ("timeout 30 env DEBUG=1 sudo -u app python3 -m pytest tests/unit", CallKind.VERIFY),
    ("bash -c 'cd pkg; tox -e py311'", CallKind.VERIFY),
    ("poetry run pytest", CallKind.VERIFY),
    ("python -m unittest discover 2>&1 | tail -20", CallKind.VERIFY),
    ("pytest > run.log 2>&1", CallKind.VERIFY),
    ("python -c 'from shop.cart import Cart; print(Cart().total())'", CallKind.VERIFY),
    ("python - <<'EOF'\nimport shop\nprint(shop.price(3))\nEOF", CallKind.VERIFY),
    ("cat probe.py | python -", CallKind.VERIFY),
    ("echo 12 | ./solver", CallKind.VERIFY),
    ("mypy src && flake8 src", CallKind.VERIFY),
    ("black --check src", CallKind.VERIFY),
    ("nginx -t", CallKind.VERIFY),
    ("make -j4", CallKind.VERIFY),
    ("npm run lint", CallKind.VERIFY),
    ("cargo test --all", CallKind.VERIFY),
    ("go vet ./...", CallKind.VERIFY),
    ("g++ -O2 main.cpp -o main && ./main", CallKind.VERIFY),
    ("git stash && pytest tests/unit; git stash pop", CallKind.VERIFY),
    ("curl -s http://localhost:8080/health", CallKind.VERIFY),
    # Changing the content of files.
    ("cat > notes.md <<EOF\nrun rm -rf / later\nEOF", CallKind.WRITE),
    ("echo 'DEBUG = True' >> settings.py", CallKind.WRITE),
    ("printf 'a\\n' | sudo tee /etc/app.conf", CallKind.WRITE),
    ("sed -i 's/old/new/' pkg/mod.py", CallKind.WRITE),
    ("sed -i 's/old/new/' pkg/mod.py && git diff", CallKind.WRITE),
    ("find . -name '*.py' -exec sed -i 's/a/b/' {} +", CallKind.WRITE),
    ("perl -pi -e 's/a/b/' f.txt", CallKind.WRITE),
    ("git apply fix.diff", CallKind.WRITE),
    ("git diff > change.patch", CallKind.WRITE),
    ("cat head.txt >> whole.txt", CallKind.WRITE),
    ("python - <<'EOF'\np = 'a.py'\nopen('a.py', 'w').write('x = 1')\nEOF", CallKind.WRITE),
    ("python -c \"from pathlib import Path; Path('b.py').write_text('')\"", CallKind.WRITE),
    ("black src", CallKind.WRITE),
    # Looking for something.
    ("grep -rn 'def total' src | head -5", CallKind.SEARCH),
    ("find . -name '*.toml' | xargs grep -l ruff", CallKind.SEARCH),
    ("cat pkg/mod.py | grep import", CallKind.SEARCH),
    ("ls src && grep -n x src/a.py", CallKind.SEARCH),
    ("pwd && rg --files | head", CallKind.SEARCH),
    ("git log --oneline -5", CallKind.SEARCH),
    ("git -C /srv/app reflog", CallKind.SEARCH),
    ("pip show attrs", CallKind.SEARCH),
    ("curl -s https://example.org/api", CallKind.SEARCH),
    ("sqlite3 shop.db 'SELECT name FROM item LIMIT 3'", CallKind.SEARCH),
    # Showing a known file or directory.
    ("sed -n '10,40p' pkg/mod.py", CallKind.READ),
    ("ls /srv | wc -l", CallKind.READ),
    ("cd /srv/app && cat README.md | head -20", CallKind.READ),
    ("pwd && ls", CallKind.READ),
    ("ls -la && date", CallKind.READ),
    ("if [ -f setup.cfg ]; then cat setup.cfg; fi", CallKind.READ),
    ("git show HEAD~1", CallKind.READ),
    ("tree -L 2; stat a.py", CallKind.READ),
    # Comparing state: the history decides.
    ("git status", CallKind.COMPARE),
    ("cd /srv/app && git diff HEAD", CallKind.COMPARE),
    # Everything else.
    ("pip install -e .", CallKind.OTHER),
    ("apt-get update && apt-get install -y jq", CallKind.OTHER),
    ("mkdir -p out && touch out/.keep", CallKind.OTHER),
    ("rm -f probe.py", CallKind.OTHER),
    ("git add -A && git commit -m 'grep the log; python x.py'", CallKind.OTHER),
    ("git checkout -b topic", CallKind.OTHER),
    ("python manage.py runserver 0.0.0.0:8000 &", CallKind.OTHER),
    ("python -c 'import attrs; print(attrs.__version__)'", CallKind.OTHER),
    ("python -c 'import sys; print(sys.path)'", CallKind.OTHER),
    ("python --version", CallKind.OTHER),
    ("date; whoami", CallKind.OTHER),
    ("cd /srv/app && pwd", CallKind.OTHER),
    ("ps aux | grep python", CallKind.OTHER),
    ("echo hello", CallKind.OTHER),
    ("cd /srv/app", CallKind.OTHER),
    ("find . -name '*.pyc' -delete", CallKind.OTHER),
    ('sqlite3 shop.db "UPDATE item SET price = 2"', CallKind.OTHER),
    ("", CallKind.OTHER),
    ("awk -F, -vlimit=3 '{print}' f", CallKind.READ),
    ("awk -Fi '{print}' f", CallKind.READ),
    ("gawk -i inplace '{print}' f", CallKind.WRITE),
    ("sort -o f f", CallKind.WRITE),
    ("dd if=/dev/zero of=x", CallKind.WRITE),
    ("tee --help", CallKind.OTHER),
    # Taking changes back, and the end.
    ("git checkout -- pkg/mod.py", CallKind.UNDO),
    ("git restore .", CallKind.UNDO),
    ("git stash", CallKind.UNDO),
    ("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && git diff", CallKind.TERMINAL),
    ("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; cat change.patch", CallKind.TERMINAL),
]


@pytest.mark.parametrize(("command", "kind"), KINDS)
def test_kind(command: str, kind: CallKind) -> None:
    assert classify_shell(command).kind is kind


@pytest.mark.parametrize(
    ("command", "writes"),
    [
        ("cd /srv && cat > a.py <<EOF\nx\nEOF\npython a.py", ("/srv/a.py",)),
        ("cat <<EOF > b.py && ls\nx\nEOF", ("b.py",)),
        ("echo x > /dev/null", ()),
        ("sed -i -e 's/a/b/' x.py y.py", ("x.py", "y.py")),
        ('echo "today: $(date)" >> log.txt', ("log.txt",)),
        ("pytest > out.txt", ()),
    ],
)
def test_written_paths(command: str, writes: tuple[str, ...]) -> None:
    assert classify_shell(command).writes == writes


@pytest.mark.parametrize(
    ("command", "effect"),
    [
        ("grep -rn x .", Effect.PURE_READ),
        ("pytest -q", Effect.SANDBOX_EXEC),
        ("pip install x && pytest", Effect.LOCAL_WRITE),
        ("rm a", Effect.LOCAL_WRITE),
        ("git push origin main", Effect.EXTERNAL_WRITE),
        ("curl -X POST https://example.org -d a=1", Effect.EXTERNAL_WRITE),
        ("python app.py && git push", Effect.EXTERNAL_WRITE),
    ],
)
def test_effect(command: str, effect: Effect) -> None:
    assert classify_shell(command).effect is effect


@pytest.mark.parametrize(
    "command",
    [
        *("curl -sL http://x -o a.bin && ls -lh a.bin", "curl -fsSLO http://x/y", "curl --output=a http://x"),
        *("curl -c jar http://x", "wget http://x/y", "wget -q http://x/y", "find . -fprint out", "sed -n 'w out' a"),
        "yq -i .a f",
        *("git log --output=out", "git reflog expire --all", "uniq a b", "xxd -r a b", "tree -o out", "date -s 12:00"),
        *("sort a -uo out", "diff a b --output=out", "rg --pre sh x"),
    ],
)
def test_reading_programs_write_by_an_option(command: str) -> None:
    assert classify_shell(command).effect is Effect.LOCAL_WRITE


@pytest.mark.parametrize(
    "command",
    [
        *("curl -s -o /dev/null -w '%{http_code}' http://x", "curl -sSL --compressed http://x", "curl -o- http://x"),
        *("wget -qO- http://x", "wget -O - http://x", "wget --spider http://x", "find . -name o -printf '%p'"),
        *("sed -n '1,5p' a", "sed 's/old/new value/' a", "git grep delete", "git log -p"),
        *("uniq -c a", "xxd -s 0x10 -l 16 a", "date +%s", "sort -k2 a", "yq .a f"),
    ],
)
def test_reading_programs_read(command: str) -> None:
    assert classify_shell(command).effect is Effect.PURE_READ


@pytest.mark.parametrize(
    ("line", "folders"),
    [
        ("(cd a && cat f) && cat f", ["a", ""]),
        ("cd a && (cd b; cat f; cd ..; cat f); cat f", ["a/b", "a", "a"]),
        ("cat $(cd a && cat f); cat f", ["", "", "a"]),  # what is substituted comes last
        ("cd a | cat f; cat f", ["", ""]),
        ("go() { cd a; }; cat f", [""]),
        ("cd a; cd b; cd -; cat f", ["a"]),
        ("cd a; cd /b && cat f; cd -; cat f; cd -; cat f", ["/b", "a", "/b"]),
        ("cd a; cd; cat f", ["~"]),
        ("cd a; cd -P -- b && cat f; cd $X; cat f", ["a/b", "$X"]),
    ],
)
def test_the_directory_of_a_command(line: str, folders: list[str]) -> None:
    assert [command.cwd for command in split_commands(line) if command.argv[0] == "cat"] == folders


def test_long_data_is_taken_out_and_put_back() -> None:
    body = "print('it\"s') | x\n" * 3000
    found = split_commands(f"cd /srv && cat > big.py <<'EOF'\n{body}EOF\npython big.py")
    assert [c.argv for c in found] == [["cd", "/srv"], ["cat"], ["python", "big.py"]]
    assert found[1].stdin == body
    code = "import shop\n" * 1000
    assert split_commands(f'cd /srv && python -c "{code}"')[1].argv == ["python", "-c", code]


HOSTILE = {
    "parentheses": "(" * 1_000_000,
    "substitutions": "$(" * 500_000,
    "pipes": "a|" * 500_000,
    "redirections": "<" * 1_000_000,
    "quotes": "'\"" * 500_000,
    "endless heredoc": "cat <<EOF\n" + "x\n" * 500_000,
    "many heredocs": "cat <<A <<B\n" * 80_000,
    "subshells": "(" * 1000 + "cd a;" * 400 + ")" * 1000,
    "nested shells": "bash -c '" * 20_000,
    "case": "case a in " * 100_000,
    "null bytes": "\0" * 1_000_000,
    "glob patterns": "a@(" * 300_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_ends_quickly(name: str) -> None:
    started = time.process_time()
    classify_shell(HOSTILE[name])
    assert time.process_time() - started < 3.0


@given(st.lists(st.sampled_from([*"ab|&;<>()${}'\"`\\ \n#=*[]!~E-", "<<E\n", "$(", "\0", "\ud800", "bash -c "])))
def test_no_text_breaks_the_parser(pieces: list[str]) -> None:
    text = "".join(pieces)
    assert classify_shell(text).kind in CallKind
    tokenize(text)
