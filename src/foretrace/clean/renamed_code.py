"""Find Python code that stands in a text under other names.

The words of code without its own names are looked up like any words (`word_runs`); what is found is compared sign by
sign, and counts only where each name has become one other name.
"""

from __future__ import annotations

import ast
import builtins
import difflib
import keyword
import re
import string
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from foretrace.clean.word_runs import Run, RunFinder, WordSet, cut_windows, number_words
from foretrace.core.python_source import parse_quietly

LEAST_SIGNS = 50
"""Signs of the shortest code that is looked for: there is one way only to write many shorter functions."""
_SEED_WORDS = 12
_LEAST_SHARE = 0.8
"""Least share of the words of the code that must be found before it is compared."""
_LEAST_RATIO = 0.9
"""Least share of the code's signs that must be the same, and of its names that must have become one other name."""
_SIGN = re.compile(r"[^\W\d]\w*|\d+(?:\.\d+)?|\"[^\"\n]*\"|'[^'\n]*'|[^\s\w]")
_WORD = re.compile(r"\w+")
_LINE_BREAK = re.compile(r"\\[nr]")
_MARGIN = re.compile(r"(?m)^(?:[+-](?![+-])|[ \t]*\d+[:|\t])|#.*$")
_BUILTINS = frozenset(dir(builtins))

Array = np.ndarray[Any, Any]


class CodeFinder:
    """Finds pieces of code, whatever its own names are."""

    def __init__(self, codes: Sequence[str], owners: Sequence[int]) -> None:
        trees = [_parse(code) for code in codes]
        names: set[str] = set().union(*(_find_names(tree) for tree in trees))
        words = {word.lower() for code in codes for word in _WORD.findall(code)} - {name.lower() for name in names}
        letters = {*number_words(" ".join(string.ascii_lowercase)).tolist()}  # one letter is a name somewhere
        self._keep = WordSet({*number_words(" ".join(words)).tolist()} - letters)
        self._codes = [code if tree is not None else "" for code, tree in zip(codes, trees, strict=True)]
        self._codes = [code if len(_SIGN.findall(code)) >= LEAST_SIGNS else "" for code in self._codes]
        sequences = [self._leave_names_out(number_words(code))[0] for code in self._codes]
        self._lengths = [len(each) for each in sequences]
        self._finder = RunFinder([cut_windows(each, _SEED_WORDS) for each in sequences], owners, _SEED_WORDS)

    def find(self, numbers: Array) -> list[Run]:
        """Where most of the words of a code stand, in order: at most one place for each code, as words of the text.

        The runs have the words of the text in `at`, and how many these are in `end`.
        """
        if not self._codes:
            return []
        words, places = self._leave_names_out(numbers)
        by_code: dict[int, list[Run]] = defaultdict(list)
        for run in self._finder.find(words):
            by_code[run.known].append(run)
        found: list[Run] = []
        for code, runs in by_code.items():
            best = max(runs, key=lambda run: run.end - run.start)
            near = [
                run for run in runs if abs((run.at - run.start) - (best.at - best.start)) <= self._lengths[code] // 2
            ]
            covered = np.zeros(self._lengths[code], np.bool_)
            for run in near:
                covered[run.start : run.end] = True
            if covered.mean() >= _LEAST_SHARE:
                first = min(run.at for run in near)
                last = max(run.at + run.end - run.start for run in near) - 1
                first, last = first + (words[first] == 0), last - (words[last] == 0)  # unknown words around it
                found.append(Run(code, 0, int(places[last]) + 1 - int(places[first]), int(places[first])))
        return found

    def is_copy(self, code: int, piece: str) -> bool:
        """Whether a piece of a text is the code, but for its names."""
        return is_renamed_copy(self._codes[code], piece)

    def _leave_names_out(self, numbers: Array) -> tuple[Array, Array]:
        """The words, with one 0 in place of names and unknown words in a row; and the place of each."""
        is_kept = self._keep.find(numbers)
        stays = np.ones(len(numbers), np.bool_)
        stays[1:] = is_kept[1:] | is_kept[:-1]
        places = np.flatnonzero(stays)
        return np.where(is_kept, numbers, 0)[places], places


def is_renamed_copy(code: str, piece: str) -> bool:
    """Whether a piece of text holds the code, each of its names changed into one other name at most."""
    ours = _SIGN.findall(_MARGIN.sub("", code))
    theirs = _SIGN.findall(_MARGIN.sub("", _LINE_BREAK.sub("\n", piece)))
    names = _find_names(_parse(code))
    shape = ["=" if sign in names else sign for sign in ours]
    known = {sign for sign in ours if sign not in names} | {*keyword.kwlist}
    other = ["=" if sign.isidentifier() and sign not in known else sign for sign in theirs]
    matcher = difflib.SequenceMatcher(None, [_unify(s) for s in shape], [_unify(s) for s in other], autojunk=False)
    pairs = [(ours[a + i], theirs[b + i]) for a, b, size in matcher.get_matching_blocks() for i in range(size)]
    if len(pairs) < _LEAST_RATIO * len(ours):
        return False
    renamed = [(own, new) for own, new in pairs if own in names]
    most: dict[str, Counter[str]] = defaultdict(Counter)
    for own, new in renamed:
        most[own][new] += 1
    kept = sum(counts.most_common(1)[0][1] for counts in most.values())
    return kept >= _LEAST_RATIO * len(renamed)


def _unify(sign: str) -> str:
    """The sign, with one kind of quotes."""
    return f'"{sign[1:-1]}"' if sign[0] == "'" and len(sign) > 1 else sign


def _parse(code: str) -> ast.Module | None:
    """The syntax tree of code, or of the body of a function; `None` where it is no Python."""
    for whole in (code, f"def _():\n{code}"):
        try:
            return parse_quietly(whole)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
    return None


def _find_names(tree: ast.Module | None) -> set[str]:
    """The names that code could change: of functions, arguments and variables, but not those of Python itself."""
    names: set[str] = set()
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
    return names - _BUILTINS
