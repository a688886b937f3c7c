"""Chats of VS Code with Copilot: exported, and as VS Code keeps them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sources.formats.reading import outline, read, read_one, recognize, write_document, write_lines

SHOWN: list[Any] = [
    {"kind": "mcpServersStarting", "didStartServerIds": []},
    {"kind": "thinking", "value": "I should look.", "id": "1"},
    {"value": "I read ", "supportHtml": False},
    {"kind": "inlineReference", "inlineReference": {"path": "/w/a.py", "scheme": "file"}},
    {"value": " first."},
    {"kind": "toolInvocationSerialized", "toolCallId": "c1", "toolId": "copilot_readFile", "isComplete": True,
     "invocationMessage": {"value": "Reading"}, "pastTenseMessage": {"value": "Read a.py"}, "toolSpecificData": None},
    {"kind": "toolInvocationSerialized", "toolCallId": "c2", "toolId": "run_in_terminal", "toolSpecificData": {
        "kind": "terminal", "commandLine": {"original": "pytest -q"}, "terminalCommandOutput": {"text": "1 failed"},
        "terminalCommandState": {"exitCode": 1, "duration": 2500}}},
    {"kind": "toolInvocationSerialized", "toolCallId": "c3", "toolId": "mcp_docs_search",
     "resultDetails": {"input": '{"q": "x"}', "output": [{"type": "embed", "value": "found"}]}},
    {"kind": "textEditGroup", "uri": {"path": "/w/a.py"}, "edits": [[{"text": "x", "range": {}}], []], "done": True},
    {"kind": "hologram"},
    {"value": "Done."},
]  # fmt: skip
TREE = {"node": {"type": 1, "children": [
    {"type": 2, "text": "x = 1"},
    {"type": 1, "children": [{"type": 2, "text": "y = 2", "lineBreakBefore": True}]}]}}  # fmt: skip
ROUNDS = {
    "toolCallRounds": [
        {"response": "I read it.", "thinking": {"text": "Hm."}, "toolCalls": [
            {"id": "t1", "name": "read_file", "arguments": '{"filePath": "/w/a.py"}'},
            {"id": "t2", "name": "run_in_terminal", "arguments": '{"command": "pytest -q"}'}]},
        {"response": "All pass.", "toolCalls": []},
    ],
    "toolCallResults": {"t1": {"content": [{"$mid": 20, "value": TREE}]}, "t2": {"content": [{"value": "2 passed"}]}},
}  # fmt: skip


def request(text: str, response: list[Any], **more: Any) -> dict[str, Any]:
    return {"requestId": f"request_{text}", "message": {"text": text, "parts": []}, "response": response, **more}


def test_an_export_with_what_was_shown(tmp_path: Path) -> None:
    chat = {"responderUsername": "GitHub Copilot", "initialLocation": "panel", "requests": [
        request("Fix.", SHOWN, timestamp=1755340000000, modelId="copilot/m1"),
        request("No, not that.", [{"value": "Oh."}], shouldBeRemovedOnSend={"requestId": "x"}),
    ]}  # fmt: skip
    path = write_document(tmp_path / "chat.json", chat)
    assert set(recognize(path)) == {"vscode_chat"}
    trace, account = read_one("vscode_chat", path)
    assert outline(trace) == [
        ("user", "user", "Fix."), ("assistant", "model", "I read `a.py` first."), ("tool", "environment", "Read a.py"),
        ("assistant", "model", "run_in_terminal"), ("tool", "environment", "1 failed"),
        ("assistant", "model", "mcp_docs_search"), ("tool", "environment", "found"),
        ("assistant", "model", "Done."),
    ]  # fmt: skip
    turn, run, search = (trace.messages[n] for n in (1, 4, 5))
    assert turn.reasoning == "I should look." and turn.tool_calls[0].name == "copilot_readFile"
    assert (run.is_error, run.tool_s, run.tool_s_source) == (True, 2.5, "runner")
    assert json.loads(search.tool_calls[0].arguments) == {"q": "x"}
    assert "hologram" in json.dumps(trace.messages[0].extra) and account.notes["requests taken back"] == 1
    assert trace.provenance.model == "m1"


def test_rounds_go_before_what_was_shown(tmp_path: Path) -> None:
    chat = {"version": 3, "sessionId": "s1", "creationDate": 1, "requests": [
        request("Test it.", SHOWN, result={"metadata": ROUNDS}),
        request("Again.", [], result={"errorDetails": {"message": "no network"}}),
    ]}  # fmt: skip
    path = tmp_path / "s1.json"
    path.write_text(json.dumps(chat))
    assert set(recognize(path)) == {"vscode_chat"}
    trace, _ = read_one("vscode_chat", path)
    assert trace.key == "vscode_chat@s1"
    assert outline(trace) == [
        ("user", "user", "Test it."), ("assistant", "model", "I read it."), ("tool", "environment", "x = 1\ny = 2"),
        ("tool", "environment", "2 passed"), ("assistant", "model", "All pass."), ("user", "user", "Again."),
    ]  # fmt: skip
    assert trace.outcome.error is not None and trace.outcome.error.message == "no network"


def test_a_log_of_changes(tmp_path: Path) -> None:
    log = [
        {"kind": 0, "v": {"version": 3, "sessionId": "s2", "creationDate": 1, "requests": []}},
        {"kind": 1, "k": ["inputState", "text"], "v": "no such place"},
        {"kind": 2, "k": ["requests"], "v": [request("Hello.", [])]},
        {"kind": 2, "k": ["requests", 0, "response"], "v": [{"value": "Hal"}]},
        {"kind": 2, "k": ["requests", 0, "response"], "i": 0, "v": [{"value": "Hello "}]},
        {"kind": 2, "k": ["requests", 0, "response"], "v": [{"value": "you."}]},
        {"kind": 1, "k": ["customTitle"], "v": "Greeting"},
        {"kind": 3, "k": ["creationDate"]},
        {"kind": 9},
    ]
    path = write_lines(tmp_path / "s2.jsonl", log)
    assert set(recognize(path)) == {"vscode_chat"}
    trace, account = read_one("vscode_chat", path)
    assert [m.content for m in trace.messages] == ["Hello.", "Hello you."] and trace.extra["title"] == "Greeting"
    assert account.dropped == {"change_without_place": 1} and account.unknown == {"9": 1} and account.used == 7


def test_odd_values(tmp_path: Path) -> None:
    odd: list[Any] = [None, 1, "text", [], {}, {"kind": []}, {"kind": "toolInvocationSerialized"}, {"value": {}},
                      {"kind": "textEditGroup", "edits": [1, [2]]}, {"kind": "inlineReference"}]  # fmt: skip
    chat = {"sessionId": "s", "requests": [
        request("a", odd), {"message": "plain", "response": "said"}, {"message": None, "response": None}, 5,
        request("b", [], result={"metadata": {"toolCallRounds": [1, {"toolCalls": [1, {}], "thinking": 3}]}}),
    ]}  # fmt: skip
    traces, drops, _ = read("vscode_chat", write_document(tmp_path / "a.json", chat))
    assert len(traces) == 1 and not drops and "said" in [m.content for m in traces[0].messages]


def test_sessions_line_by_line_and_a_row_of_messages(tmp_path: Path) -> None:
    """Only the first was read; and a row of messages was taken for such a session by a column beside them."""
    chats = [{"sessionId": own, "requests": [request("Hi.", [{"value": "Yes."}])]} for own in ("s1", "s2", "s3")]
    path = write_lines(tmp_path / "chats.jsonl", chats)
    assert set(recognize(path)) == {"vscode_chat"}
    traces, drops, _ = read("vscode_chat", path)
    assert [trace.key for trace in traces] == [f"vscode_chat@{own}" for own in ("s1", "s2", "s3")] and not drops
    messages = [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Yes."}]
    assert not recognize(write_lines(tmp_path / "rows.jsonl", [{**chats[0], "messages": messages}]))
