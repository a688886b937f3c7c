"""Whole attempts as chat templates and the `datasets` library take them."""

from __future__ import annotations

from pathlib import Path

import datasets
import pytest

from dataset.little import calls, rows, runs, says, seen, trace, user
from foretrace.api.datasets import build
from foretrace.core.store import write_traces
from foretrace.core.trace import Message, ToolCall, Trace


def built(folder: Path, one: Trace) -> None:
    write_traces([one], folder / "t")
    build(folder / "t", out=folder / "d", statistical_gates=False)


def test_trajectory_results_name_their_calls(tmp_path: Path) -> None:
    """Calls without ids get some, and each result names the call that it answers, and its tool."""
    two = Message(
        role="assistant",
        author="model",
        tool_calls=(
            ToolCall(name="bash", arguments='{"command":"ls"}'),
            ToolCall(name="bash", arguments='{"command":"id"}'),
        ),
    )
    built(tmp_path, trace("a", user("x"), two, seen("1"), seen("2"), runs("pwd"), seen("3"), says("end")))
    messages = next(rows(tmp_path / "d", "trajectories"))["messages"]
    ids = [c["id"] for m in messages for c in m.get("tool_calls", ())]
    assert len(set(ids)) == 3 and all(ids)
    assert [(m["tool_call_id"], m["name"]) for m in messages if m["role"] == "tool"] == [(own, "bash") for own in ids]
    assert [t["function"]["name"] for t in next(rows(tmp_path / "d", "trajectories"))["tools"]] == ["bash"]


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ('{"n": 18446744073709551615, "m": -9223372036854775808}', {"n": 2**64 - 1, "m": -(2**63)}),
        ('{"n": [18446744073709551616, -9223372036854775809]}', {"n": [str(2**64), str(-(2**63) - 1)]}),
        ("ls -la", "ls -la"),
        ('["a", "b"]', ["a", "b"]),
    ],
)
def test_datasets_reads_any_arguments(tmp_path: Path, arguments: str, shown: object) -> None:
    """Its reader takes 64 bits at most: a longer number is written as text."""
    built(tmp_path, trace("a", user("x"), calls("go", arguments), seen("1"), says("end")))
    loaded = datasets.load_dataset(str(tmp_path / "d"), "trajectories", cache_dir=str(tmp_path / "cache"))
    (split,) = loaded.values()
    assert split[0]["messages"][1]["tool_calls"][0]["function"] == {"name": "go", "arguments": shown}
