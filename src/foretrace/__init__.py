"""foretrace: a trace foundry for speculative tool actions."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foretrace.actions import ActionType as ActionType
    from foretrace.core.problem import Problem as Problem
    from foretrace.core.store import read_traces as read_traces
    from foretrace.core.store import write_traces as write_traces
    from foretrace.core.trace import Message as Message
    from foretrace.core.trace import Step as Step
    from foretrace.core.trace import Task as Task
    from foretrace.core.trace import ToolCall as ToolCall
    from foretrace.core.trace import Trace as Trace
    from foretrace.dataset.tokenize import tokenize as tokenize
    from foretrace.notebook import build as build
    from foretrace.notebook import generate as generate
    from foretrace.notebook import import_source as import_source
    from foretrace.notebook import label as label

__version__ = "0.1.0"

_HOMES = {
    "ActionType": "foretrace.actions",
    "Message": "foretrace.core.trace",
    "Problem": "foretrace.core.problem",
    "Step": "foretrace.core.trace",
    "Task": "foretrace.core.trace",
    "ToolCall": "foretrace.core.trace",
    "Trace": "foretrace.core.trace",
    "build": "foretrace.notebook",
    "generate": "foretrace.notebook",
    "import_source": "foretrace.notebook",
    "label": "foretrace.notebook",
    "read_traces": "foretrace.core.store",
    "tokenize": "foretrace.dataset.tokenize",
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
    "build",
    "generate",
    "import_source",
    "label",
    "read_traces",
    "tokenize",
    "write_traces",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'foretrace' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
