"""What may be called next: templates, files, earlier calls, pages."""

from __future__ import annotations

import json

import pytest

from evaluation.attempts import Turn, bash, create, edit, make_prompt, view
from foretrace.actions.same_action import canonicalise_json
from foretrace.actions.taxonomy import ActionType
from foretrace.evaluation.call_candidates import (
    PastCall,
    fill_template,
    find_root,
    list_created,
    list_files,
    list_past_calls,
    list_words,
    make_template,
    turn_page,
)
from foretrace.evaluation.prompt_reading import PromptReader, PromptView


def look(task: str, *past: Turn) -> PromptView:
    return PromptReader().read(make_prompt(task, past))


@pytest.mark.parametrize(
    ("arguments", "paths", "template"),
    [
        ({"command": "cd /w && python a_b.py"}, ["a_b.py"], "cd <root> && python <name>"),
        ({"command": "cat /w/src/a.py"}, ["src/a.py"], "cat <path>"),
        ({"command": "pytest src/a.py -q"}, ["src/a.py"], "pytest <rel> -q"),
        ({"command": "rm /w/a.py /w/b.py"}, ["a.py", "b.py"], "rm <path> <path>"),
        ({"command": "cat /etc/x.conf"}, ["/etc/x.conf"], "cat <path>"),
        ({"command": "ls -la"}, [], "ls -la"),
    ],
)
def test_a_template_filled_with_its_own_files_is_the_call(
    arguments: dict[str, str], paths: list[str], template: str
) -> None:
    made = make_template("file_read", "bash", json.dumps(arguments), "/w")
    assert json.loads(made.arguments) == {"command": template}
    assert made.files == len(paths)
    assert fill_template(made, paths, "/w") == canonicalise_json(json.dumps(arguments))


def test_a_search_has_its_word_taken_out() -> None:
    call = json.dumps({"command": 'grep -n "def parse_it" /w/a.py'})
    made = make_template("retrieval", "bash", call, "/w")
    assert json.loads(made.arguments) == {"command": 'grep -n "def <word>" <path>'} and made.has_word
    assert fill_template(made, ["a.py"], "/w", "parse_it") == canonicalise_json(call)


@pytest.mark.parametrize(
    ("task", "past", "root"),
    [
        ("<uploaded>\n/repo/x\n</uploaded>", [], "/repo/x"),
        ("Fix it.", [bash("cd /srv/app && ls")], "/srv/app"),
        ("Fix the bug in /testbed, please", [], "/testbed"),
        ("Choose 1/2 or see https://x.org/a/b", [], ""),
    ],
)
def test_the_working_directory(task: str, past: list[Turn], root: str) -> None:
    assert find_root(look(task, *past)) == root


def test_files_say_where_they_stand() -> None:
    traceback = 'Traceback\n  File "/w/src/a.py", line 3\nValueError'
    seen = look(
        "In\n/w\nfix src/a.py",
        create("/w/try.py", "import a"),
        view("/w/src/a.py"),
        edit("/w/src/b.py", "x", "y"),
        bash("python try.py", traceback),
    )
    files = {file.path: file for file in list_files(seen, "/w", 9)}
    assert [path for path, file in files.items() if file.created] == ["try.py"] == list_created(seen, "/w")
    assert [path for path, file in files.items() if file.edited] == ["src/b.py"]
    assert [path for path, file in files.items() if file.viewed] == ["src/a.py"]
    assert [path for path, file in files.items() if file.in_traceback] == ["src/a.py"]
    assert files["src/a.py"].in_task and not files["try.py"].in_task
    assert (files["src/a.py"].in_result, files["try.py"].in_result) == (0, -1)
    assert (files["try.py"].calls, files["try.py"].turns_ago) == (2, 0)
    assert len(list_files(seen, "/w", 2)) == 2


def test_earlier_calls_know_what_happened_since() -> None:
    run = bash("python a.py", "ok", ActionType.VERIFIER)
    seen = look("Fix it.", run, edit("/w/a.py", "x", "y"), view("/w/a.py"), run, edit("/w/a.py", "y", "z"))
    past = {call.arguments: call for call in list_past_calls(seen, 9)}
    again = past['{"command":"python a.py"}']
    assert (again.turns_ago, again.times, again.writes_since) == (1, 2, 1)
    assert len(past) == 4 and len(list_past_calls(seen, 2)) == 2


def test_the_next_page() -> None:
    def turn(arguments: str) -> list[str]:
        return turn_page(PastCall("file_read", "view", arguments, 0, 1, False, 0))

    assert '{"path":"a.py","view_range":[51,100]}' in turn('{"path":"a.py","view_range":[1,50]}')
    assert turn('{"limit":40,"offset":80,"path":"a.py"}') == ['{"limit":40,"offset":120,"path":"a.py"}']
    assert turn('{"path":"a.py"}') == turn("no json") == turn("[1,2]") == []


def test_words_of_the_task() -> None:
    assert list_words(look("`parse_it` fails, parse_it of MyClass"), 2) == ["parse_it", "MyClass"]
