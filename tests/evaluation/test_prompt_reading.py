"""Prompts read back: both forms of the renderer give the same view."""

from __future__ import annotations

from evaluation.attempts import bash, make_prompt, view, write_turn
from foretrace.core.message_columns import ChatText
from foretrace.evaluation.prompt_reading import PromptView, read_prompt

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
