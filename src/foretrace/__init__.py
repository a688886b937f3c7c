"""foretrace: a trace foundry for speculative tool actions."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from foretrace.core.version import __version__

if TYPE_CHECKING:
    from foretrace.actions.taxonomy import ActionType as ActionType
    from foretrace.actions.taxonomy import Effect as Effect
    from foretrace.actions.taxonomy import StepLabel as StepLabel
    from foretrace.api.datasets import build as build
    from foretrace.api.datasets import load as load
    from foretrace.api.evaluation import add_references as add_references
    from foretrace.api.evaluation import ceiling as ceiling
    from foretrace.api.evaluation import check_call as check_call
    from foretrace.api.evaluation import effects as effects
    from foretrace.api.evaluation import predict as predict
    from foretrace.api.evaluation import replay as replay
    from foretrace.api.evaluation import verify as verify
    from foretrace.api.evaluation import verify_pairs as verify_pairs
    from foretrace.api.generation import generate as generate
    from foretrace.api.serving import serve as serve
    from foretrace.api.traces import export as export
    from foretrace.api.traces import import_source as import_source
    from foretrace.api.traces import label as label
    from foretrace.api.traces import label_folder as label_folder
    from foretrace.api.traces import scrub as scrub
    from foretrace.api.traces import view as view
    from foretrace.core.errors import ForetraceError as ForetraceError
    from foretrace.core.errors import ForetraceWarning as ForetraceWarning
    from foretrace.core.predictions import read_predictions as read_predictions
    from foretrace.core.problem import Problem as Problem
    from foretrace.core.store import read_trace as read_trace
    from foretrace.core.store import read_traces as read_traces
    from foretrace.core.store import write_traces as write_traces
    from foretrace.core.trace import Message as Message
    from foretrace.core.trace import Outcome as Outcome
    from foretrace.core.trace import Provenance as Provenance
    from foretrace.core.trace import Step as Step
    from foretrace.core.trace import Task as Task
    from foretrace.core.trace import ToolCall as ToolCall
    from foretrace.core.trace import ToolSpec as ToolSpec
    from foretrace.core.trace import Trace as Trace
    from foretrace.dataset.push import push as push
    from foretrace.dataset.tokenize import tokenize as tokenize
    from foretrace.evaluation.pair_accuracy import score_pairs as score_pairs
    from foretrace.evaluation.score import score as score
    from foretrace.models.base import Server as Server

_PUBLIC = {
    "foretrace.actions.taxonomy": "ActionType Effect StepLabel",
    "foretrace.api.datasets": "build load",
    "foretrace.api.evaluation": "add_references ceiling check_call effects predict replay verify verify_pairs",
    "foretrace.api.generation": "generate",
    "foretrace.api.serving": "serve",
    "foretrace.api.traces": "export import_source label label_folder scrub view",
    "foretrace.core.errors": "ForetraceError ForetraceWarning",
    "foretrace.core.predictions": "read_predictions",
    "foretrace.core.problem": "Problem",
    "foretrace.core.store": "read_trace read_traces write_traces",
    "foretrace.core.trace": "Message Outcome Provenance Step Task ToolCall ToolSpec Trace",
    "foretrace.dataset.push": "push",
    "foretrace.dataset.tokenize": "tokenize",
    "foretrace.evaluation.pair_accuracy": "score_pairs",
    "foretrace.evaluation.score": "score",
    "foretrace.models.base": "Server",
}
"""By module: the public names that it defines. It is imported when one of them is first used."""
_HOMES = {name: module for module, names in _PUBLIC.items() for name in names.split()}

__all__ = [*sorted(_HOMES), "__version__"]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'foretrace' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__]
