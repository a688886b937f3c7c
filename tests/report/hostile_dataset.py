"""A small dataset with markup in its prompts and targets, and predictions for its eval rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

import foretrace
from dataset.little import corpus, rows
from foretrace.core.store import write_traces
from report.hostile_traces import MARKUP

replace = msgspec.structs.replace


def build_hostile_dataset(folder: Path) -> Path:
    """Traces with markup in each message, built."""
    traces = [
        replace(trace, messages=tuple(replace(m, content=f"{m.content}\n{MARKUP}") for m in trace.messages))
        for trace in corpus(24)
    ]
    write_traces(traces, folder / "traces")
    foretrace.build(folder / "traces", out=folder / "dataset", split=(0.4, 0.0, 0.6), statistical_gates=False)
    return folder / "dataset"


def write_guesses(dataset: Path, path: Path, *, wrong: int) -> list[dict[str, Any]]:
    """Predictions for all eval rows but the last; every `wrong`-th names another action. One has a lone surrogate."""
    gold = list(rows(dataset, "eval"))
    lines: list[dict[str, Any]] = []
    for number, row in enumerate(gold[:-1]):
        value = json.loads(row["completion"][0]["content"])
        if number % wrong == 0:
            value = {"action": "BLOCKED", "tool": MARKUP, "arguments": {"x": "\ud800", "__proto__": MARKUP}}
        lines.append({"key": row["key"], "step": row["step"], **value, "confidence": number % 10 / 10})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return gold
