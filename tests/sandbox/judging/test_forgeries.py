"""Attempts to forge a pass, and searches for expected values, in real processes that no guard protects."""

from __future__ import annotations

import json

import pytest

from foretrace.core.problem import Integrity
from sandbox.judge_fixture import LOOP, Judge, outcome
from timing import AT_ONCE_S


def frame(*message: object) -> str:
    body = json.dumps(message).encode()
    return repr(len(body).to_bytes(4, "big") + body)


PUT = "import os\nput = lambda *b: [os.write(3, x) for x in b]\n"
FORGED = {
    "eq subclass": "class A(int):\n  __eq__ = lambda s, o: True\n  __hash__ = int.__hash__\ndef f(x): return A(0)",
    "str subclass": "class A(str):\n  __eq__ = lambda s, o: True\n  __hash__ = None\ndef f(x): return A()",
    "list subclass": "class A(list):\n  __eq__ = lambda s, o: True\ndef f(x): return A()",
    "mock any": "from unittest import mock\ndef f(x): return mock.ANY",
    "nan": "def f(x): return float('nan')",
    "generator": "def f(x):\n  while True: yield x * 7",
    "exit 0 at load": "import sys\nsys.exit(0)",
    "exit 0 in a call": "import sys\ndef f(x): sys.exit(0)",
    "hard exit": "import os\ndef f(x): os._exit(0)",
    "atexit": "import atexit, os\natexit.register(os._exit, 0)\ndef f(x): return 0",
    "patched builtins": "import builtins\nfor n in 'len repr isinstance type all any'.split():\n"
    "  setattr(builtins, n, lambda *a: True)\ndef f(x): return 0",
    "patched json": 'import json\njson.dumps = lambda *a, **k: \'["test", "0", true, null, null, null]\'\n'
    "def f(x): return 0",
    "patched write": "import os\nos.write = lambda fd, b: len(b)\ndef f(x): return 0",
    "says that it passed": PUT + f"def f(x):\n  put({frame('test', '0', True, None, None, None)})\n  return 0",
    "says that it is done": PUT + f"put({frame('loaded')}, {frame('done', None)})\nos._exit(0)",
    "says passed at load": PUT
    + f"put({frame('test', '0:2', True, None, None, None)}, {frame('done', None)})\ndef f(x): return 0",
    "many answers": PUT
    + f"def f(x):\n  put(*[{frame('value', 7, None)}, {frame('value', 14, None)}] * 3)\n  return 7 * x",
    "early answers": PUT + f"put({frame('loaded')}, {frame('value', 7, None)}, {frame('value', 14, None)})\n"
    "def f(x): return 7 * x",
    "trailing bytes": PUT + "import threading, time\ndef f(x):\n  if x == 2: put(b'\\0\\0')\n  return 7 * x",
    "truncated frame": PUT + "def f(x):\n  put(b'\\0\\0\\1\\0[\"value\",')\n  os._exit(0)",
    "huge frame": PUT + "def f(x):\n  put(b'\\xff\\xff\\xff\\xff')\n  return 7 * x",
    "no json": PUT + "put(b'\\0\\0\\0\\2{]')\ndef f(x): return 7 * x",
    "deep json": PUT + "put((99999).to_bytes(4, 'big') + b'[' * 99999)\ndef f(x): return 7 * x",
    "deep value": PUT
    + "v = 7\nfor _ in range(400): v = ['l', v]\nimport json\nb = json.dumps(['value', v, None]).encode()\n"
    "def f(x):\n  put(len(b).to_bytes(4, 'big') + b)\n  return 7 * x",
    "deeper value": PUT + "b = b'[\"value\",' + b'[\"l\",' * 880 + b'7' + b']' * 880 + b',null]'\n"
    "def f(x):\n  put(len(b).to_bytes(4, 'big') + b)\n  return 7 * x",
    "null frame": PUT + "put(b'\\0\\0\\0\\4null')\ndef f(x): return 7 * x",
    "closed channel": "import os\ndef f(x):\n  os.close(3)\n  return 7 * x",
    "gone": PUT + f"def f(x):\n  put({frame('gone', 'x')})\n  return 7 * x",
    "raised of odd parts": PUT
    + f"def f(x):\n  put({frame('raised', {'kind': 'E', 'message': 5, 'bases': [['x']]})})\n  return 7 * x",
    "killed by itself": "import os, signal\ndef f(x): os.kill(os.getpid(), signal.SIGTERM)",
    "signal handler": "import signal\nsignal.signal(signal.SIGALRM, lambda *a: 1 / 0)\n"
    "signal.setitimer(signal.ITIMER_REAL, .001, .001)\ndef f(x):\n  while True: pass",
    "text that raises": "class A:\n  __repr__ = __str__ = __reduce__ = lambda s: 1 / 0\ndef f(x): return [A()]",
    "error that lies": "class AssertionError(Exception):\n  __str__ = lambda s: 'x' * 10**7\n"
    "def f(x): raise AssertionError",
    "deep result": "def f(x):\n  r = []\n  for _ in range(10**5): r = [r]\n  return r",
    "huge result": "def f(x): return 'x' * 10**8",
    "huge int": "def f(x): return 1 << 10**7",
    "cyclic result": "def f(x):\n  r = [x]\n  r.append(r)\n  return r",
    "recursion": "def f(x): return f(x)",
    "sys.modules": "import sys\nfor n in list(sys.modules): sys.modules[n] = None\ndef f(x): return 0",
}


@pytest.mark.parametrize("name", FORGED)
def test_nothing_passes_that_was_not_computed(judged: Judge, name: str) -> None:
    split = judged(FORGED[name], "assert f(1) == 7", "assert f(2) == 14", wall_s=0.5)
    assert not split.passed, split
    relayed = judged(FORGED[name], LOOP, wall_s=0.5)
    assert not relayed.passed, relayed
    if name not in ("closed channel", "many answers", "trailing bytes"):
        assert not any(outcome(split)), split


@pytest.mark.parametrize("members", ["x > 2", "None", "(None,)"])
def test_sets_that_leave_little_to_ask_for_are_no_way_through(judged: Judge, members: str) -> None:
    """The object equals each set; there is no third member for {True, False}, and one of None's decoys has no hash."""
    equal = "class A:\n  __eq__ = lambda s, o: isinstance(o, set)\n  __hash__ = None\ndef f(x): return A()"
    verdict = judged(equal, f"data = [1, 2, 3]; want = {{{members} for x in data}}; assert f(data) == want")
    assert not verdict.passed and verdict.ending == "ok"


@pytest.mark.parametrize("name", ["many answers", "early answers", "trailing bytes", "no json"])
def test_a_process_that_breaks_the_protocol_is_believed_in_nothing(judged: Judge, name: str) -> None:
    for tests in (["assert f(1) == 7", "assert f(2) == 14"], [LOOP]):
        verdict = judged(FORGED[name], *tests, wall_s=30)
        assert not any(outcome(verdict)), verdict
        assert verdict.ending == "killed" and verdict.seconds < AT_ONCE_S
        assert verdict.error is not None and verdict.error.kind == "OutOfTurn"


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


@pytest.mark.parametrize("form", ["calls", "together"])
def test_no_fork_server_of_a_candidate_has_seen_test_code(judged: Judge, form: Integrity) -> None:
    test = "assert f('argument') == 'zebracrossing-731942'"
    for _ in range(3):
        judged("def f(x): return x", test, form=form)
        assert not judged(SEARCH, test).passed


def test_no_candidate_finds_what_an_earlier_one_held_or_answered(judged: Judge) -> None:
    test = "assert f('argument') == 'zebracrossing-731942'"
    for _ in range(3):
        assert judged("def f(x): return 'zebra' + 'crossing-' + '731942'", test).passed
        assert not judged(SEARCH, test).passed
