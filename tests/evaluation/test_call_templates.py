"""Calls without what belongs to one attempt."""

from __future__ import annotations

import json

import pytest

from foretrace.actions.same_action import canonicalise_json
from foretrace.evaluation.call_templates import fill_template, make_templates


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
