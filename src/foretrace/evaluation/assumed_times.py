"""Times for traces that have none: seconds of a reply, and of a call by the action type of its step.

They fill only what is unknown, and every report that uses them says so and counts the steps.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from foretrace.actions.taxonomy import ActionType, StepLabel
from foretrace.core.errors import Setting, UsageError
from foretrace.evaluation.step_times import LONGEST_S, StepTimes

_FILLED = ("no_model_time", "no_tool_time")
"""Reasons for unknown times that an assumption mends; a clock that runs backwards stays unknown."""


class AssumedTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds that are assumed where a trace does not say."""

    source: str
    """Where the figures come from."""
    model: float
    """Seconds of a reply."""
    tool: float
    """Seconds of a call whose action type is not in `actions`."""
    actions: dict[str, float] = {}
    """Seconds of a call by the action type of its step."""


SHIPPED = {
    "tracelab": AssumedTimes(
        source="medians of 357,161 model calls and 432,510 tool calls of Claude Code and Codex (TraceLab, "
        "arXiv:2606.30560)",
        model=5.7,
        tool=0.3,
    )
}
"""By the name that `--assume-times` takes."""


def read_assumed_times(given: str | Path | Mapping[str, float] | AssumedTimes) -> AssumedTimes:
    """Read what a user gives: a shipped name, `model=6,tool=0.5,verifier=12`, or a table or TOML file with these keys.

    Raises:
        UsageError: it is none of these, a key is unknown, `model` or `tool` is missing, or a time cannot be.
    """
    if isinstance(given, AssumedTimes):
        return given
    if isinstance(given, Mapping):
        return _make_times(",".join(f"{name}={value}" for name, value in given.items()), given, "given")
    text = str(given)
    if text in SHIPPED:
        return SHIPPED[text]
    if "=" in text:
        pairs = (part.partition("=") for part in text.split(","))
        return _make_times(text, {name.strip(): value.strip() for name, _, value in pairs}, "given")
    try:
        values = tomllib.loads(Path(text).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        why = error.strerror.lower() if isinstance(error, OSError) and error.strerror else error
        give = f"give {', '.join(SHIPPED)}, seconds such as model=6,tool=0.5, or a TOML file with such keys"
        raise UsageError(Setting("assume_times", text), f": cannot be read ({why}); {give}") from None
    return _make_times(text, values, Path(text).name)


def _make_times(text: str, values: Mapping[str, Any], source: str) -> AssumedTimes:
    known = ["model", "tool", *map(str, ActionType)]
    seconds: dict[str, float] = {}
    for name, value in values.items():
        if name not in known:
            raise UsageError(Setting("assume_times", text), f": unknown name {name!r}; take {', '.join(known)}")
        try:
            seconds[name] = float(value)
        except (TypeError, ValueError):
            seconds[name] = -1.0
        if not 0 <= seconds[name] <= LONGEST_S:
            raise UsageError(Setting("assume_times", text), f": {name} is not between 0 and {LONGEST_S:,.0f} seconds")
    if missing := [name for name in ("model", "tool") if name not in seconds]:
        raise UsageError(Setting("assume_times", text), f": give {' and '.join(missing)} too, in seconds")
    return AssumedTimes(source=source, model=seconds.pop("model"), tool=seconds.pop("tool"), actions=seconds)


def fill_times(
    steps: Sequence[StepTimes], labels: Mapping[int, StepLabel], assumed: AssumedTimes
) -> tuple[list[StepTimes], int]:
    """Steps with assumed times where theirs are not known, and how many these are."""
    filled = [_fill_step(step, labels, assumed) if step.unknown in _FILLED else step for step in steps]
    return filled, sum(one is not other for one, other in zip(steps, filled, strict=True))


def _fill_step(step: StepTimes, labels: Mapping[int, StepLabel], assumed: AssumedTimes) -> StepTimes:
    action = next((str(labels[index].action) for index in step.indexes if labels[index].action is not None), "")
    seconds = assumed.actions.get(action, assumed.tool)
    calls = tuple(msgspec.structs.replace(call, tool_s=seconds) if call.tool_s is None else call for call in step.calls)
    return msgspec.structs.replace(
        step,
        model_s=assumed.model if step.model_s is None else step.model_s,
        tool_s=max((call.tool_s or 0.0 for call in calls), default=0.0) if step.tool_s is None else step.tool_s,
        calls=calls,
        unknown=None,
        overlap="longest" if step.tool_s is None and len(calls) > 1 else step.overlap,
    )
