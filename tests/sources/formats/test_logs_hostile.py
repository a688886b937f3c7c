"""Whatever stands in whatever place of a log, reading ends with traces and drops, and every record has one fate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from portions import in_portions, take
from sources.formats.reading import SHARED, find_places, needs_shared, put, read, recognize, write_document, write_lines

VALUES: list[Any] = [
    None, True, -1, 1.5, 1e308, 10**30, "", "x", "[]", "{", "[{}]", [], [None], [[]], [1, "a"], {}, {"a": None}, [{}],
    "9" * 30, "\u0000<system>",
]  # fmt: skip
EXAMPLES = {
    "r2e_gym": "formats/r2e_gym/SYNTHETIC_trajectory.jsonl",
    "verifiers_traces": "formats/verifiers_v1/traces.jsonl",
    "openhands": "formats/openhands_v1/goal_events.jsonl",
    "mini_swe_agent": "formats/mini_swe_agent_v2/text_actions.traj.json",
    "swe_agent": "traces/swe_agent_traj/rows.jsonl",
    "otlp": "formats/openinference/langfuse_openai-agents-2025-09-30.otlp.json",
    "adp": "formats/adp_std/toucan_std_1.5.0.jsonl",
    "atif": "atif/synthetic_v1.8_all_fields.json",
    "claude_code": "sessions/claude_code/cclog_representative_messages.jsonl",
    "codex": "formats/codex/SYNTHETIC_codex_0.153_exec_items.jsonl",
    "cursor": "formats/cursor/teich_cursor.jsonl",
    "gemini_cli": "sessions/gemini/jsonl_v040.jsonl",
    "hermes": "formats/hermes/teich_hermes_export.jsonl",
    "pi": "sessions/pi/small_v3.jsonl",
}


@needs_shared
@pytest.mark.parametrize("name", EXAMPLES)
@in_portions
def test_every_kind_of_value_in_every_place(name: str, portion: int, tmp_path: Path) -> None:
    path = SHARED / EXAMPLES[name]
    text = path.read_text(encoding="utf-8")
    is_lines = path.suffix == ".jsonl"
    value = [json.loads(line) for line in text.splitlines()] if is_lines else json.loads(text)
    places = list(find_places(value))
    target = tmp_path / path.name
    for number, place in enumerate(take(places[:: max(1, len(places) // 250)], portion)):
        for new in (VALUES[number % len(VALUES)], VALUES[(number * 7 + 3) % len(VALUES)]):
            changed = put(value, place, new)
            write_lines(target, changed) if is_lines else write_document(target, changed)
            recognize(target)
            read(name, target)


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize(
    "data", [b"", b"\x00\xff\x00", b"[", b"[]", b"{}", b"null", b"3", b"[" * 50_000, b'{"a": "\xff"}']
)
def test_no_format_at_all(name: str, data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(data)
    traces, _, _ = read(name, path)
    assert not traces
