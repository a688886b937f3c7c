"""What may be called next: earlier calls, and templates with what the prompt names."""

from __future__ import annotations

import json

import pytest

from evaluation.attempts import Turn, bash, create, edit, make_prompt, view
from foretrace.actions.same_action import canonicalize_json
from foretrace.actions.taxonomy import ActionType
from foretrace.evaluation.call_candidates import (
    Candidates,
    TemplateBook,
    count_files,
    fill_template,
    find_context,
    list_candidates,
    list_past_calls,
    make_templates,
)
from foretrace.evaluation.prompt_reading import PromptView, read_prompt

TASK = "Fix `parse_it` in\n/w\nplease."


def look(task: str, *past: Turn) -> PromptView:
    return read_prompt(make_prompt(task, past))


def list_after(past: list[Turn], *known: Turn) -> Candidates:
    """Candidates after some turns, where two groups of other attempts made each known call at the same place."""
    seen = look(TASK, *past)
    context = find_context(seen, ())
    counted = [
        (group, context, make_templates(str(turn.action), turn.tool, json.dumps(turn.arguments), "/other"))
        for group in ("a", "b")
        for turn in known
    ]
    return list_candidates(seen, context, TemplateBook(counted))


def list_commands(candidates: Candidates) -> list[str]:
    return [json.loads(arguments).get("command", "") for tool, arguments in candidates]


def test_a_call_of_other_attempts_is_filled_with_the_files_of_this_one() -> None:
    found = list_after([create("/w/try.py", "import a")], bash("cd /other && python it.py"))
    made = found["bash", '{"command":"cd /w && python try.py"}']
    usage, file = made.usage, made.filling.file
    assert usage.shares == (1.0, 1.0) and usage.groups == 2 and not usage.strange
    assert file is not None and (file.path, file.calls) == ("try.py", 1)
    assert found["bash", '{"command":"cd /w && python it.py"}'].usage.strange, "it names a file that is not here"


def test_a_call_of_this_attempt_is_filled_with_another_file() -> None:
    past = [create("/w/one.py", "1"), bash("python one.py"), create("/w/two.py", "2")]
    made = list_after(past)["bash", '{"command":"python two.py"}']
    assert made.usage.own is not None and made.usage.own.turns_ago == 1


def test_all_files_that_were_made_are_named_in_a_row() -> None:
    past = [create("/w/one.py", "1"), create("/w/two.py", "2")]
    assert "rm /w/one.py /w/two.py" in list_commands(list_after(past, bash("rm /other/x.py /other/y.py /other/z.py")))


def test_earlier_calls_know_what_happened_since() -> None:
    run = bash("python a.py", "ok", ActionType.VERIFIER)
    seen = look("Fix it.", run, edit("/w/a.py", "x", "y"), view("/w/a.py"), run, edit("/w/a.py", "y", "z"))
    past = {call.arguments: call for call in list_past_calls(seen, 9)}
    again = past['{"command":"python a.py"}']
    assert (again.turns_ago, again.times, again.writes_since) == (1, 2, 1)
    assert len(past) == 4 and len(list_past_calls(seen, 2)) == 2


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
    assert count_files(made.arguments) == len(paths)
    assert fill_template(made, paths, "/w") == canonicalize_json(json.dumps(arguments))
