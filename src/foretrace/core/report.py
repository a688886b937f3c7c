"""Reports, which print in Python the way the command shows them."""

from __future__ import annotations

import importlib


class Report:
    """Base of what the functions of `import foretrace` return; combined with `msgspec.Struct`."""

    __slots__ = ()

    def __str__(self) -> str:
        # Imported by name, like a plugin: the command line depends on everything, and nothing may depend on it.
        return importlib.import_module("foretrace.cli.display").render(self)
