"""The Agent Data Protocol's standard rows."""

from __future__ import annotations

from pathlib import Path

from sources.formats.reading import SHARED, needs_shared, read, read_one, write_document


@needs_shared
def test_texts_that_were_encoded_twice_are_read_once() -> None:
    old = read_one("adp", SHARED / "formats" / "adp_std" / "toucan_sample_std_v1.json")[0]
    new = read_one("adp", SHARED / "formats" / "adp_std" / "toucan_std_1.5.0.jsonl")[0]
    calls = [[c for m in t.messages for c in m.tool_calls] for t in (old, new)]
    assert calls[0][0].arguments == calls[1][0].arguments
    assert old.tools[0].name == "web_search_exa" and old.messages[0].role == "system"


def test_code_pages_images_and_drift(tmp_path: Path) -> None:
    content = [
        {"class_": "code_action", "language": "bash", "content": "ls", "description": ""},
        {"class_": "web_observation", "url": "http://x", "axtree": "[1] link", "html": "<a>",
         "image_observation": {"content": "a.png"}},
        {"class_": "api_action", "function": "say", "kwargs": {"text": '"quoted"', "to": "me"}},
        {"class_": "thought_action"},
    ]  # fmt: skip
    path = write_document(tmp_path / "rows.json", [{"id": "r", "content": content}, {"id": "q", "content": []}, 3])
    (trace,), drops, account = read("adp", path)
    called, seen, said = trace.messages
    assert said.tool_calls[0].arguments == r'{"text": "\"quoted\"", "to": "me"}', "one quoted text is meant so"
    assert called.tool_calls[0].arguments == '{"command": "ls"}' and seen.content == "http://x\n\n[1] link"
    assert seen.parts[0].ref == "a.png" and account.unknown == {"thought_action": 1}
    assert [d.reason for d in drops] == ["no_agent_turn", "not_an_object"]
