"""Prompts read back, what they name that a call may be about, and the calls that may come next."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluation.attempts import Turn, bash, create, edit, make_prompt, view, write_turn
from foretrace.actions.same_action import canonicalize_json
from foretrace.actions.taxonomy import ActionType
from foretrace.core.message_columns import ChatText
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
from foretrace.evaluation.prompt_reading import (
    FILE,
    PromptView,
    find_files,
    find_root,
    list_created,
    list_files,
    make_relative,
    read_prompt,
)

TASK = "Fix the bug."
PAST = [bash("ls src", "a.py\nb.py"), view("src/a.py", "x = 1\n</result> [3 files]")]


def read(prompt: list[ChatText] | tuple[ChatText, ...], *tools: str) -> PromptView:
    return read_prompt(prompt, tools)


def test_a_prompt_is_its_task_and_its_turns() -> None:
    found = read(make_prompt(TASK, PAST))
    assert (found.system, found.task) == ("You watch an agent.", TASK)
    assert [[call.name for call in turn.calls] for turn in found.turns] == [["bash"], ["str_replace_editor"]]
    assert [turn.result for turn in found.turns] == [turn.result for turn in PAST]
    assert [str(turn.label.action) for turn in found.turns] == ["file_read", "file_read"]
    assert found.last_result == PAST[-1].result
    assert read(make_prompt(TASK, [])).last_result == TASK


def test_results_in_tags_and_merged_messages_give_the_same_view() -> None:
    """The second form: tool results in tags, consecutive turns of one side in one message."""
    plain = [*make_prompt(TASK, PAST), ChatText("user", "Go on.")]
    tagged = [ChatText("system", "You watch an agent."), ChatText("user", TASK)]
    for turn in PAST[:1]:
        tagged += [
            ChatText("assistant", write_turn(turn)),
            ChatText("user", f"<tool_response>\n{turn.result}\n</tool_response>"),
        ]
    last = PAST[1]
    tagged += [
        ChatText("assistant", write_turn(last)),
        ChatText("user", f"<tool_response>\n{last.result}\n</tool_response>\nGo on."),
    ]
    assert read(plain) == read(tagged)


def test_what_was_left_out_is_no_task_and_no_result() -> None:
    mark = "[3 earlier messages left out]"
    apart = [ChatText("user", TASK), ChatText("user", mark), *make_prompt("", PAST)[2:]]
    merged = [ChatText("user", f"{TASK}\n\n{mark}"), *make_prompt("", PAST)[2:]]
    assert read(apart).task == read(merged).task.strip() == TASK
    assert read(apart).turns == read(merged).turns


def test_calls_without_tags_count_only_for_tools_that_are_known() -> None:
    prompt = [
        ChatText("user", TASK),
        ChatText("assistant", 'Thought: look\nAction: find_flight\nAction Input: {"to": "Oslo"}'),
        ChatText("user", "none"),
    ]
    assert [call.name for call in read(prompt, "find_flight").turns[0].calls] == ["find_flight"]
    assert read(prompt, "other").turns[0].calls == ()


def look(task: str, *past: Turn) -> PromptView:
    return read_prompt(make_prompt(task, past))


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
    assert list_created(seen, "/w") == ["try.py"]
    files = {file.path: file for file in list_files(seen, "/w", 9)}
    assert [*files] == ["try.py", "src/a.py", "src/b.py"], "made and run; in the task; edited"
    assert (files["src/a.py"].in_result, files["try.py"].in_result) == (0, -1)
    assert (files["try.py"].calls, files["try.py"].turns_ago) == (2, 0)
    assert len(list_files(seen, "/w", 2)) == 2


@given(
    st.lists(
        st.sampled_from(["src/a.py", "b.md", " ", "\n", "\t", ".", "..", "*/", "://", "x", "/", "-", "@", "\u00a0"])
    )
)
def test_words_without_a_dot_name_no_file(parts: list[str]) -> None:
    text = "".join(parts)
    assert find_files(text, "") == [*dict.fromkeys(make_relative(path, "") for path in FILE.findall(text))]


def test_files_that_were_run_count_as_made_where_the_beginning_is_left_out() -> None:
    seen = look("Fix it.", bash("python first.py"), create("/w/second.py", "x"), bash("python src/third.py"))
    assert list_created(seen, "/w") == ["first.py", "second.py"]


IN_FOLDER = "Fix `parse_it` in\n/w\nplease."


def list_after(past: list[Turn], *known: Turn) -> Candidates:
    """Candidates after some turns, where two groups of other attempts made each known call at the same place."""
    seen = look(IN_FOLDER, *past)
    context = find_context(seen, ())
    counted = [
        (group, context, make_templates(str(turn.action), turn.tool, json.dumps(turn.arguments), "/other"))
        for group in ("a", "b")
        for turn in known
    ]
    return list_candidates(seen, context, TemplateBook(counted))


def list_commands(candidates: Candidates) -> list[str]:
    return [json.loads(arguments).get("command", "") for _, arguments in candidates]


def test_a_call_of_other_attempts_is_filled_with_the_files_of_this_one() -> None:
    found = list_after([create("/w/try.py", "import a")], bash("cd /other && python it.py"))
    made = found["bash", '{"command":"cd /w && python try.py"}']
    file = made.file
    assert made.shares == (1.0, 1.0) and made.groups == 2 and not made.strange
    assert file is not None and (file.path, file.calls) == ("try.py", 1)
    assert found["bash", '{"command":"cd /w && python it.py"}'].strange, "it names a file that is not here"
    known = [bash(f"cd /other && python {name}.py") for name in ("it", "try")]
    both = list_after([create("/w/try.py", "import a")], *known)["bash", '{"command":"cd /w && python try.py"}']
    assert both.shares == (1.0, 1.0), "of two templates of one call, the likelier counts"


def test_a_call_of_one_group_that_names_a_file_is_not_offered() -> None:
    seen = look(IN_FOLDER)
    context = find_context(seen, ())
    made = {"a": "python it.py -x", "b": "ls"}
    counted = [
        (group, context, make_templates("verifier", "bash", json.dumps({"command": command}), "/other"))
        for group, command in made.items()
    ]
    assert list_commands(list_candidates(seen, context, TemplateBook(counted))) == ["ls"]


def test_a_call_of_this_attempt_is_filled_with_another_file() -> None:
    past = [create("/w/one.py", "1"), bash("python one.py"), create("/w/two.py", "2")]
    made = list_after(past)["bash", '{"command":"python two.py"}']
    assert made.own is not None and made.own.turns_ago == 1


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
        ({"command": "cat /etc/x.conf"}, ["/etc/x.conf"], "cat <path>"), ({"command": "ls -la"}, [], "ls -la"),
    ],
)  # fmt: skip
def test_a_template_filled_with_its_own_files_is_the_call(
    arguments: dict[str, str], paths: list[str], template: str
) -> None:
    made = make_templates("file_read", "bash", json.dumps(arguments), "/w")[0]
    assert json.loads(made.arguments) == {"command": template}
    assert count_files(made.arguments) == len(paths)
    assert fill_template(made, paths, "/w") == canonicalize_json(json.dumps(arguments))
