"""The folder is the registry: a name on the command line is the name of a file in a plugin folder.

To add a source, protocol, model server, sandbox, problem set or recipe: drop one file in its folder, with a
`PLUGIN` in it. A plugin outside of foretrace is named `module:Class`, or found by the entry point group
`foretrace.<kind>`.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
from importlib.metadata import entry_points
from typing import Any

from foretrace.core.errors import UsageError

FOLDERS = {
    "source": "foretrace.sources",
    "recipe": "foretrace.dataset.recipes",
    "encoding": "foretrace.encodings",
    "sandbox": "foretrace.sandbox",
    "problems": "foretrace.problems",
    "model": "foretrace.models",
    "protocol": "foretrace.protocols",
}
_NOT_PLUGINS = {"base", "text"}


def names(kind: str) -> list[str]:
    """Names of the plugins of one kind: files of the folder that hold a `PLUGIN`, then entry points."""
    package = importlib.import_module(FOLDERS[kind])
    found = [m.name for m in pkgutil.iter_modules(package.__path__) if _is_plugin(m.name)]
    return sorted(found) + sorted(point.name for point in entry_points(group=f"foretrace.{kind}"))


def resolve(kind: str, name: str) -> Any:
    """The plugin of that name: `PLUGIN` of its file, the object at `module:Class`, or an entry point.

    Raises:
        UsageError: no such plugin; the message lists those there are.
    """
    if ":" in name:
        return _external(kind, name)
    if _is_plugin(name) and name in names(kind):
        for point in entry_points(group=f"foretrace.{kind}"):
            if point.name == name:
                return point.load()
        return importlib.import_module(f"{FOLDERS[kind]}.{name}").PLUGIN
    raise UsageError(f"unknown {kind} {name!r}: choose one of {', '.join(names(kind))}, or module:Class")


def _is_plugin(name: str) -> bool:
    return name.isidentifier() and not name.startswith("_") and name not in _NOT_PLUGINS


def _external(kind: str, name: str) -> Any:
    module, _, attribute = name.partition(":")
    # A console script does not look into the current folder, where a user's own plugin lies.
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        known = ", ".join(names(kind))
        raise UsageError(f"cannot load {kind} {name!r}: {error}; foretrace's own are {known}") from None
