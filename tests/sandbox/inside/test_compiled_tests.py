"""A test is compiled once and sent along, and compiled from its source where that cannot be."""

from __future__ import annotations

import json

import pytest

from foretrace.sandbox.inside.roles import compiled_tests
from foretrace.sandbox.inside.roles.compiled_tests import compile_test, pack_tests, read_tests
from foretrace.sandbox.judging import report
from sandbox.judge_fixture import Judge, outcome

SOURCES = (
    "x = 1\nassert f(x) == 2\nassert f(2)",
    "def check(candidate):\n    assert candidate(1) == 2\ndef test_it():\n    assert f(1) == 2",
)
NAMES = ("f",)


def test_what_is_sent_is_what_is_compiled() -> None:
    packed = json.loads(json.dumps(pack_tests(SOURCES, NAMES)))
    made = [compile_test(number, source, NAMES) for number, source in enumerate(SOURCES)]
    assert [*read_tests(packed, ("", ""), NAMES)] == made
    assert made[0].names == ["0:2", "0:3"] and made[1].check == ("check", "candidate", False)
    assert made[1].cases == ["test_it"]


def test_other_bytecode_is_not_run() -> None:
    packed = {"bytecode": "00", "tests": [[["0"], None, [], "AAAA"]] * 2}
    assert [*read_tests(packed, SOURCES, NAMES)] == [*read_tests(None, SOURCES, NAMES)]


@pytest.mark.parametrize("source", ["assert (", "assert f(1)\n" + "\n" * compiled_tests._MAX_CHARS, "\0"])
def test_what_is_not_sent(source: str) -> None:
    assert pack_tests((source,), NAMES) is None


@pytest.mark.parametrize("form", ["judge", "shared"])
def test_both_ways_judge_alike(judged: Judge, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for make in (pack_tests, lambda *_: None):
        monkeypatch.setattr(report, "pack_tests", make)
        for code in ("def f(x): return x + 1", "def f(x): return 2 if x == 1 else 0", "def f(x): return x"):
            found.append(outcome(judged(code, *SOURCES, form=form)))
    assert found[:3] == found[3:] and found[0] == [True] * 4 and found[1] == [True, False, True, True]
