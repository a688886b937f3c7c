"""Errors: settings, also lists of `NAME=VALUE`, in the style of each front end; other people's errors in one line."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import foretrace
from foretrace.cli.main import app
from foretrace.core.errors import Setting, UsageError, find_first_line
from foretrace.core.pairs import parse_pairs

SOURCE = Path(foretrace.__file__).parent
OTHER_PROGRAMS = (
    "dataset/card.py",
    "dataset/filters/benchmark_sets.py",
    "dataset/report.py",
    "actions/call_reading.py",
    "actions/cheats/",
    "actions/shell/",
    "evaluation/prompt_reading.py",
    "envs/atropos/environment.py",
    "models/adapter.py",
    "problems/harbor.py",
)
"""Files that name options of other programs, and the one that writes commands of ours into the card."""


def test_a_setting_stands_as_in_python_unless_styled() -> None:
    error = UsageError("give ", Setting("columns", {"messages": "log"}), " or ", Setting("limit"))
    assert str(error) == "give columns={'messages': 'log'} or limit"
    assert error.render(lambda setting: setting.name.upper()) == "give COLUMNS or LIMIT"


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("\n  no such key \n  in line 3\n"), "no such key"),
        (KeyError(), "KeyError"),
        (OSError("x" * 400), "x" * 300),
    ],
)
def test_the_first_line_of_an_error(error: Exception, line: str) -> None:
    assert find_first_line(error) == line


def texts(code: str) -> Iterator[str]:
    """The strings of a module, all but its docstrings."""
    tree = ast.parse(code)
    about = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in about:
            yield node.value


def test_only_the_command_speaks_of_the_command_line() -> None:
    """Elsewhere an error names a `Setting`, which the command writes as its option, and Python as an argument."""
    verbs = "|".join(app.commands)
    spoken = re.compile(rf"foretrace (?:{verbs})\b|[\s(`]--[a-z]|same command")
    found = [
        f"{name}: {text}"
        for path in SOURCE.rglob("*.py")
        if not (name := path.relative_to(SOURCE).as_posix()).startswith(("cli/", *OTHER_PROGRAMS))
        for text in texts(path.read_text(encoding="utf-8"))
        if spoken.search(text)
    ]
    assert not found


def test_a_value_may_hold_an_equals_sign() -> None:
    assert parse_pairs("options", ["a=1", "b=c=d"], example="think=false") == {"a": "1", "b": "c=d"}


@pytest.mark.parametrize(
    ("pairs", "why"),
    [
        (["a"], "options='a': write NAME=VALUE, e.g. options='think=false'"),
        (["=1"], "options='=1': write NAME=VALUE"),
        (["a="], "options='a=': write NAME=VALUE"),
        (["a=1", "a=2"], "options names 'a' twice"),
    ],
)
def test_what_is_no_pair_is_refused(pairs: list[str], why: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_pairs("options", pairs, example="think=false")
    assert why in str(caught.value)
