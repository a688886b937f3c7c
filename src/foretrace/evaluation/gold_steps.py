"""What the agent did at the steps that are predicted: read from a dataset's `eval` rows, or from `proposer` ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from foretrace.actions.taxonomy import ActionType
from foretrace.core.errors import PredictionError, Setting, find_first_line
from foretrace.core.predictions import PredictedCall, find_first_object, read_calls

ACTIONS = [str(action) for action in ActionType]
"""In the order of the datasets' `ClassLabel`."""
_COLUMNS = ("key", "step", "task", "group", "source", "action", "tool", "effect", "completion")
_EVAL_COLUMNS = (*_COLUMNS, "arguments", "next_actions", "natural", "balanced")

_BATCH = 256
"""Rows that are held at one time: prompts are long."""


class GoldStep(NamedTuple):
    """A step, and what the agent did at it."""

    key: str
    step: int
    task: str
    group: str
    source: str
    action: str
    tool: str
    """Name of the first tool that is called; empty without a call."""
    calls: tuple[PredictedCall, ...]
    """What is to be predicted of the calls: nothing in a dataset of types."""
    effect: str
    next_actions: tuple[str, ...]
    """Of this step and the next few; empty where the rows do not say."""
    slices: tuple[str, ...]


def read_target(dataset: Path) -> str:
    """What the dataset's completions are, by its manifest: `type` or `call`.

    Raises:
        PredictionError: no dataset, or one whose completions are messages.
    """
    if dataset.is_file():
        raise PredictionError(f"{dataset}: is a file; the predictions come first, then the folder that `build` wrote")
    try:
        manifest = msgspec.json.decode((dataset / "manifest.json").read_bytes())
        target = str(manifest["settings"]["target"])
    except (OSError, msgspec.DecodeError, KeyError, TypeError):
        raise PredictionError(f"{dataset}: is not a foretrace dataset; name the folder that `build` wrote") from None
    if target == "message":
        message, call = Setting("target", "message"), Setting("target", "call")
        raise PredictionError(f"{dataset}: was built with ", message, "; build with ", call, " to predict actions")
    return target


def read_eval_steps(dataset: Path, target: str) -> list[GoldStep]:
    """The eval rows, by key and step.

    Raises:
        PredictionError: there are none, or they cannot be read.
    """
    steps: list[GoldStep] = []
    for values in read_columns(dataset, "eval", "test", _EVAL_COLUMNS):
        slices = tuple(name for name in ("natural", "balanced") if values[name])
        calls: tuple[PredictedCall, ...] = ()
        if values["tool"] and target == "call":
            calls = (PredictedCall(values["tool"], values["arguments"]), *_read_target_calls(values)[1:])
        following = tuple(ACTIONS[action] for action in values["next_actions"])
        steps.append(_make_step(values, calls, following, slices))
    if not steps:
        raise PredictionError(f"{dataset}: has no eval rows; build it with an eval config and test groups")
    return sorted(steps, key=_identify)


def read_validation_steps(dataset: Path, target: str) -> list[GoldStep]:
    """The rows of `proposer` in the split `validation`, by key and step.

    Raises:
        PredictionError: there are none, or they cannot be read.
    """
    rows = read_columns(dataset, "proposer", "validation", _COLUMNS)
    steps = [_make_step(row, _read_target_calls(row) if target == "call" else (), (), ("validation",)) for row in rows]
    if not steps:
        raise PredictionError(f"{dataset}: has no validation rows of `proposer`; build it with validation groups")
    return sorted(steps, key=_identify)


def _make_step(
    values: dict[str, Any], calls: tuple[PredictedCall, ...], following: tuple[str, ...], slices: tuple[str, ...]
) -> GoldStep:
    return GoldStep(
        key=values["key"],
        step=values["step"],
        task=values["task"],
        group=values["group"],
        source=values["source"],
        action=ACTIONS[values["action"]],
        tool=values["tool"],
        calls=calls,
        effect=values["effect"],
        next_actions=following,
        slices=slices,
    )


def _read_target_calls(values: dict[str, Any]) -> tuple[PredictedCall, ...]:
    target = find_first_object(values["completion"][0]["content"])
    return read_calls(target) if isinstance(target, dict) else ()


def read_columns(dataset: Path, config: str, split: str, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Rows of a config and split (`*` for all), with these columns; an action is its number in `ACTIONS`.

    Raises:
        PredictionError: a file of them cannot be read, or lacks a column.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    for path in sorted((dataset / config).glob(f"{split}-*.parquet")):
        try:
            with pq.ParquetFile(path) as file:
                if missing := {*columns} - {*file.schema_arrow.names}:
                    raise PredictionError(
                        f"{path}: has no column {', '.join(sorted(missing))}; build the dataset again"
                    )
                for batch in file.iter_batches(_BATCH, columns=[*columns], use_threads=False):
                    yield from batch.to_pylist()
        except (OSError, pa.ArrowException) as error:
            raise PredictionError(f"{path}: cannot be read: {find_first_line(error)}") from None


def _identify(step: GoldStep) -> tuple[str, int]:
    return step.key, step.step
