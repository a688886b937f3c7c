"""Text that the tests run and did not write."""

from __future__ import annotations

import dataclasses
import textwrap
import types
from typing import Any

import pytest

from foretrace.sandbox.inside.roles import foreign_code
from foretrace.sandbox.inside.roles.beliefs import BeliefError
from foretrace.sandbox.inside.roles.own_text import OwnText


class Changing(types.ModuleType):
    """Gives a pure function, and from then on another one."""

    def __getattr__(self, name: str) -> Any:
        found, self.__dict__["next"] = self.__dict__.get("next", abs), exec
        return found


def evaluate(text: str) -> Any:
    return foreign_code._evaluate(text, {"m": Changing("math")}, {}, False)


def test_an_attribute_is_fetched_once() -> None:
    assert evaluate("m.other(-4)") == 4
    with pytest.raises(BeliefError, match=r"uses .*second"):
        evaluate("[m.first(-4), m.second('1')]")


@pytest.fixture
def own() -> OwnText:
    own = OwnText()
    own.note(compile(TESTS, "test_0.py", "exec"))
    return own


TESTS = '''
want, case = 4, {"want": 4}
BLOCK = """
    x = f(3)
    y = x + want
"""
for line in ("f(1)", "f(2)"):
    eval(line)
def inner():
    return "g(1); g(2)"
'''


def test_whole_statements_of_the_tests_are_theirs(own: OwnText) -> None:
    space: dict[str, Any] = {"f": int, "eval": str}
    exec(next(iter(own._codes.values())), space)
    for text in (space["line"], space["BLOCK"], textwrap.dedent(space["BLOCK"]), space["inner"]().split("; ")[1]):
        assert own.has(text)


def test_what_an_answer_says_is_not_the_tests_text(own: OwnText) -> None:
    for text in ("want", "f(1)", "x", "x = f", "f(3)", "x = f(3)\nz = 1", "", "4"):
        assert not own.has("".join(list(text)))


class Fickle(type):
    """A class of which each look finds other fields."""

    looks = 0

    @property
    def __dict__(cls) -> Any:  # type: ignore[override]
        cls.looks += 1
        return {"__annotations__": {"a" if cls.looks == 1 else "a=print(1)": int}}


def test_names_of_fields_must_be_names() -> None:
    with foreign_code.guarded(None):
        assert len(dataclasses.fields(dataclasses.dataclass(type("P", (), {"__annotations__": {"a": int}})))) == 1
        for kind in (type("P", (), {"__annotations__": {"a=print(1)": int}}), Fickle("P", (), {"looks": 1})):
            with pytest.raises(BeliefError, match="names of fields"):
                dataclasses.dataclass(kind)
