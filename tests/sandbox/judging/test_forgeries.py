"""Attempts to forge a pass, and searches for expected values, in real processes that no guard protects."""

from __future__ import annotations

import json
import time

import pytest

from foretrace.core.problem import Integrity
from sandbox.boxes import LOOP, Judge, outcome
from timing import AT_ONCE_S


def frame(*message: object) -> str:
    body = json.dumps(message).encode()
    return repr(len(body).to_bytes(4, "big") + body)


PUT = "import os, time\nput = lambda *b: [os.write(3, x) for x in b]\n"
BREAKING = {
    "many answers": PUT
    + f"def f(x):\n  put(*[{frame('value', 7, None)}, {frame('value', 14, None)}] * 3)\n  return 7 * x",
    "early answers": PUT + f"put({frame('loaded')}, {frame('value', 7, None)}, {frame('value', 14, None)})\n"
    "def f(x): return 7 * x",
    "trailing bytes": PUT + "import threading, time\ndef f(x):\n  if x == 2: put(b'\\0\\0')\n  return 7 * x",
    "no json": PUT + "put(b'\\0\\0\\0\\2{]')\ndef f(x): return 7 * x",
    "a frame that is none of its own": PUT + f"def f(x):\n  put({frame('test', 1)})\n  time.sleep(60)",
    "no frame": PUT + "def f(x):\n  put(b'xxxxxxxxx')\n  time.sleep(60)",
    "when loaded": PUT + f"put({frame('loaded', 5)})\ntime.sleep(60)",
    "a failure that is none": PUT + f"put({frame('failed', 5)})\ntime.sleep(60)",
}


@pytest.mark.parametrize("members", ["x > 2", "None", "(None,)"])
def test_sets_that_leave_little_to_ask_for_are_no_way_through(judged: Judge, members: str) -> None:
    """The object equals each set; there is no third member for {True, False}, and one of None's decoys has no hash."""
    equal = "class A:\n  __eq__ = lambda s, o: isinstance(o, set)\n  __hash__ = None\ndef f(x): return A()"
    verdict = judged(equal, f"data = [1, 2, 3]; want = {{{members} for x in data}}; assert f(data) == want")
    assert not verdict.passed and verdict.ending == "ok"


@pytest.mark.parametrize("name", BREAKING)
@pytest.mark.parametrize("tests", [["assert f(1) == 7", "assert f(2) == 14"], [LOOP]], ids=["values", "calls"])
def test_a_process_that_breaks_the_protocol_is_ended_at_once_and_believed_in_nothing(
    judged: Judge, tests: list[str], name: str
) -> None:
    began = time.monotonic()
    verdict = judged(BREAKING[name], *tests, wall_s=30)
    assert not any(outcome(verdict)) and time.monotonic() - began < AT_ONCE_S, verdict
    assert verdict.ending == "killed" and verdict.error and verdict.error.kind == "OutOfTurn", verdict


SEARCH = """
import gc, sys, os
def texts():
    seen, todo = set(), [gc.get_objects(), sys._current_frames(), sys.modules]
    frame = sys._getframe()
    while frame: todo += [frame.f_locals, frame.f_globals, frame.f_code.co_consts]; frame = frame.f_back
    while todo:
        item = todo.pop()
        if id(item) in seen: continue
        seen.add(id(item))
        if type(item) in (str, bytes):
            yield item
        elif type(item) in (list, tuple, set, frozenset): todo += item
        elif type(item) is dict: todo += item.keys(); todo += item.values()
        elif hasattr(item, 'co_consts'): todo += item.co_consts
def memory():
    with open('/proc/self/maps') as maps, open('/proc/self/mem', 'rb', 0) as mem:
        for line in maps:
            where, rights, *_, = line.split()
            a, b = (int(x, 16) for x in where.split('-'))
            if 'r' in rights and '[v' not in line and b - a < 1 << 26:
                try: mem.seek(a); yield mem.read(b - a)
                except (OSError, ValueError): pass
def f(x):
    mark = 'zebra' + 'crossing'
    found = [t for t in texts() if mark in (t if type(t) is str else t.decode('latin-1')) and len(t) > len(mark)]
    raw = b'zebra' + b'crossing-'
    for block in memory():
        for piece in block.split(raw)[1:]:
            if piece[:1].isdigit(): return mark + '-' + piece[:6].decode('latin-1')
    return found[0] if found else None
"""


@pytest.mark.parametrize("form", ["values", "calls", "together"])
def test_the_expected_value_is_not_in_the_candidates_process(judged: Judge, form: Integrity) -> None:
    test = "assert f('argument') == 'zebracrossing-731942'"
    control = "assert f('zebracrossing-731942') == 'zebracrossing-731942'"
    for _ in range(3):  # a process that served another test of this kind must hold nothing of it
        verdict = judged(SEARCH, test, form=form)
        assert not verdict.passed and verdict.integrity == form, verdict
    found = judged(SEARCH, control, form=form)
    assert found.passed or found.flags == ("peeked",), "a search that cannot find shows nothing"
