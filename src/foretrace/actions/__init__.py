"""Labels of steps: nine action types, the effects of a step, and the one definition of "the same action"."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.actions.taxonomy import TAXONOMY_VERSION, ActionType, Effect, StepLabel

if TYPE_CHECKING:
    from foretrace.actions.label_steps import label_trace

__all__ = ["TAXONOMY_VERSION", "ActionType", "Effect", "StepLabel", "label_trace"]


def __getattr__(name: str) -> object:
    # Lazy: the taxonomy alone must not load the rules and their parsers.
    if name == "label_trace":
        from foretrace.actions.label_steps import label_trace

        return label_trace
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
