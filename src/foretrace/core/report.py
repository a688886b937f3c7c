"""Reports, which print in Python as the command shows them."""

from __future__ import annotations

import importlib


class Report:
    """Base of what the functions of `import foretrace` return, beside a record of msgspec."""

    __slots__ = ()

    def __str__(self) -> str:
        # By name, as a plugin: the command line stands on everything, and nothing on it.
        return importlib.import_module("foretrace.cli.display").render(self)
