"""Which Python text is the tests' own, so that whoever runs it runs what they mean.

The library runs texts, too (`timeit`, `runpy`, `code`, `cProfile`, ...): they are no safer there. Only a few of its
modules write code themselves; those are believed, and so is what is imported from where packages were at the start.
"""

from __future__ import annotations

import os
import re
import sys
import types
from collections.abc import Iterator
from typing import Any

_WRITERS = tuple(
    os.path.join("", *name) for name in (("collections", "__init__.py"), ("dataclasses.py",), ("unittest", "mock.py"))
)
"""Modules of the library that write code, of names which they (or `foreign_code`) see to being names."""
_IMPORTING = ("<frozen importlib", "<frozen zipimport")
_LIBRARY = os.path.dirname(os.__file__)
_PACKAGES = ("site-packages", "dist-packages")
_BETWEEN = re.compile(r"[;\n]")


class OwnText:
    """The texts and the code that the tests have."""

    def __init__(self) -> None:
        self._constants: dict[int, str] = {}
        """Strings that stand in the tests, by their id: the answer's texts are other objects."""
        self._blocks: list[set[str]] = []
        """Of each string of more than one line or statement: what it is made of."""
        self._codes: dict[int, types.CodeType] = {}
        here = os.getcwd()
        self._roots = tuple(
            os.path.join(path, "") for path in (_LIBRARY, *sys.path) if os.path.isabs(path) and path != here
        )

    def note(self, code: types.CodeType) -> None:
        """Take code for the tests' own, and all strings in it."""
        self._codes[id(code)] = code
        for value in _find_constants(code.co_consts):
            if isinstance(value, types.CodeType):
                self.note(value)
            elif len(value) > 1:  # Python has each character once
                self._constants[id(value)] = value
                parts = _split(value)
                if len(parts) > 1:
                    self._blocks.append(set(parts))

    def has(self, text: Any) -> bool:
        """Whether a text stands in the tests: as it is, or statements of it, however they are indented."""
        if self._constants.get(id(text)) is text:
            return True
        if type(text) is bytes:  # of a file
            text = text.decode("utf-8", "replace")
        if type(text) is not str or text.strip().isidentifier():
            return False  # else an answer could name what the tests hold
        parts = set(_split(text))
        return bool(parts) and any(parts <= block for block in self._blocks)

    def has_code(self, code: types.CodeType, frame: Any, names: Any) -> bool:
        """Whether to run compiled code: the tests' own, or that of a module that the library imports."""
        if self._codes.get(id(code)) is code:
            return True
        if _is_of_tests(frame) or not isinstance(names, dict):
            return False
        file = names.get("__file__")
        if file is None:
            return getattr(names.get("__spec__"), "origin", None) == "frozen"
        return self._is_installed(file)

    def is_writer(self, frame: Any, filename: Any = None) -> bool:
        """Whether what runs a text has written it itself, or has it from a file that was installed."""
        file: str = frame.f_code.co_filename
        if file.startswith(_IMPORTING):
            return filename is not None and self._is_installed(filename)
        if frame.f_globals.get("__name__", "").partition(".")[0] == __name__.partition(".")[0]:
            return True
        if not self._is_installed(file):
            return False
        return file.endswith(_WRITERS) or not file.startswith(_LIBRARY) or any(part in file for part in _PACKAGES)

    def _is_installed(self, file: Any) -> bool:
        return type(file) is str and file.startswith(self._roots) and ".." not in file


def _is_of_tests(frame: Any) -> bool:
    file = frame.f_code.co_filename
    return not os.path.isabs(file) and not file.startswith(_IMPORTING)


def _find_constants(values: Any) -> Iterator[Any]:
    for value in values:
        if type(value) in (tuple, frozenset):
            yield from _find_constants(value)
        elif type(value) in (str, types.CodeType):
            yield value


def _split(text: str) -> list[str]:
    """The statements of a text, roughly, without blanks and the prompts of examples."""
    parts = ("".join(part.split()) for part in _BETWEEN.split(text))
    return [re.sub(r"^(>>>|\.\.\.)", "", part) for part in parts if part]
