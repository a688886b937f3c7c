"""Predictors whose guesses are right where a test says."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from foretrace.api.datasets import build
from foretrace.core.predictions import PredictedCall, Prediction, PredictionsFile, PredictionsHeader
from foretrace.core.store import write_traces
from foretrace.core.trace import Trace

WRONG = PredictedCall("read_file", '{"path": "never/read.py"}')
Choose = Callable[[int], bool]


def plant(
    traces: Iterable[Trace],
    right: Choose = lambda n: True,
    describe: Callable[[int], dict[str, Any]] = lambda n: {},
    *,
    wrong: PredictedCall = WRONG,
    guessed: Choose = lambda n: True,
) -> PredictionsFile:
    """One guess at every message of the model: the true calls, or a wrong one.

    Args:
        right: Whether the guess at the n-th message is right.
        describe: What else the n-th prediction says: `confidence`, `seconds`, ...
        guessed: Whether there is a guess at the n-th message.
    """
    rows: list[Prediction] = []
    number = 0
    for trace in traces:
        for index, message in enumerate(trace.messages):
            if message.role != "assistant":
                continue
            if guessed(number):
                true = tuple(PredictedCall(call.name, call.arguments) for call in message.tool_calls)
                calls = true if right(number) else (wrong,)
                row = Prediction(key=trace.key, step=index, action="tool_call", calls=calls, **describe(number))
                rows.append(row)
            number += 1
    return make_file(*rows)


def build_dataset(folder: Path, traces: Iterable[Trace], **settings: Any) -> Path:
    """A dataset of these traces in `folder`, with 80% of its groups in the test split."""
    write_traces(traces, folder / "traces")
    build(
        folder / "traces", out=folder / "dataset", **{"split": (0.2, 0.0, 0.8), "statistical_gates": False} | settings
    )
    return folder / "dataset"


def guess_at(row: dict[str, Any], *, right: bool = True, **more: Any) -> dict[str, Any]:
    """A line of predictions for a row of a dataset: what it holds, or what no row holds."""
    value = json.loads(row["completion"][0]["content"]) if right else {"action": "BLOCKED", "tool": "nothing"}
    return {"key": row["key"], "step": row["step"], "prediction": value, **more}


def write_lines(path: Path, *lines: Any) -> Path:
    path.write_text("".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines))
    return path


def make_file(*rows: Prediction, header: PredictionsHeader | None = None) -> PredictionsFile:
    return PredictionsFile(path="p.jsonl", header=header, rows=rows, problems={})
