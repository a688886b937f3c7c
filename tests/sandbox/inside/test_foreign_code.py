"""Text that the tests run and did not write."""

from __future__ import annotations

import types
from typing import Any

import pytest

from foretrace.sandbox.inside.roles import foreign_code
from foretrace.sandbox.inside.roles.beliefs import BeliefError


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
