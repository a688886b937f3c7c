"""Claude Code: one reply over several lines, subagents, branches, and what the program puts into the user's role."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from foretrace.core.trace import Parent
from foretrace.sources.formats.claude_code import ClaudeCode
from sources.formats.reading import count, write_lines
from sources.formats.reading import read as read_file

_NUMBERS = itertools.count()


def line(kind: str, content: Any, parent: str | None = None, *, at: float = 0, **more: Any) -> dict[str, Any]:
    """A record; `id` of the reply and other fields of the message in `message`."""
    message = {"role": kind, "content": content, **more.pop("message", {})}
    return {
        "type": kind, "uuid": f"u{next(_NUMBERS)}", "parentUuid": parent, "sessionId": "s1", "isSidechain": False,
        "timestamp": f"2026-01-01T00:00:{at:06.3f}Z", "cwd": "/home/someone/code/app/web", "gitBranch": "main",
        "version": "2.1.0", "message": message, **more,
    }  # fmt: skip


def chain(*records: dict[str, Any]) -> list[dict[str, Any] | str]:
    """The records, each the parent of the next."""
    for before, after in itertools.pairwise(records):
        after["parentUuid"] = before["uuid"]
    return list(records)


def text(value: str) -> dict[str, str]:
    return {"type": "text", "text": value}


def call(call_id: str, name: str = "Bash", **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def result(call_id: str, value: Any = "ok", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": value, **more}


def test_lines_of_one_reply_are_one_turn_and_results_may_come_between(tmp_path: Path) -> None:
    reply = {"id": "m1", "model": "claude-x"}
    usage = [{"usage": {"input_tokens": 3, "output_tokens": n, "service_tier": "x"}} for n in (1, 9, 2)]
    records = chain(
        line("user", "fix it", at=1),
        line("assistant", [{"type": "thinking", "thinking": "hm"}], at=3, message={**reply, **usage[0]}),
        line("assistant", [text("I look"), call("c1")], at=4, message={**reply, **usage[1]}),
        line("user", [result("c1", [text("one"), text("two")])], at=4.5),
        line("assistant", [call("c2", "AskUserQuestion")], at=5, message={**reply, **usage[2]}),
        line("user", [result("c2", "yes", is_error=False)], at=50),
        line("assistant", "done", at=52, message={"id": "m2", "model": "claude-x"}),
    )
    records.insert(4, records[2])  # written again, as some versions do
    read = read_file("claude_code", write_lines(tmp_path / "s1.jsonl", records))
    (trace,) = read.traces
    assert count(trace) == {"turns": 2, "calls": 2, "results": 2}
    first = trace.messages[1]
    assert (first.content, first.reasoning) == ("I look", "hm") and first.extra["usage"]["output_tokens"] == 9
    assert [m.content for m in trace.messages if m.role == "tool"] == ["one\ntwo", "yes"]
    assert [m.tool_s for m in trace.messages if m.role == "tool"] == [0.5, None], "a person answered the second"
    assert (first.model_s, trace.messages[-1].model_s) == (4, 2)
    assert read.account.ignored == {"repeated record": 1}
    assert (trace.key, trace.task.group, trace.task.statement) == ("claude_code@s1", "app", "fix it")
    assert (trace.provenance.model, trace.provenance.agent) == ("claude-x", "claude-code")
    assert trace.extra["git_branch"] == "main" and trace.provenance.tool_versions == {"claude-code": "2.1.0"}


def test_durations_of_the_runner_win_and_persons_are_no_tools(tmp_path: Path) -> None:
    names = {"a": "WebFetch", "b": "WebSearch", "c": "Write", "d": "Bash", "e": "Write", "f": "Edit"}
    denied = "The user doesn't want to proceed with this tool use."
    records = chain(
        line("user", "go", at=0),
        line("assistant", [call(own, name) for own, name in names.items()], at=1),
        line("user", [result("a")], at=9, toolUseResult={"durationMs": 2500, "content": "ok"}),
        line("user", [result("b")], at=9, toolUseResult={"durationSeconds": 1.25}),
        line("user", [result("c", denied, is_error=True)], at=30),
        line("user", [result("d", is_error=True)], at=30, toolUseResult="Error: x"),
        line("user", [result("e")], at=1.125),
        line("user", [result("f")], at=22.5),
    )
    found = read_file("claude_code", write_lines(tmp_path / "s1.jsonl", records))
    tools = [m for m in found.messages if m.tool_call_ids]
    assert [(m.tool_s, m.tool_s_source) for m in tools] == [
        (2.5, "runner"), (1.25, "runner"), (None, None), (29, "stamps"), (0.125, "stamps"), (None, None),
    ]  # fmt: skip
    assert [m.is_error for m in tools] == [None, None, True, True, None, None]
    assert found.account.notes == {"edits that waited for a person": 1}


def test_who_goes_back_leaves_a_branch_and_parallel_calls_do_not(tmp_path: Path) -> None:
    start = line("user", "first")
    reply = line("assistant", [call("a")], start["uuid"], message={"id": "m1"})
    other = line("assistant", [call("b")], reply["uuid"], message={"id": "m1"})
    result_a = line("user", [result("a")], reply["uuid"])
    result_b = line("user", [result("b")], other["uuid"])  # beside the line that goes on from `result_a`
    wrong = line("user", "wrong way", result_a["uuid"])
    lost = line("assistant", "lost", wrong["uuid"])
    right = line("user", "right way", result_a["uuid"])
    end = line("assistant", "end", right["uuid"])
    file = write_lines(tmp_path / "s1.jsonl", [start, reply, other, result_a, result_b, wrong, lost, right, end])
    read = read_file("claude_code", file)
    assert count(read.traces[0]) == {"turns": 2, "calls": 2, "results": 2}
    assert "lost" not in {m.content for m in read.messages}
    assert read.account.ignored == {"abandoned branch": 2} and read.account.notes == {"abandoned branches": 1}


def subagent(**more: Any) -> list[dict[str, Any] | str]:
    said = ("user", "look around"), ("assistant", [call("x1", "Grep")]), ("user", [result("x1")])
    return chain(*(line(role, content, isSidechain=True, **more) for role, content in said))


def main_line() -> list[dict[str, Any] | str]:
    return chain(
        line("user", "do it"),
        line("assistant", [call("t1", "Task", prompt="look around"), call("t2", "Task", prompt="other")]),
        line("user", [result("t1")], toolUseResult={"agentId": "abc", "totalDurationMs": 4000}),
        line("assistant", "end"),
    )


def test_subagents_inside_the_session_are_traces_of_their_own(tmp_path: Path) -> None:
    records = main_line()
    records[2:2] = [*subagent(), *subagent(agentId="abc")]
    read = read_file("claude_code", write_lines(tmp_path / "s1.jsonl", records))
    session, by_prompt, by_id = read.traces
    assert [count(t)["turns"] for t in read.traces] == [2, 1, 1]
    assert by_id.key == "claude_code@s1/abc" and by_prompt.key.startswith("claude_code@s1/u")
    assert by_id.parent == by_prompt.parent == Parent(key=session.key, call_id="t1") and session.parent is None
    assert {t.task.group for t in read.traces} == {"app"} and len({t.task.id for t in read.traces}) == 3
    assert session.messages[2].tool_s == 4


@pytest.mark.parametrize("where", ["s1/subagents/agent-abc.jsonl", "agent-abc.jsonl"])
def test_subagents_in_files_beside_the_session(tmp_path: Path, where: str) -> None:
    session = write_lines(tmp_path / "s1.jsonl", main_line())
    file = write_lines(tmp_path / where, subagent(agentId="abc"))
    file.with_name("agent-abc.meta.json").write_text('{"agentType": "explorer"}')
    alone = read_file("claude_code", file).traces
    assert [(t.key, t.parent) for t in alone] == [("claude_code@s1/abc", Parent(key="claude_code@s1"))]
    read = read_file("claude_code", session)
    if "/" in where:
        assert list(ClaudeCode().list_companions(session)) == sorted(file.parent.iterdir())
        assert [t.key for t in read.traces] == ["claude_code@s1", "claude_code@s1/abc"]
        assert read.traces[1].parent == Parent(key="claude_code@s1", call_id="t1")
        assert read.traces[1].extra["agent_type"] == "explorer"
        assert read.account.records == 4 + 3 + 1
    else:
        assert not list(ClaudeCode().list_companions(session)) and len(read.traces) == 1


def test_errors_of_the_api_and_messages_taken_back_are_no_turns(tmp_path: Path) -> None:
    partial = line("assistant", "half a rep")
    records = chain(
        line("user", "go"),
        line("assistant", "API Error: 529", isApiErrorMessage=True, message={"model": "<synthetic>"}),
        line("assistant", "No response requested.", message={"model": "<synthetic>"}),
        partial,
        line("assistant", "whole", supersedesUuids=[partial["uuid"]]),
    )
    read = read_file("claude_code", write_lines(tmp_path / "s1.jsonl", records))
    assert [m.content for m in read.messages] == ["go", "whole"]
    assert read.account.notes == {"errors of the model's API": 1}
    assert read.account.ignored == {"api error message": 1, "synthetic message": 1, "message taken back": 1}


def test_what_a_fork_copied_is_not_trained_on_twice(tmp_path: Path) -> None:
    forked: dict[str, Any] = {"forkedFrom": {"sessionId": "s0", "messageUuid": "x"}}
    records = chain(line("user", "go", **forked), line("assistant", "yes", **forked), line("assistant", "more"))
    messages = read_file("claude_code", write_lines(tmp_path / "s1.jsonl", records)).messages
    assert [m.train for m in messages] == [None, False, None] and messages[1].extra["inherited"] is True


def test_prompts_that_were_queued_are_prompts(tmp_path: Path) -> None:
    def queued(prompt: Any, **more: Any) -> dict[str, Any]:
        attachment = {"type": "queued_command", "prompt": prompt, **more}
        return {**line("attachment", ""), "attachment": attachment, "message": None}

    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    records = chain(
        line("user", "go"), line("assistant", "yes"), queued([image, text("wait")]),
        queued("task ended", commandMode="task-notification"), {**queued("x"), "attachment": {"type": "todo_reminder"}},
        line("assistant", "ok"),
    )  # fmt: skip
    read = read_file("claude_code", write_lines(tmp_path / "s1.jsonl", records))
    assert [(m.author, m.content) for m in read.messages if m.role == "user"] == [
        ("user", "go"), ("user", "wait"), ("environment", "task ended"),
    ]  # fmt: skip
    assert read.messages[2].parts[0].sha256 and read.account.ignored == {"attachment todo_reminder": 1}


def test_bad_and_unknown_lines_are_counted_and_a_growing_file_is_read_to_its_last_whole_line(tmp_path: Path) -> None:
    records: list[Any] = [line("user", "go"), line("assistant", "yes"), {"type": "brand-new", "sessionId": "s1"}]
    records += [{**line("user", "x"), "message": "broken"}, "42", '{"type":"user","mess']
    read = read_file("claude_code", write_lines(tmp_path / "s1.jsonl", records))
    assert len(read.messages) == 2 and read.account.unknown == {"brand-new": 1}
    assert read.account.dropped == {"no_content": 1, "not_an_object": 1, "bad_json": 1}


def test_the_snapshot_of_the_prompt_is_the_system_message_and_names_the_tools(tmp_path: Path) -> None:
    def snapshot(*prompt: str, **more: Any) -> dict[str, Any]:
        given = {"type": "prompt_snapshot", "systemPrompt": list(prompt), **more}
        return line("user", "") | {"type": "attachment", "attachment": given}

    tools = [{"name": "Read", "description": "Reads a file.", "input_schema": {"type": "object"}}]
    records = chain(
        line("user", "go"), snapshot("You are terse.", "Be brie\ufffd."),
        snapshot("You are terse.", "Be brief.", tools=tools),
        line("assistant", "yes"), snapshot("You are terse.", "Be brief.", tools=tools), line("assistant", "more"),
        snapshot("You are verbose."), line("assistant", "and more"),
    )  # fmt: skip
    (trace,) = read_file("claude_code", write_lines(tmp_path / "s1.jsonl", records)).traces
    assert [(m.role, m.content) for m in trace.messages] == [
        ("system", "You are terse.\nBe brief."), ("user", "go"), ("assistant", "yes"), ("assistant", "more"),
        ("system", "You are verbose."), ("assistant", "and more"),
    ]  # fmt: skip
    assert [(tool.name, tool.parameters) for tool in trace.tools] == [("Read", '{"type": "object"}')]


def test_what_no_message_says_is_in_extra_under_its_own_name(tmp_path: Path) -> None:
    cited = {**text("It is so."), "citations": [{"url": "https://example.org/a", "title": "A"}]}
    usage = {"output_tokens": 3, "service_tier": "standard"}
    records = chain(
        line("user", "go", brandNew={"deep": [1]}),
        line("assistant", [cited, call("t1", command="ls")], message={"usage": usage}),
        line("user", [result("t1", "a")], toolUseResult={"stdout": "a\nb", "stderr": "", "interrupted": False}),
        line("user", [result("t1", "x" * 30)], toolUseResult={"stdout": "x" * 30, "originalFile": "y z" * 3000}),
    )
    read = read_file("claude_code", write_lines(tmp_path / "s1.jsonl", records))
    asked, said, ran, again = read.messages
    assert asked.extra["brandNew"] == {"deep": [1]} and said.extra["usage"] == usage
    assert said.extra["content"] == [{"citations": cited["citations"]}]
    assert ran.extra["toolUseResult"] == {"stdout": "a\nb", "interrupted": False}
    assert "toolUseResult" not in again.extra, "a copy is not kept twice"
    assert read.account.notes["long texts, left out: originalFile"] == 1
