"""Answers that cheat: what decides, what is flagged, and who refuses it; and what each form holds open."""

from __future__ import annotations

import asyncio
import json
import time

import pytest

from foretrace.core.errors import ProblemError, UsageError
from foretrace.core.problem import Integrity, Test
from foretrace.sandbox.base import SandboxSettings
from sandbox.boxes import LOOP, Judge, box_at, outcome
from timing import AT_ONCE_S

STACK = "class Stack:\n  def __init__(s): s.v = []\n  def push(s, x): s.v.append(x)\n  def pop(s): return s.v.pop()\n"
TEST = "s = Stack()\ns.push(49)\nassert s.pop() == 49"
NO_POP = STACK.replace("return s.v.pop()", "return 0")
CHEATS = {
    "equal to everything": ("same_for_others", "class Y:\n  __eq__ = lambda s, o: True\n", "return Y()"),
    "equal to every number": ("same_for_others", "class Stack2: pass\n", "return N()"),
    "builtins": ("tampered", "import builtins\nbuiltins.len = lambda x: 49\n", "return len(s.v)"),
    "a module of the tests": ("tampered", "import math\nmath.sqrt = lambda x: 49\n", "return 0"),
    "the frames": ("peeked", "import sys\n", "return sys._getframe(1).f_locals.get('want', 0)"),
    "a traceback": (
        "peeked",
        "",
        "\n    try: 1 / 0\n    except ZeroDivisionError as e:"
        " return e.__traceback__.tb_frame.f_back.f_locals.get('want')",
    ),
    "an exit": ("exited", "import os\n", "os._exit(0)"),
}


@pytest.mark.parametrize("name", CHEATS)
def test_a_cheat_fails_and_is_flagged(judged: Judge, name: str) -> None:
    flag, before, body = CHEATS[name]
    code = before + STACK.replace("return s.v.pop()", body)
    if name == "equal to every number":
        code += "class N(Stack):\n  __eq__ = lambda s, o: isinstance(o, int)\n"
    tests = f"import math\nwant = 49\n{TEST.replace('== 49', '== want')}" if flag != "same_for_others" else TEST
    verdict = judged(code, tests, entry_point="Stack")
    assert not verdict.passed and verdict.flags == (flag,), verdict
    assert verdict.integrity == verdict.tests[0].form == "together"


def test_honest_answers_have_no_flags(judged: Judge) -> None:
    verdict = judged(STACK, TEST, entry_point="Stack")
    (test,) = verdict.tests
    assert verdict.passed and verdict.flags == () and (test.actual, test.expected) == ("49", "49")
    assert judged(NO_POP, TEST, entry_point="Stack").flags == ()


def test_an_answer_may_print_the_traceback_of_its_own_error(judged: Judge) -> None:
    raises = "import traceback\ndef fails():\n  try: 1 / 0\n  except ZeroDivisionError as error: {}\n"
    body = "fails(); return s.v.pop()"
    for code in ("traceback.print_exc()", "traceback.format_exception(error)"):
        verdict = judged(raises.format(code) + STACK.replace("return s.v.pop()", body), TEST, entry_point="Stack")
        assert verdict.passed and verdict.flags == (), verdict
    walks = raises.format("[f.f_back for f, _ in traceback.walk_tb(error.__traceback__)]")
    verdict = judged(walks + STACK.replace("return s.v.pop()", body), TEST, entry_point="Stack")
    assert verdict.flags == ("peeked",), verdict


def test_what_runs_the_tests_cannot_be_replaced(judged: Judge) -> None:
    body = TEST.replace("\n", "\n    ")
    test = f"import unittest\nclass T(unittest.TestCase):\n  def test(self):\n    {body}"
    runner = "import foretrace.sandbox.inside.test_runner as t\nt._run_test = lambda *given: None\n"
    asserts = "import unittest\nunittest.TestCase.run = lambda *a, **k: None\n"
    main = "def run_tests(): pass\nimport __main__\n__main__.run_tests = run_tests\n"
    for patch in (runner, asserts, main):
        assert not judged(patch + NO_POP, test, entry_point="Stack").passed


def test_asserts_that_must_be_reached_and_places_that_must_not(judged: Judge) -> None:
    code = "class Error(Exception): pass\nclass S:\n  def get(s): return 3\n  def fail(s): raise Error"
    test = "s = S()\ntry:\n  s.fail()\n  assert False, 'no error'\nexcept Error:\n  pass\nassert s.get() == 3"
    assert judged(code, test, entry_point="S").passed
    assert not judged(code.replace("class Error(Exception): pass", "Error = AssertionError"), test + "1").passed
    swallowed = judged("Error = AssertionError\nclass S:\n  get = fail = lambda s: 3", test, entry_point="S")
    assert outcome(swallowed) == [False, True]
    skipped = "import unittest\nclass S:\n  def get(s): raise unittest.SkipTest"
    case = "import unittest\nclass T(unittest.TestCase):\n  def test(self):\n    self.assertEqual(S().get(), 3)"
    assert not judged(skipped, case, entry_point="S").passed


def test_what_objects_say_is_asked_again_with_other_constants(judged: Judge) -> None:
    code = "class V:\n  def __init__(s, x): s.x = x\n  def __eq__(s, o): return isinstance(o, V) and s.x == o.x\n"
    adds = "  def __add__(s, o): return V(s.x + o.x)\n"
    test = "assert V(1) + V(2) == V(3)"
    assert judged(code + adds, test, entry_point="V").passed
    for liar in ("isinstance(o, V)", "o is not None"):
        made = (code + adds).replace("isinstance(o, V) and s.x == o.x", liar)
        assert judged(made, test, entry_point="V").flags == ("same_for_others",)


def test_a_form_can_be_refused(runner: asyncio.Runner) -> None:
    with pytest.raises(UsageError, match="choose from values, calls, together"):
        SandboxSettings(forms=("values", "other"))
    for box in box_at(2, runner, forms=("values", "calls")):
        assert box.judge("def f(x): return x * 7", [Test(code=LOOP)], entry_point="f").passed
        with pytest.raises(ProblemError, match="these tests need the form together, and only values, calls may"):
            box.judge(STACK, [Test(code=TEST)], entry_point="Stack")
        for test in (LOOP, "assert f(1) == 7"):
            given = box.judge("class N(int): pass\ndef f(x): return N(x * 7)", [Test(code=test)], entry_point="f")
            assert not given.passed and "only the form together" in str(given.tests[0].error)


def test_nothing_is_open_but_the_channel(judged: Judge) -> None:
    code = "import os\ndef f(x):\n  return [n for n in range(3, 64) if os.path.exists(f'/proc/self/fd/{n}')]"
    for test in ("assert f(1) == [3]", "for n in (1, 2):\n  assert f(n) == [3]"):
        assert judged(code, test).passed


def test_an_answer_that_needs_one_process_is_remembered(judged: Judge) -> None:
    code = "import collections\nP = collections.namedtuple('P', 'a b')\ndef f(x): return P(x, 2)"
    plain = "class Q:\n  a = 2\ndef f(x): return 2"
    test = "for x in (2, 2):\n    r = f(x)\n    assert r == 2 or r.b == 2"
    assert judged(plain, test).integrity == "calls"
    assert judged("def f(x): return object()", test).integrity == "together"
    assert judged(plain, test).integrity == "calls", "what a wrong answer needs says nothing of the tests"
    assert judged(code, test).passed
    assert judged(plain, test).integrity == "together"


def test_what_is_too_large_to_send_is_asked_again_also_where_another_test_fails(judged: Judge) -> None:
    code = "def f(x):\n    return 'x' * 10**8 if x == 1 else 0"
    assert outcome(judged(code, "assert f(1) == 7", "assert f(2) == 14")) == [False, False]


# Attempts to forge a pass, and searches for expected values, in real processes that no guard protects.


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
