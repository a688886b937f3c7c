"""How likely a step is after the two steps before it: a free predictor by which hard negatives are preferred.

It counts, over the wanted attempts of train groups alone, which action, tool and program followed which two, and is
smoothed with the shorter contexts, as the predictor `markov:2` is.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from foretrace.actions.label_steps import label_trace
from foretrace.actions.taxonomy import StepLabel
from foretrace.core.trace import Message, Trace

ORDER = 2
"""Steps that a context has at most."""
_PRIOR_WEIGHT = 2.0
"""Steps that the share in the next shorter context counts for."""
_LONGEST_PROGRAM = 24

_Context = tuple[str, ...]


class LikelyCalls(msgspec.Struct):
    """Counts of what followed what."""

    counts: dict[_Context, Counter[str]] = msgspec.field(default_factory=dict)

    def add_trace(self, trace: Trace) -> None:
        """Count the steps of a trace."""
        names = name_steps(trace.messages, label_trace(trace))
        for place, name in enumerate(names):
            for length in range(min(ORDER, place) + 1):
                self.counts.setdefault(tuple(names[place - length : place]), Counter())[name] += 1

    def merge(self, other: LikelyCalls) -> None:
        """Add what another job counted; the order of jobs does not matter."""
        for context, counts in other.counts.items():
            self.counts.setdefault(context, Counter()).update(counts)

    def measure_share(self, name: str, before: Sequence[str]) -> float:
        """Probability of a step of this name after others, oldest first; in [0, 1]."""
        share = 0.0
        for length in range(min(ORDER, len(before)) + 1):
            counts = self.counts.get(tuple(before[len(before) - length :]))
            if counts is None:
                break
            weight = _PRIOR_WEIGHT if length else 0.0
            share = (counts[name] + weight * share) / (counts.total() + weight)
        return share


def name_steps(messages: Sequence[Message], labels: Iterable[StepLabel]) -> list[str]:
    """The name of each step: its action, its first tool and the program that this runs."""
    return [name_step(messages[label.index], str(label.action)) for label in labels]


def name_step(message: Message, action: str) -> str:
    """Action, first tool, and program of a step."""
    tool = message.tool_calls[0].name if message.tool_calls else ""
    return f"{action} {tool} {find_program(message)[:_LONGEST_PROGRAM]}"


def find_program(message: Message) -> str:
    """The first word of the command of the first call; empty where it has none."""
    if not message.tool_calls:
        return ""
    try:
        arguments: Any = json.loads(message.tool_calls[0].arguments)
    except (ValueError, RecursionError):
        return ""
    command = arguments.get("command") if isinstance(arguments, dict) else None
    return command.split()[0] if isinstance(command, str) and command.strip() else ""
