"""foretrace: a trace foundry for speculative tool actions."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from foretrace.core.version import __version__

if TYPE_CHECKING:
    from foretrace.actions.taxonomy import ActionType as ActionType
    from foretrace.api.datasets import build as build
    from foretrace.api.datasets import load as load
    from foretrace.api.datasets import push as push
    from foretrace.api.evaluation import ceiling as ceiling
    from foretrace.api.evaluation import effects as effects
    from foretrace.api.evaluation import predict as predict
    from foretrace.api.evaluation import replay as replay
    from foretrace.api.generation import generate as generate
    from foretrace.api.scoring import score as score
    from foretrace.api.scoring import verify as verify
    from foretrace.api.traces import export as export
    from foretrace.api.traces import import_source as import_source
    from foretrace.api.traces import label as label
    from foretrace.api.traces import label_folder as label_folder
    from foretrace.core.problem import Problem as Problem
    from foretrace.core.store import read_traces as read_traces
    from foretrace.core.store import write_traces as write_traces
    from foretrace.core.trace import Message as Message
    from foretrace.core.trace import Step as Step
    from foretrace.core.trace import Task as Task
    from foretrace.core.trace import ToolCall as ToolCall
    from foretrace.core.trace import Trace as Trace
    from foretrace.dataset.tokenize import tokenize as tokenize

_HOMES = {
    "ActionType": "foretrace.actions.taxonomy",
    "Message": "foretrace.core.trace",
    "Problem": "foretrace.core.problem",
    "Step": "foretrace.core.trace",
    "Task": "foretrace.core.trace",
    "ToolCall": "foretrace.core.trace",
    "Trace": "foretrace.core.trace",
    "build": "foretrace.api.datasets",
    "ceiling": "foretrace.api.evaluation",
    "effects": "foretrace.api.evaluation",
    "export": "foretrace.api.traces",
    "generate": "foretrace.api.generation",
    "import_source": "foretrace.api.traces",
    "label": "foretrace.api.traces",
    "label_folder": "foretrace.api.traces",
    "load": "foretrace.api.datasets",
    "predict": "foretrace.api.evaluation",
    "push": "foretrace.api.datasets",
    "read_traces": "foretrace.core.store",
    "replay": "foretrace.api.evaluation",
    "score": "foretrace.api.scoring",
    "tokenize": "foretrace.dataset.tokenize",
    "verify": "foretrace.api.scoring",
    "write_traces": "foretrace.core.store",
}
"""Module in which each public name is defined: it is imported when the name is first used."""

__all__ = [
    "ActionType",
    "Message",
    "Problem",
    "Step",
    "Task",
    "ToolCall",
    "Trace",
    "__version__",
    "build",
    "ceiling",
    "effects",
    "export",
    "generate",
    "import_source",
    "label",
    "label_folder",
    "load",
    "predict",
    "push",
    "read_traces",
    "replay",
    "score",
    "tokenize",
    "verify",
    "write_traces",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'foretrace' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__]
