"""Messages as Letta lists them, and many conversations in one record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from foretrace.core.trace import Trace
from foretrace.registry import open_inputs
from foretrace.sources.importing import import_inputs
from sources.formats.reading import read_one, recognize, write_document, write_lines

CALL = {"name": "look", "arguments": '{"q": 1}', "tool_call_id": "c1"}
LETTA: list[dict[str, Any]] = [
    {"message_type": "system_message", "content": "Rules."},
    {"message_type": "user_message", "content": "Find it."},
    {"message_type": "reasoning_message", "reasoning": "Look.", "source": "reasoner_model"},
    {"message_type": "tool_call_message", "tool_call": CALL},
    {"message_type": "tool_return_message", "tool_return": "here", "status": "error", "tool_call_id": "c1"},
    {"message_type": "hidden_reasoning_message", "state": "redacted"},
    {"message_type": "assistant_message", "content": "Found."},
]
LETTA = [{"id": f"message-{n}", "date": f"2026-01-01T00:00:0{n}+00:00", **each} for n, each in enumerate(LETTA)]


def outline(trace: Trace) -> list[tuple[str, str]]:
    return [(m.role, m.content or "+".join(call.name for call in m.tool_calls)) for m in trace.messages]


FOUND = [("system", "Rules."), ("user", "Find it."), ("assistant", "look"), ("tool", "here"), ("assistant", "Found.")]


def test_letta(tmp_path: Path) -> None:
    path = write_document(tmp_path / "letta.json", LETTA)
    assert not recognize(path)
    trace, account = read_one("message_list", path)
    assert outline(trace) == FOUND and account.used == len(LETTA)
    assert trace.messages[2].reasoning == "Look." and trace.messages[3].is_error is True
    assert json.loads(trace.messages[2].tool_calls[0].arguments) == {"q": 1}
    newest_first, _ = read_one("message_list", write_lines(tmp_path / "back.jsonl", LETTA[::-1]))
    assert outline(newest_first) == FOUND


def test_a_run_of_many_conversations_on_one_line(tmp_path: Path) -> None:
    talk = [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Yes."}]
    runs = [{"id": f"s{n}", "messages": talk} for n in range(3)]
    path = write_lines(tmp_path / "run.json", [{"timestamp": "t", "simulations": runs}])
    opened = open_inputs("auto", path, hub={}, options={})
    assert import_inputs(opened.groups, tmp_path / "out").traces == 3
