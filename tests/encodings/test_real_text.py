"""The text of every real row is rendered back byte for byte."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from foretrace.core import plugins
from foretrace.core.trace import Trace
from foretrace.encodings.fence import FENCE
from foretrace.encodings.json_calls import REACT, TOOL_CALL_JSON
from foretrace.encodings.parameter_tags import FUNCTION_XML as XML
from foretrace.rows.files import FileRows

ENCODINGS = {"swe_smith_xml": XML, "swe_smith_ticks": FENCE, "swe_smith_tool": None, "toolbench_v1": REACT}


def content_text(value: object) -> str:
    return "".join(part["text"] for part in value) if isinstance(value, list) else str(value or "")


@pytest.mark.parametrize("folder", ENCODINGS)
def test_every_message_and_call_of_every_real_row(shared: Path, folder: str) -> None:
    path = shared / "data" / "traces" / folder / "rows.jsonl"
    source = plugins.load_plugin("source", "toolbench" if folder == "toolbench_v1" else "swe_smith")()
    encoding, rows, calls = ENCODINGS[folder], 0, 0
    for raw in FileRows(path).read():
        trace = source.to_trace(raw.value, raw.at)
        assert isinstance(trace, Trace)
        turns = raw.value.get("messages", raw.value.get("conversations"))
        if isinstance(turns, str):
            turns = json.loads(turns)
        texts = turns["value"] if isinstance(turns, dict) else [content_text(m["content"]) for m in turns]
        assert [m.prefix + m.content for m in trace.messages] == texts
        assert [m.raw_index for m in trace.messages] == list(range(len(texts)))
        for message in trace.messages:
            for call in message.tool_calls:
                assert call.error is None
                calls += 1
                if encoding is not None:
                    assert call.span is not None
                    assert encoding.render(call) == message.content[slice(*call.span)]
        rows += 1
    assert rows and calls >= rows


def test_every_text_of_every_other_source_is_read(shared: Path) -> None:
    """Text of agents that write in other ways: nothing raises, and what is found is rendered back."""
    for path in sorted((shared / "data" / "traces").glob("*/rows.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            for encoding in (XML, FENCE, REACT, TOOL_CALL_JSON):
                for text in strings(json.loads(line)):
                    for call in encoding.parse(text):
                        assert call.span is not None
                        assert encoding.render(call) == text[slice(*call.span)]


def strings(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return [text for item in inner for text in strings(item)]
