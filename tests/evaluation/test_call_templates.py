"""Calls without what belongs to one attempt."""

from __future__ import annotations

import json

import pytest

from foretrace.actions.same_action import canonicalise_json
from foretrace.evaluation.call_templates import ShownLines, fill_template, find_shown_lines, make_templates


@pytest.mark.parametrize(
    ("arguments", "paths", "template"),
    [
        ({"command": "cd /w && python a_b.py"}, ["a_b.py"], "cd <root> && python <name>"),
        ({"command": "cat /w/src/a.py"}, ["src/a.py"], "cat <path>"),
        ({"command": "pytest src/a.py -q"}, ["src/a.py"], "pytest <rel> -q"),
        ({"command": "rm /w/a.py /w/b.py"}, ["a.py", "b.py"], "rm <paths>"),
        ({"command": "mv a.py /w/b.py"}, ["a.py", "b.py"], "mv <name> <path>"),
        ({"command": "cat /etc/x.conf"}, ["/etc/x.conf"], "cat <path>"),
        ({"command": "ls -la"}, [], "ls -la"),
    ],
)
def test_a_template_filled_with_its_own_files_is_the_call(
    arguments: dict[str, str], paths: list[str], template: str
) -> None:
    made = make_templates("file_read", "bash", json.dumps(arguments), "/w")[0]
    assert json.loads(made.arguments) == {"command": template}
    assert made.files == len(paths)
    assert fill_template(made, paths, "/w") == canonicalise_json(json.dumps(arguments))


@pytest.mark.parametrize(
    ("command", "template"),
    [
        ('grep -n "def parse_it" /w/a.py', 'grep -n "def <word>" <path>'),
        ("grep -rn parse_it /w", "grep -rn <word> <root>"),
    ],
)
def test_a_search_has_its_word_taken_out(command: str, template: str) -> None:
    call = json.dumps({"command": command})
    made = make_templates("retrieval", "bash", call, "/w")[0]
    assert json.loads(made.arguments) == {"command": template} and made.has_word
    assert fill_template(made, ["a.py"], "/w", "parse_it") == canonicalise_json(call)


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ({"path": "/w/a.py", "view_range": [40, 60]}, ShownLines(40, 60)),
        ({"command": "sed -n '40,60p' /w/a.py"}, ShownLines(40, 60)),
        ({"limit": 9, "offset": 40, "path": "/w/a.py"}, ShownLines(40, 0)),
        ({"command": "open a.py 40"}, ShownLines(40, 0)),
    ],
)
def test_the_lines_that_are_shown_are_taken_out(arguments: dict[str, object], shown: ShownLines) -> None:
    call = canonicalise_json(json.dumps(arguments))
    made = make_templates("file_read", "view", call, "/w")
    assert find_shown_lines(call) == shown
    assert len(made) == 1 and made[0].has_lines, "lines in the middle of a file say nothing about another one"
    assert fill_template(made[0], ["a.py"], "/w", lines=shown) == call


def test_the_beginning_of_a_file_is_kept_too() -> None:
    made = make_templates("file_read", "view", '{"path":"/w/a.py","view_range":[1,50]}', "/w")
    assert [each.has_lines for each in made] == [True, False, False]
