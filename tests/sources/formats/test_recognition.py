"""Every format claims its own files in the shared data, and no other format's."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretrace.core import plugins
from foretrace.rows.head import read_head
from foretrace.sources.recognizing import ask_sources
from sources.session_files import read_file

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
KNOWN = {*OWN.values(), *SESSIONS, "atropos_groups", "hub_session", "inspect_ai", "openhands_v0"}
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


def test_folders_of_a_store_are_claimed_and_no_others(shared: Path) -> None:
    folders = [p for p in sorted((shared / "data").rglob("*")) if p.is_dir()]
    claimed = {p.name for p in folders if "opencode" in claims(p)}
    assert claimed == {"storage_legacy", "storage_v2"}
    assert not any(claims(p) & ({*SESSIONS} - {"opencode"}) for p in folders)


def test_every_session_of_the_shared_data_ends_as_a_trace_or_with_a_reason(shared: Path) -> None:
    data = shared / "data"
    inputs = {p: owner(str(p.relative_to(data))) for p in sorted(data.rglob("*")) if p.is_file()}
    inputs |= dict.fromkeys(sorted((data / "sessions/opencode").iterdir()), "opencode")
    for path, source in inputs.items():
        if source not in SESSIONS or path.name.endswith(".meta.json"):
            continue
        found = read_file(RECOGNIZERS[source], path)
        assert found.traces or found.drops, path
        assert all(d.reason == "no_agent_turn" and "record types:" in d.detail for d in found.drops), path
        assert not any(not t.messages or not any(m.role == "assistant" for m in t.messages) for t in found.traces)


@pytest.mark.parametrize(
    "text", ["", "\n", "{}", "[]", "null", "{", "\x00\x01", "[" * 5000, '{"type": 5}', "SQLite format 3"]
)
def test_nothing_claims_what_says_nothing(tmp_path: Path, text: str) -> None:
    for name in ("x.jsonl", "x.json", "opencode.txt"):
        path = tmp_path / name
        path.write_text(text)
        assert not claims(path) & {*SESSIONS}
