"""What an answer must define: a function or class, or a method of a class, written `Solution().two_sum`."""

from __future__ import annotations

import ast
from typing import NamedTuple

from foretrace.core.python_source import try_parse

METHOD_CLASS = "Solution"


class EntryPoint(NamedTuple):
    """The parts of an entry point."""

    name: str
    """The function or class at the top of the code."""
    method: str | None = None
    """The method to call on a new object of the class."""


def read_entry_point(text: str) -> EntryPoint | None:
    """The parts of an entry point; None if the text is not one."""
    name, calls, method = text.partition("().")
    if not name.isidentifier() or (calls and not method.isidentifier()):
        return None
    return EntryPoint(name, method or None)


def complete_entry_point(name: str | None, *codes: str | None) -> str | None:
    """The entry point that a bare name means: `two_sum` becomes `Solution().two_sum` if the first code that defines it
    does so as a method of `Solution`."""
    for code in codes if name and name.isidentifier() else ():
        tree = next((tree for end in ("", "\n        pass\n") if (tree := try_parse((code or "") + end))), None)
        for node in tree.body if tree else ():
            if getattr(node, "name", None) == name:
                return name
            methods = node.body if isinstance(node, ast.ClassDef) and node.name == METHOD_CLASS else ()
            if any(getattr(part, "name", None) == name for part in methods):
                return f"{METHOD_CLASS}().{name}"
    return name
