"""What may run early is one decision: the labels, the manifest of effects, the ceiling, replay and datasets agree."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from evaluation.effect_checks import check_agreement
from evaluation.timed import Timed, make_trace
from foretrace.actions.label_steps import label_trace
from foretrace.core.store import read_traces


@pytest.mark.parametrize(
    "command",
    [
        "curl -s https://x.org | python3 -c 'import sys, json; print(json.load(sys.stdin))'",
        "duckdb -c 'SELECT 1'",
        "find . -name a | xargs grep b",
        "find . -exec grep b {} ;",
        "bash -c ls",
        "awk '{print $1}' f",
        "python -c 'print(open(1).read())'",
        " && ".join(["ls"] * 9),
        "grep a f | head",
    ],
)
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
