"""What a program is given and what its run says, with the guards of level 3 and of level 2 in force."""

from __future__ import annotations

import json
import signal
import time

import msgspec
import pytest

from foretrace.core.problem import RunResult
from sandbox.boxes import Box
from timing import LateError, assert_quick, thrice_if_late

# A program, and what it prints when run as a script.
ORDINARY: dict[str, tuple[str, str]] = {
    "late thread": (
        "import threading, time\ndef f():\n  time.sleep(.03); print('late')\n"
        "threading.Thread(target=f).start(); print('end')",
        "end\nlate\n",
    ),
    "many modules": (
        "import urllib.request, ssl, hashlib, decimal, lzma, bz2, unittest, ctypes, json, csv, fractions, statistics\n"
        "import xml.etree.ElementTree, logging, argparse, array, queue, secrets, textwrap, tokenize, ast, dis\n"
        "print(hashlib.sha256(b'').hexdigest()[:4])",
        "e3b0\n",
    ),
    "own stdout": ("import sys, io\nprint(1)\nsys.stdout = io.StringIO()\nprint(2)", "1\n"),
    "closed stdout": ("import sys\nprint(1)\nsys.stdout.close()", "1\n"),
    "own exit": ("import os\nos._exit = lambda code: None\nprint(1)", "1\n"),
}


@pytest.mark.parametrize("name", ORDINARY)
def test_an_ordinary_program(box: Box, name: str) -> None:
    code, printed = ORDINARY[name]
    result = box.run(code)
    assert (result.ending, result.stdout, result.error) == ("ok", printed, None), result
    assert result.stderr == "" and not result.truncated and result.exit_code is None
    assert result.isolation.level == box.level and result.step is None and result.mode is None


@pytest.mark.parametrize("text", ["", "one\ntwo", "é\r\n", "x" * 500_000 + "\n", "\x00\n"])
def test_stdin(box: Box, text: str) -> None:
    code = "import sys; d = sys.stdin.buffer.read(); print(len(d), sum(d))"
    data = text.encode()
    assert box.out(code, stdin=text) == f"{len(data)} {sum(data)}\n"


@pytest.mark.parametrize(
    ("code", "exit_code", "stderr"),
    [
        ("import sys; sys.exit(3)", 3, ""),
        ("import sys; sys.exit(-1)", 255, ""),
        ("import sys; sys.exit(2**40)", None, ""),
        ("import sys; sys.exit('bad luck')", 1, "bad luck\n"),
        ("exit()", 0, ""),
        ("quit(4)", 4, ""),
        ("import os; os._exit(6)", 6, ""),
        ("import sys, atexit\natexit.register(print, 'bye')\nsys.exit(7)", 7, ""),
    ],
)
def test_leaving(box: Box, code: str, exit_code: int | None, stderr: str) -> None:
    result = box.run(code)
    assert (result.ending, result.stderr, result.error) == ("exit", stderr, None), result
    assert exit_code is None or result.exit_code == exit_code
    assert result.ok == (exit_code == 0)
    assert result.stdout == ("bye\n" if "atexit" in code else "")


TRACE = """def f(x):
    return g(x)

def g(x):
    return 1 / x

print("before")
f(0)
"""


def test_an_error_names_its_line_and_frames(box: Box) -> None:
    result = box.run(TRACE)
    assert result.ending == "error" and result.stdout == "before\n" and result.exit_code is None
    error = result.error
    assert error and (error.kind, error.message, error.line) == ("ZeroDivisionError", "division by zero", 5)
    assert error.traceback == (
        '  File "main.py", line 8, in <module>\n  File "main.py", line 2, in f\n  File "main.py", line 5, in g'
    )
    assert result.stderr.startswith("Traceback (most recent call last):\n") and "return 1 / x" in result.stderr
    assert "foretrace" not in result.stderr  # none of the sandbox's own frames


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("class E(BaseException): pass\nraise E('q')", "E"),
        ("raise ExceptionGroup('a', [ValueError(1), TypeError(2)])", "ExceptionGroup"),
        ("def f(): f()\nf()", "RecursionError"),
        ("class E(Exception):\n  def __str__(self): raise ValueError\nraise E", "E"),
        ("raise ValueError('x' * 10**6)", "ValueError"),
        ("raise type('K' * 10**5, (Exception,), {})", "K" * 100),
        ("raise ValueError('\\ud800')", "ValueError"),
        ("import sys\nsys.stderr = None\n1/0", "ZeroDivisionError"),
        ("import traceback\ntraceback.format_exception = None\n1/0", "ZeroDivisionError"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGINT)\nimport time; time.sleep(1)", "KeyboardInterrupt"),
    ],
)
def test_any_exception_is_described_in_bounds(box: Box, code: str, kind: str) -> None:
    result = box.run(code)
    assert result.ending == "error" and result.error is not None, result
    assert result.error.kind == kind and len(result.error.message) <= 500 and len(result.error.traceback) <= 2000
    # The record goes into JSON, which has no lone surrogates.
    assert msgspec.json.decode(msgspec.json.encode(result), type=RunResult) == result


@pytest.mark.parametrize("level", ["jailed", pytest.param("unjailed", marks=pytest.mark.slow)])
def test_cpu_limit(request: pytest.FixtureRequest, level: str) -> None:
    """It holds to within half a second, and for code that ignores the kernel's signal, too."""
    code = "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass"
    result = request.getfixturevalue(level).run(code, cpu_s=0.5, wall_s=60)
    assert result.ending == "timeout" and result.error and result.error.kind == "Timeout"
    assert result.error.message == "it used more than 0.5 s of processor time"
    assert result.cpu_s and 0.5 <= result.cpu_s < 1.0


@pytest.mark.parametrize(
    "code",
    [
        "import time\nprint('x', flush=True)\ntime.sleep(60)",
        "import os, time\nprint('x', flush=True)\nfor d in range(4): os.close(d)\ntime.sleep(60)",
    ],
)
@thrice_if_late
def test_wall_limit(box: Box, code: str) -> None:
    before = time.monotonic()
    result = box.run(code, wall_s=0.3)
    took = time.monotonic() - before
    assert result.ending == "timeout" and result.stdout in ("x\n", ""), result
    assert result.error and result.error.kind == "Timeout" and "0.3 s" in result.error.message
    assert result.seconds >= 0.3
    assert_quick(took, 1.7)
    assert_quick(result.seconds, 1.4)
    if not result.stdout:
        raise LateError("its time was up before it printed")


@pytest.mark.parametrize(
    ("code", "number"),
    [
        ("import os; os.abort()", signal.SIGABRT),
        ("import signal, time; signal.alarm(1); signal.setitimer(signal.ITIMER_REAL, .05); time.sleep(9)", 14),
    ],
)
def test_killed_by_a_signal(box: Box, code: str, number: int) -> None:
    result = box.run(f"print('x', flush=True)\n{code}")
    assert (result.ending, result.stdout, result.exit_code) == ("killed", "x\n", None)
    assert result.error and f"signal {int(number)} (" in result.error.message


def test_output_is_kept_up_to_a_size(box: Box) -> None:
    result = box.run("import sys\nprint('a' * 200_000)\nprint('b', file=sys.stderr)")
    assert result.ok and result.truncated and result.stdout == "a" * 65536 and result.stderr == "b\n"
    exact = box.run("import sys\nsys.stdout.write('a' * 65536)")
    assert len(exact.stdout) == 65536 and not exact.truncated
    assert box.run("print('é' * 1000)", stdout_kb=1).stdout == "é" * 512


def test_environment_is_clean_and_the_same_everywhere(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORETRACE_TEST_SECRET", "secret")
    code = (
        "import os, sys, json\nprint(json.dumps([dict(os.environ), sys.argv, os.getcwd(), [m for m in sys.modules]]))"
    )
    environment, argv, folder, modules = json.loads(box.out(code))
    assert not {k for k in environment if "FORETRACE" in k or k in ("USER", "PYTHONPATH", "VIRTUAL_ENV")}
    assert environment["PYTHONHASHSEED"] == "0"
    assert environment["HOME"] == environment["TMPDIR"] == ("/box/tmp" if box.level == 3 else "/tmp")
    assert argv == [""] and not [m for m in modules if m.startswith("foretrace")]
    assert folder == ("/box/tmp" if box.level == 3 else "/")


def test_a_run_cannot_say_that_it_came_to_its_end(box: Box) -> None:
    forge = (
        "import os, json, struct\ndef say(m):\n  b = json.dumps(m).encode()\n"
        "  os.write(3, struct.pack('>I', len(b)) + b)\n"
    )
    assert box.run(forge + "say(['ended', None]); os._exit(3)").ending == "exit"
    assert box.run(forge + "say(['ended', None]); os.abort()").ending == "killed"
    assert box.run(forge + "say(['ended', None]); 1/0").ending != "ok"
    for junk in (5, [], {}, "x", ["ended"], ["ended", 5], ["ended", {"kind": 5}], ["ended", {"kind": "E", "line": []}]):
        result = box.run(forge + f"say({junk!r}); os._exit(3)")
        assert result.ending in ("exit", "error") and not result.ok, (junk, result)
    for raw in (b"\xff" * 9, b"\0\0\0\1x", b"\0\0\0\4null", b"\0\0\0\xff", b"\0\x08\0\0" + b"[" * 2**19):
        result = box.run(f"import os\nos.write(3, {raw[:40]!r} + {raw[40:50]!r} * {len(raw) // 10})\nos._exit(3)")
        assert result.ending in ("exit", "killed") and not result.ok, (raw[:9], result)
    assert box.out("print(1)") == "1\n"


def test_no_mark_is_left_on_what_runs_share(box: Box) -> None:
    mark = (
        "import fcntl, os\n"
        "try:\n    fcntl.fcntl(0, fcntl.F_SETFL, os.O_APPEND | os.O_NONBLOCK)\nexcept OSError: pass\n"
        "try:\n    fcntl.flock(0, fcntl.LOCK_EX)\nexcept OSError as error: print(type(error).__name__)\n"
    )
    assert box.run(mark).stdout == "PermissionError\n"
    seen = box.run("import fcntl, os\nprint(fcntl.fcntl(0, fcntl.F_GETFL) & (os.O_APPEND | os.O_NONBLOCK))")
    assert seen.stdout == "0\n"
