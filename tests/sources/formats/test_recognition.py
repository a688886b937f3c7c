"""Every format claims its own files in the shared data, and no other format's."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretrace.core import plugins
from foretrace.rows.head import read_head
from foretrace.sources.recognizing import ask_sources
from sources.formats.reading import count, read

OWN = {
    "formats/claude_code": "claude_code",
    "sessions/claude_code": "claude_code",
    "formats/codex": "codex",
    "sessions/codex": "codex",
    "formats/cursor": "cursor",
    "formats/hermes": "hermes",
    "sessions/gemini": "gemini_cli",
    "sessions/pi": "pi",
    "atif": "atif",
    "formats/adp_std": "adp",
    "formats/mini_swe_agent_v2": "mini_swe_agent",
    "traces/swe_agent_traj": "swe_agent",
    "formats/openhands_v1": "openhands",
    "formats/r2e_gym": "r2e_gym",
    "formats/verifiers_v1": "verifiers_traces",
    "formats/openinference": "otlp",
    "formats/otlp_genai": "otlp",
}
SESSIONS = ("claude_code", "codex", "cursor", "gemini_cli", "hermes", "opencode", "pi")
KNOWN = {*OWN.values(), *SESSIONS, "hub_session", "inspect_ai"}
COUNTS = {
    "formats/adp_std/codeactinstruct_sample_std.json": (36, [(4, 3, 3), (5, 3, 3), (3, 2, 2), (3, 1, 1), (3, 2, 2)]),
    "formats/adp_std/toucan_sample_std_v1.json": (6, [(3, 1, 1)]),
    "formats/adp_std/toucan_std_1.5.0.jsonl": (4, [(2, 1, 1)]),
    "atif/nat_exmp01_atif.json": (5, [(1, 0, 0)]),
    "atif/nat_exmp02_atif.json": (3, [(2, 1, 1)]),
    "atif/nat_exmp04_atif.json": (3, [(2, 1, 1)]),
    "atif/nat_exmp06_atif.json": (7, [(3, 0, 0)]),
    "atif/synthetic_v1.8_all_fields.json": (7, [(2, 2, 2)]),
    "formats/claude_code/teich_claude_code.jsonl": (35, [(12, 13, 13)]),
    "sessions/claude_code/0a1b2c3d-4e5f-4061-8071-2a3b4c5d6e7f.jsonl": (8, [(1, 1, 0), (1, 1, 1)]),
    "sessions/claude_code/cclog_edge_cases.jsonl": (19, [(4, 3, 1)]),
    "sessions/claude_code/cclog_representative_messages.jsonl": (12, [(5, 2, 2)]),
    "sessions/claude_code/cclog_todowrite.jsonl": (12, [(6, 3, 3)]),
    "sessions/claude_code/large.jsonl": (10, [(5, 1, 1)]),
    "sessions/claude_code/schema_drift.jsonl": (10, [(2, 1, 1)]),
    "sessions/claude_code/small_many_types.jsonl": (89, [(1, 1, 1), (1, 1, 2)]),
    "formats/codex/SYNTHETIC_codex_0.153_exec_items.jsonl": (21, [(3, 2, 2)]),
    "formats/codex/teich_codex_0.130.jsonl": (95, [(14, 18, 18)]),
    "formats/codex/xskill_codex_0.148_paginated.jsonl": (12, [(1, 0, 0)]),
    "sessions/codex/agentsview_function_calls.jsonl": (4, [(1, 2, 0)]),
    "sessions/codex/codex_050_legacy.jsonl": (5, []),
    "sessions/codex/codex_051_usage.jsonl": (3, []),
    "sessions/codex/codex_052_raw.jsonl": (6, []),
    "sessions/codex/codex_053_rate_limit.jsonl": (5, []),
    "sessions/codex/large.jsonl": (20, [(7, 1, 1)]),
    "sessions/codex/schema_drift.jsonl": (5, [(2, 1, 1)]),
    "sessions/codex/small_v0146_many_types.jsonl": (118, [(8, 8, 7)]),
    "formats/cursor/teich_cursor.jsonl": (7, [(2, 1, 1)]),
    "sessions/gemini/agentsview_standard_session.json": (5, [(2, 0, 0)]),
    "sessions/gemini/jsonl_v040.jsonl": (5, [(2, 1, 1)]),
    "sessions/gemini/large.json": (8, [(4, 2, 2)]),
    "sessions/gemini/schema_drift.json": (3, [(1, 0, 0)]),
    "sessions/gemini/small.json": (3, [(1, 0, 0)]),
    "formats/hermes/teich_hermes_export.jsonl": (1, [(5, 1, 1)]),
    "formats/otlp_genai/akmon_fixture_a.otlp.json": (2, [(1, 1, 1)]),
    "formats/otlp_genai/langfuse_pydantic-ai-tools-2025-12-04.otlp.json": (12, [(3, 3, 3), (1, 1, 0)]),
    "formats/openinference/langfuse_beeai-2025-08-01.otlp.json": (29, [(3, 0, 0)]),
    "formats/openinference/langfuse_google-adk-2025-08-28.otlp.json": (5, [(2, 1, 1)]),
    "formats/openinference/langfuse_openai-agents-2025-09-30.otlp.json": (5, [(2, 1, 1)]),
}
"""Records of a file; turns, calls and results of each of its traces, as others count them."""
RECOGNIZERS = {
    name: plugin()
    for name in plugins.plugin_names("source")
    if hasattr(plugin := plugins.load_plugin("source", name), "recognize")
}


def claims(path: Path) -> set[str]:
    head = read_head(path)
    return set(ask_sources(head, [*RECOGNIZERS.values()]))


def owner(name: str) -> str | None:
    return next((source for folder, source in OWN.items() if name.startswith(folder + "/")), None)


def test_each_file_is_claimed_by_its_own_format_alone(shared: Path) -> None:
    data = shared / "data"
    files = sorted(p for p in data.rglob("*") if p.is_file())
    assert len(files) > 80
    for path in files:
        name = str(path.relative_to(data))
        expected = owner(name)
        if expected is not None and not name.endswith((".meta.json", ".md")):
            assert claims(path) == {expected}, name
        else:
            assert not claims(path) & KNOWN, name


@pytest.mark.parametrize("name", COUNTS)
def test_real_files_have_the_counts_that_others_found(shared: Path, name: str) -> None:
    records, counts = COUNTS[name]
    source = owner(name)
    assert source is not None
    traces, drops, account = read(source, shared / "data" / name)
    assert account.records == records and {drop.reason for drop in drops} <= {"no_agent_turn"}
    assert [tuple(count(trace).values()) for trace in traces] == counts
