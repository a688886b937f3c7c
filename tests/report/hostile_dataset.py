"""A small dataset with markup in its prompts and targets, and predictions for its eval rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

import foretrace
from dataset.little import corpus, rows
from evaluation.planted import plant
from evaluation.timed import Timed
from evaluation.timed import make_trace as make_timed
from foretrace.core.store import write_traces
from foretrace.evaluation.replay import replay_traces
from foretrace.evaluation.replay_report import ReplaySettings
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


def write_results(dataset: Path, guesses: Path, folder: Path) -> list[Path]:
    """What `score` says of the guesses, and what `replay` says of a planted predictor on traces with times."""
    timed = [make_timed([Timed(5.0, 2.0)] * 10, key=f"k{n}", task=f"t{n}") for n in range(4)]
    guessed = plant(timed, lambda n: n % 5 > 0, lambda n: {"confidence": (1 + n % 10) / 10, "seconds": 0.1})
    found = {"score": foretrace.score(guesses, dataset), "replay": replay_traces(timed, guessed, ReplaySettings())}
    for name, report in found.items():
        facts = {"predictions": MARKUP, **msgspec.to_builtins(report)}
        facts |= {"predictor": MARKUP}
        (folder / f"{name}.json").write_bytes(msgspec.json.encode(facts))
    return [folder / f"{name}.json" for name in found]
