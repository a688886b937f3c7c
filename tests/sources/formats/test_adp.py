"""The Agent Data Protocol's standard rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sources.formats.reading import (
    SHARED,
    needs_shared,
    outline,
    read,
    read_one,
    write_document,
    write_lines,
)


@needs_shared
def test_texts_that_were_encoded_twice_are_read_once() -> None:
    old = read_one("adp", SHARED / "formats" / "adp_std" / "toucan_sample_std_v1.json")[0]
    new = read_one("adp", SHARED / "formats" / "adp_std" / "toucan_std_1.5.0.jsonl")[0]
    calls = [[c for m in t.messages for c in m.tool_calls] for t in (old, new)]
    assert calls[0][0].arguments == calls[1][0].arguments
    assert old.tools[0].name == "web_search_exa" and old.messages[0].role == "system"


def text(content: str, source: str = "user", **more: Any) -> dict[str, Any]:
    return {"class_": "text_observation", "content": content, "source": source, "name": None, **more}


def api(**kwargs: Any) -> dict[str, Any]:
    return {"class_": "api_action", "function": "f", "kwargs": kwargs, "description": None}


SAY = {"class_": "message_action", "content": "done", "description": "why"}


def test_what_follows_a_call_is_its_result(tmp_path: Path) -> None:
    content = [text("go"), api(a=1), api(a=2), text("one"), text("two"), SAY, text("wrong"), SAY]
    path = write_lines(tmp_path / "rows.jsonl", [{"id": "r", "content": content, "details": {"instance_id": "o__r-1"}}])
    trace, _ = read_one("adp", path)
    assert outline(trace) == [
        ("user", "user", "go"), ("assistant", "model", "f"), ("assistant", "model", "f"),
        ("tool", "environment", "one"), ("tool", "environment", "two"), ("assistant", "model", "why\n\ndone"),
        ("user", "user", "wrong"), ("assistant", "model", "why\n\ndone"),
    ]  # fmt: skip
    assert [m.tool_call_ids for m in trace.messages[3:5]] == [("call_1",), ("call_2",)]
    assert (trace.task.id, trace.task.group) == ("o__r-1", "o/r")


def test_rows_of_two_sets_may_have_one_id(tmp_path: Path) -> None:
    rows = [{"id": "0", "content": [text(asked), SAY]} for asked in ("go", "stop")]
    traces, _, _ = read("adp", write_lines(tmp_path / "rows.jsonl", rows))
    assert len({t.key for t in traces}) == len({t.task.id for t in traces}) == 2
    again = write_lines(tmp_path / "again.jsonl", [{**rows[0], "schema_version": "1.5.0"}])
    assert read_one("adp", again)[0].key == traces[0].key


def test_quotes_of_some_arguments_belong_to_them(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "rows.jsonl", [{"id": "r", "content": [api(a='"exact"', b="plain")]}])
    assert read_one("adp", path)[0].messages[0].tool_calls[0].arguments == '{"a": "\\"exact\\"", "b": "plain"}'


def test_code_pages_images_and_drift(tmp_path: Path) -> None:
    content = [
        {"class_": "code_action", "language": "bash", "content": "ls", "description": ""},
        {"class_": "web_observation", "url": "http://x", "axtree": "[1] link", "html": "<a>",
         "image_observation": {"content": "a.png"}},
        {"class_": "thought_action"},
    ]  # fmt: skip
    path = write_document(tmp_path / "rows.json", [{"id": "r", "content": content}, {"id": "q", "content": []}, 3])
    (trace,), drops, account = read("adp", path)
    called, seen = trace.messages
    assert called.tool_calls[0].arguments == '{"command": "ls"}' and seen.content == "http://x\n\n[1] link"
    assert seen.parts[0].ref == "a.png" and account.unknown == {"thought_action": 1}
    assert [d.reason for d in drops] == ["no_agent_turn", "not_an_object"]
