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

KINDS = {
    CallKind.TERMINAL: [
        "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && git diff",
    ],
    CallKind.VERIFY: [
        "Set-Location src; Invoke-Pester", "uvx ruff check .", "bunx vitest run", "bazel test //a", "zig build test",
        "terraform validate", "docker compose build", "xcodebuild test -scheme A",
        "cd /srv/app && python check_bug.py", "cat > probe.py <<'EOF'\nassert add(1, 2) == 3\nEOF\npython probe.py",
        "for s in checks/*.sh; do bash $s; done", "pip install attrs && pytest -q",
        "timeout 30 env DEBUG=1 sudo -u app python3 -m pytest tests/unit", "bash -c 'cd pkg; tox -e py311'",
        "python -m unittest discover 2>&1 | tail -20", "pytest > run.log 2>&1",
        "python -c 'from shop.cart import Cart; print(Cart().total())'",
        "python - <<'EOF'\nimport shop\nprint(shop.price(3))\nEOF", "cat probe.py | python -", "echo 12 | ./solver",
        "mypy src && flake8 src", "black --check src", "nginx -t", "make -j4", "npm run lint", "go vet ./...",
        "g++ -O2 main.cpp -o main && ./main", "git stash && pytest tests/unit; git stash pop",
        "curl -s http://localhost:8080/health",
    ],
    CallKind.UNDO: [
        "git checkout -- pkg/mod.py", "git restore .", "git stash",
    ],
    CallKind.WRITE: [
        "Set-Content -Path a.py -Value 'x = 1'", "(Get-Content a.py) -replace 'a','b' | Set-Content a.py",
        "yq -i '.a = 1' c.yaml",
        "cat > notes.md <<EOF\nrun rm -rf / later\nEOF", "echo 'DEBUG = True' >> settings.py",
        "printf 'a\\n' | sudo tee /etc/app.conf", "sed -i 's/old/new/' pkg/mod.py && git diff",
        "find . -name '*.py' -exec sed -i 's/a/b/' {} +", "perl -pi -e 's/a/b/' f.txt", "git apply fix.diff",
        "git diff > change.patch", "python - <<'EOF'\np = 'a.py'\nopen('a.py', 'w').write('x = 1')\nEOF",
        'python -c "from pathlib import Path; Path(\'b.py\').write_text(\'\')"', "black src",
        "gawk -i inplace '{print}' f", "sort -o f f", "dd if=/dev/zero of=x",
    ],
    CallKind.OTHER: [
        "type python3", "New-Item -ItemType Directory out; Write-Host done", "Get-Process",
        "irm https://x.org -Method Post -Body $b", "terraform apply -auto-approve", "kubectl delete pod get",
        "aws s3 cp a b", "gh api -X POST repos/o/r/issues",
        "pip install -e .", "mkdir -p out && touch out/.keep", "rm -f probe.py",
        "git add -A && git commit -m 'grep the log; python x.py'", "git checkout -b v1.2",
        "python manage.py runserver 0.0.0.0:8000 &", "python -c 'import attrs; print(attrs.__version__)'",
        "python -c 'import sys; print(sys.path)'", "python --version", "cd /srv/app && pwd", "ps aux | grep python",
        "echo hello", "cd /srv/app", "find . -name '*.pyc' -delete", 'sqlite3 shop.db "UPDATE item SET price = 2"',
        "", "tee --help",
    ],
    CallKind.COMPARE: [
        "git status", "cd /srv/app && git diff HEAD",
    ],
    CallKind.SEARCH: [
        "Select-String -Path *.py -Pattern foo", "findstr /s foo *.py", "iwr https://x.org", "kubectl get pods -A",
        "aws ec2 describe-instances", "docker compose logs api | tail -50", "gh api repos/o/r/issues",
        "grep -rn 'def total' src | head -5", "find . -name '*.toml' | xargs grep -l ruff",
        "cat pkg/mod.py | grep import", "ls src && grep -n x src/a.py", "git log --oneline -5", "pip show attrs",
        "curl -s https://example.org/api", "sqlite3 shop.db 'SELECT name FROM item LIMIT 3'",
    ],
    CallKind.READ: [
        "Get-Content a.py -Tail 5", "get-childitem -Recurse src | Select-Object -First 5", "type src\\a.py",
        'powershell -Command "Get-Content a.py"', "yq '.a' c.yaml",
        "sed -n '10,40p' pkg/mod.py", "ls /srv | wc -l", "cd /srv/app && cat README.md | head -20", "pwd && ls",
        "if [ -f setup.cfg ]; then cat setup.cfg; fi", "git show HEAD~1", "awk -F, -vlimit=3 '{print}' f",
    ],
}  # fmt: skip


@pytest.mark.parametrize(("command", "kind"), [(each, kind) for kind, commands in KINDS.items() for each in commands])
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
        ("grep -rn x .", Effect.PURE_READ), ("pytest -q", Effect.SANDBOX_EXEC),
        ("pip install x && pytest", Effect.LOCAL_WRITE), ("rm a", Effect.LOCAL_WRITE),
        ("git push origin main", Effect.EXTERNAL_WRITE),
        ("curl -X POST https://example.org -d a=1", Effect.EXTERNAL_WRITE),
        ("python app.py && git push", Effect.EXTERNAL_WRITE),
    ],
)  # fmt: skip
def test_effect(command: str, effect: Effect) -> None:
    assert classify_shell(command).effect is effect


@pytest.mark.parametrize(
    ("line", "folders"),
    [
        ("(cd a && cat f) && cat f", ["a", ""]), ("cd a && (cd b; cat f; cd ..; cat f); cat f", ["a/b", "a", "a"]),
        ("cat $(cd a && cat f); cat f", ["", "", "a"]), ("cd a | cat f; cat f", ["", ""]),
        ("go() { cd a; }; cat f", [""]), ("cd a; cd b; cd -; cat f", ["a"]),
        ("cd a; cd /b && cat f; cd -; cat f; cd -; cat f", ["/b", "a", "/b"]), ("cd a; cd; cat f", ["~"]),
        ("cd a; cd -P -- b && cat f; cd $X; cat f", ["a/b", "$X"]),
    ],
)  # fmt: skip
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
