"""The manifest of effects: what wrote once is never read-only; labels, ceiling, replay and datasets agree with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.any_traces import traces as any_traces
from evaluation.effect_checks import check_agreement
from evaluation.timed import DEPLOY, READ, RUN, WRITE, Timed, make, make_trace
from foretrace.actions.label_steps import label_trace
from foretrace.actions.taxonomy import Effect
from foretrace.core.store import read_traces
from foretrace.core.trace import Message, ToolCall, Trace
from foretrace.evaluation.effects_manifest import EffectsManifest, classify_evidence, collect_effects


def collect(*calls: tuple[str, dict[str, Any]]) -> EffectsManifest:
    return collect_effects([make_trace([Timed(call=call) for call in calls])])


def bash(command: str) -> tuple[str, dict[str, Any]]:
    return "bash", {"command": command}


def find_classes(manifest: EffectsManifest) -> dict[str, str]:
    return {
        " ".join([tool.tool, *each.pattern.values()]): each.effect_class
        for tool in manifest.tools
        for each in tool.patterns
    }


def test_each_class() -> None:
    create = ("str_replace_editor", {"command": "create", "path": "a", "file_text": "x"})
    edit = ("str_replace_editor", {"command": "str_replace", "path": "a", "old_str": "x", "new_str": "y"})
    view = ("str_replace_editor", {"command": "view", "path": "a"})
    manifest = collect(READ, WRITE, DEPLOY, RUN, create, edit, view, ("cancel_order", {}), ("submit", {}))
    assert find_classes(manifest) == {
        "read_file": "read_only",
        "write_file": "idempotent",
        "deploy_everything": "unsafe",
        "bash pytest -q": "unsafe",
        "str_replace_editor create": "idempotent",
        "str_replace_editor str_replace": "unsafe",
        "str_replace_editor view": "read_only",
        "cancel_order": "unsafe",
        "submit": "unsafe",
    }


def test_what_wrote_once_is_not_read_only() -> None:
    query = ("query_db", {"query": "SELECT 1"})
    assert find_classes(collect(bash("grep -n a f"), bash("grep -n b f"))) == {"bash grep -n": "read_only"}
    assert collect(bash("grep -n a f")).tools[0].effect_class == "unknown", "other lines of a shell may do anything"
    once = collect(bash("awk '{print}' f"), bash("awk -v x=1 '{print > \"g\"}' f"), bash("awk 'x' f > g"))
    assert set(find_classes(once).values()) <= {"unsafe", "unknown"}
    assert find_classes(collect(query, ("query_db", {"query": "select 2"}))) == {"query_db SELECT": "read_only"}
    with_write = collect(query, ("query_db", {"query": "INSERT INTO t VALUES (1)"}))
    assert find_classes(with_write) == {"query_db SELECT": "read_only", "query_db INSERT": "unsafe"}
    assert with_write.tools[0].effect_class == "unsafe"


@pytest.mark.parametrize(
    ("effects", "whole", "expected"),
    [
        ({Effect.PURE_READ: 5}, 0, "read_only"), ({Effect.PURE_READ: 5, Effect.LOCAL_WRITE: 1}, 0, "unsafe"),
        ({Effect.PURE_READ: 5, Effect.LOCAL_WRITE: 1}, 1, "idempotent"),
        ({Effect.PURE_READ: 5, Effect.UNKNOWN: 1}, 0, "unknown"),
        ({Effect.UNKNOWN: 1, Effect.LOCAL_WRITE: 1}, 1, "unknown"),
        ({Effect.UNKNOWN: 1, Effect.EXTERNAL_WRITE: 1}, 0, "unsafe"), ({Effect.SANDBOX_EXEC: 1}, 0, "unsafe"),
        ({Effect.TERMINAL: 1}, 0, "unsafe"), ({}, 0, "unknown"),
    ],
)  # fmt: skip
def test_the_worst_effect_decides(effects: dict[Effect, int], whole: int, expected: str) -> None:
    assert classify_evidence(effects, whole) == expected


def test_calls_that_were_never_run_count_nowhere() -> None:
    calls = (ToolCall(name="read_file", error="cut off"), ToolCall(name=""), ToolCall(name="read_file"))
    shown = Message(role="assistant", author="demo", tool_calls=(ToolCall(name="write_file"),))
    manifest = collect_effects([make([shown, Message(role="assistant", author="model", tool_calls=calls)])])
    assert (manifest.calls, manifest.unread_calls, [tool.tool for tool in manifest.tools]) == (3, 2, ["read_file"])


@pytest.mark.slow
@given(st.lists(any_traces, max_size=4, unique_by=lambda trace: trace.key))
def test_laws_of_the_manifest(traces: list[Trace]) -> None:
    manifest = collect_effects(traces)
    assert manifest.calls - manifest.unread_calls == sum(tool.calls for tool in manifest.tools)
    for tool in manifest.tools:
        assert tool.calls == sum(each.calls for each in tool.patterns) == sum(tool.effects.values())
        for each in (tool, *tool.patterns):
            assert each.annotations.read_only_hint == (each.effect_class == "read_only")
            assert each.effect_class != "read_only" or set(each.effects) == {"pure_read"}
    read_only = {tool.tool for tool in manifest.tools if tool.annotations.read_only_hint}
    for trace in traces:
        for label in label_trace(trace):
            message = trace.messages[label.index]
            if message.author == "model" and label.effect in (Effect.LOCAL_WRITE, Effect.EXTERNAL_WRITE):
                assert not {call.name for call in message.tool_calls if not call.error} <= read_only or not any(
                    call.name and not call.error for call in message.tool_calls
                )
    assert msgspec.json.encode(collect_effects(traces[::-1])) == msgspec.json.encode(manifest)


@pytest.mark.parametrize(
    "command",
    [
        "curl -s https://x.org | python3 -c 'import sys, json; print(json.load(sys.stdin))'", "duckdb -c 'SELECT 1'",
        "find . -name a | xargs grep b", "find . -exec grep b {} ;", "bash -c ls", "awk '{print $1}' f",
        "python -c 'print(open(1).read())'", " && ".join(["ls"] * 9), "grep a f | head",
    ],
)  # fmt: skip
def test_all_agree_on_a_command(command: str) -> None:
    check_agreement(make_trace([Timed(call=("bash", {"command": command}))]))


@pytest.mark.parametrize("code", ["print(open('f').read())", "!ls", "print(search('x'))"])
def test_all_agree_on_code(code: str) -> None:
    check_agreement(make_trace([Timed(call=("python", {"code": code}))]))


def test_all_agree_on_the_samples(sample_traces: Path, sample_dataset: Path) -> None:
    effects: dict[tuple[str, int], str] = {}
    for trace in read_traces(sample_traces):
        check_agreement(trace)
        effects.update({(trace.key, label.index): str(label.effect) for label in label_trace(trace)})
    rows = [
        row
        for config in ("eval", "proposer")
        for file in sorted((sample_dataset / config).glob("*.parquet"))
        for row in pq.read_table(file, columns=["key", "step", "effect"]).to_pylist()
    ]
    assert rows
    assert all(row["effect"] == effects[row["key"], row["step"]] for row in rows)
