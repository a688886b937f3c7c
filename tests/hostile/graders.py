"""Naive graders, each fooled by some forgery: the programs that they run, and how they read a verdict out of them.

They stand for executors in the wild: the candidate and its tests in one process, and something that this process can
say itself taken as the verdict.
"""

from __future__ import annotations

import json
import pickle
import struct
from collections.abc import Callable
from typing import Any

MARKER = "ALL TESTS PASSED"

_HEAD = """\
import json, os, struct, sys
JOB = json.loads(sys.argv[1])
def send(message):
    body = json.dumps(message).encode()
    os.write(3, struct.pack(">I", len(body)) + body)
"""
_INSIDE = """\
def grade(code, checks):
    space = {"__name__": "__main__", "checks": checks}
    exec(code, space)
    for check in checks:
        exec(check, space)
    os.write(3, b"1")
grade(JOB["code"], JOB["checks"])
"""
_FRAMES = """\
space = {"__name__": "__main__"}
try:
    exec(JOB["code"], space)
    send(["loaded"])
except Exception:
    send(["failed", None])
for number, check in enumerate(JOB["checks"]):
    try:
        exec(check, space)
        send(["test", str(number), True])
    except Exception:
        send(["test", str(number), False])
send(["done", None])
"""
_VALUES = """\
space = {"__name__": "__main__"}
exec(JOB["code"], space)
send(["loaded"])
for given in (3, 4):
    send(["value", space["f"](given)])
"""
_FORK = """\
space = {"__name__": "__main__"}
exec(JOB["code"], space)
pid = os.fork()
if pid == 0:
    try:
        for check in JOB["checks"]:
            exec(check, space)
        os._exit(0)
    except BaseException:
        os._exit(1)
os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
_PICKLE = """\
import pickle
space = {"__name__": "__main__"}
exec(JOB["code"], space)
sys.modules["__main__"].__dict__.update(space)
os.write(3, pickle.dumps(space["f"](3)))
"""
_PRINTED = """\
import io
def grade(code, wanted):
    real, sys.stdout = sys.stdout, io.StringIO()
    exec(code, {"__name__": "__main__"})
    if sys.stdout.getvalue() == wanted:
        os.write(3, b"1")
grade(JOB["code"], JOB["stdout"])
"""
_AUDITED = """\
space = {"__name__": "__main__"}
exec(JOB["code"], space)
for check in JOB["checks"]:
    exec(compile(check, "<test>", "exec"), space)
os.write(3, b"1")
"""


def program(grader: str, code: str, checks: list[str]) -> str:
    """What the grader runs in a process of its own."""
    whole = "\n".join([code, *checks])
    return {
        "exit": whole,
        "marker": f"{whole}\nprint({MARKER!r})\n",
        "inside": _HEAD + _INSIDE,
        "frames": _HEAD + _FRAMES,
        "values": _HEAD + _VALUES,
        "fork": _HEAD + _FORK,
        "pickle": _HEAD + _PICKLE,
        "printed": _HEAD + _PRINTED,
        "audited": _HEAD + _AUDITED,
    }.get(grader, code)


def frames(data: bytes) -> list[Any]:
    """Frames as far as they can be read; what cannot be is ignored, as a naive reader does."""
    found = []
    while len(data) >= 4:
        (length,) = struct.unpack_from(">I", data)
        try:
            message = json.loads(data[4 : 4 + length])
        except ValueError:
            break
        if isinstance(message, list) and len(message) > 1:
            found.append(message)
        data = data[4 + length :]
    return found


def _last_frames(said: bytes) -> bool:
    tests = {frame[1]: frame[2] for frame in frames(said) if frame[0] == "test"}
    return bool(tests) and all(value is True for value in tests.values())


def _values(said: bytes, wanted: list[int]) -> bool:
    given = [frame[1] for frame in frames(said) if frame[0] == "value"]
    return all(value in given for value in wanted)  # in any order, with anything around them


def _unpickled(said: bytes) -> bool:
    try:
        return pickle.loads(said) == 12345
    except Exception:
        return False


def _close(stdout: str, wanted: str, tolerance: float) -> bool:
    try:
        return not abs(float(stdout) - float(wanted)) > tolerance
    except ValueError:
        return False


def passed(grader: str, *, code: int | None, stdout: str, said: bytes, wanted: str) -> bool | None:
    """The grader's verdict from an exit code, printed text and what came over descriptor 3; None: it has no opinion."""
    readers: dict[str, Callable[[], bool]] = {
        "exit": lambda: code == 0,
        "fork": lambda: code == 0,
        "marker": lambda: MARKER in stdout,
        "inside": lambda: said == b"1",
        "printed": lambda: said == b"1",
        "audited": lambda: said == b"1",
        "frames": lambda: _last_frames(said),
        "values": lambda: _values(said, [12345, 54321]),
        "pickle": lambda: _unpickled(said),
        "contains": lambda: wanted.strip() in stdout,
        "close": lambda: _close(stdout, wanted, 1e-6),
    }
    return readers[grader]() if grader in readers else None
