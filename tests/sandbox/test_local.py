"""What a program is given and what its run says, with the guards of level 3 and of level 2 in force."""

from __future__ import annotations

import json
import signal
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from foretrace.core.problem import RunResult
from sandbox.boxes import Box
from timing import AT_ONCE_S, LateError, assert_quick, thrice_if_late

# A program, and what it prints when run as a script.
ORDINARY: dict[str, tuple[str, str]] = {
    "main": ("if __name__ == '__main__': print(__name__, __file__)", "__main__ main.py\n"),
    "dataclass": ("from dataclasses import dataclass\n@dataclass\nclass A:\n  x: int = 1\nprint(A())", "A(x=1)\n"),
    "pickle": ("import pickle\nclass A: x = 3\nprint(pickle.loads(pickle.dumps(A())).x)", "3\n"),
    "exception": (
        "class E(ValueError): pass\ntry:\n  raise E('a')\nexcept ValueError as e: print(repr(e))",
        "E('a')\n",
    ),
    "generator": ("def g():\n  x = yield 1\n  yield x\ni = g(); print(next(i), i.send(5))", "1 5\n"),
    "future": ("from __future__ import annotations\ndef f(x: Nope): pass\nprint(f.__annotations__)", "{'x': 'Nope'}\n"),
    "asyncio": ("import asyncio\nasync def f():\n  await asyncio.sleep(0)\n  return 3\nprint(asyncio.run(f()))", "3\n"),
    "threads": (
        "from concurrent.futures import ThreadPoolExecutor as T\nwith T(4) as p: print(*p.map(abs, (-1, -2)))",
        "1 2\n",
    ),
    "atexit": ("import atexit; atexit.register(print, 'bye'); print('hi')", "hi\nbye\n"),
    "late thread": (
        "import threading, time\ndef f():\n  time.sleep(.03); print('late')\n"
        "threading.Thread(target=f).start(); print('end')",
        "end\nlate\n",
    ),
    "unicode": ("print('é', '\\u4e2d', '\\U0001f40d')", "é 中 🐍\n"),
    "lone byte": ("print('\\udc80')", "�\n"),
    "sqlite": ("import sqlite3; print(sqlite3.connect(':memory:').execute('select 1').fetchall())", "[(1,)]\n"),
    "inspect": ("import inspect\ndef f(): pass\nprint(inspect.getsource(f))", "def f(): pass\n\n"),
    "recursion": ("def f(n): return n and f(n - 1)\nprint(f(900))", "0\n"),
    "traceback": ("import traceback\ntry: 1/0\nexcept Exception: print(traceback.format_exc()[:9])", "Traceback\n"),
    "zone": ("import zoneinfo; print(zoneinfo.ZoneInfo('Europe/Berlin'))", "Europe/Berlin\n"),
    "many modules": (
        "import urllib.request, ssl, hashlib, decimal, lzma, bz2, unittest, ctypes, json, csv, fractions, statistics\n"
        "import xml.etree.ElementTree, logging, argparse, array, queue, secrets, textwrap, tokenize, ast, dis\n"
        "print(hashlib.sha256(b'').hexdigest()[:4])",
        "e3b0\n",
    ),
    "own stdout": ("import sys, io\nprint(1)\nsys.stdout = io.StringIO()\nprint(2)", "1\n"),
    "no stdout": ("import sys\nprint(1)\nsys.stdout = None", "1\n"),
    "closed stdout": ("import sys\nprint(1)\nsys.stdout.close()", "1\n"),
    "own exit": ("import os\nos._exit = lambda code: None\nprint(1)", "1\n"),
    "raw writes": ("import os\nos.write(1, b'a'); print('b', flush=True); os.write(1, b'c')", "ab\nc"),
}


@pytest.mark.parametrize("name", ORDINARY)
def test_an_ordinary_program(box: Box, name: str) -> None:
    code, printed = ORDINARY[name]
    result = box.run(code)
    assert (result.ending, result.stdout, result.error) == ("ok", printed, None), result
    assert result.stderr == "" and not result.truncated and result.exit_code is None
    assert result.isolation.level == box.level and result.step is None and result.mode is None


def test_streams_are_kept_apart(box: Box) -> None:
    result = box.run("import sys\nfor i in range(3):\n  print(i)\n  print('e', i, file=sys.stderr)")
    assert (result.stdout, result.stderr) == ("0\n1\n2\n", "e 0\ne 1\ne 2\n")


@pytest.mark.parametrize("text", ["", "one\ntwo", "é\r\n", "x" * 500_000 + "\n", "\x00\n"])
def test_stdin(box: Box, text: str) -> None:
    code = "import sys; d = sys.stdin.buffer.read(); print(len(d), sum(d))"
    data = text.encode()
    assert box.out(code, stdin=text) == f"{len(data)} {sum(data)}\n"


def test_input_reads_lines_and_then_ends(box: Box) -> None:
    assert box.out("print(input() + input())", stdin="a\nb\n") == "ab\n"
    result = box.run("input()")
    assert result.ending == "error" and result.error and result.error.kind == "EOFError"


@pytest.mark.parametrize(
    ("code", "exit_code", "stderr"),
    [
        ("import sys; sys.exit()", 0, ""),
        ("import sys; sys.exit(3)", 3, ""),
        ("import sys; sys.exit(-1)", 255, ""),
        ("import sys; sys.exit(2**40)", None, ""),
        ("import sys; sys.exit('bad luck')", 1, "bad luck\n"),
        ("import sys; sys.exit((1, 2))", 1, "(1, 2)\n"),
        ("exit()", 0, ""),
        ("quit(4)", 4, ""),
        ("raise SystemExit(5)", 5, ""),
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


def test_an_error_inside_the_library_names_the_line_of_the_code(box: Box) -> None:
    error = box.run("import json\n\njson.loads('{')").error
    assert error and error.kind == "JSONDecodeError" and error.line == 3


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("class E(BaseException): pass\nraise E('q')", "E"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("raise ExceptionGroup('a', [ValueError(1), TypeError(2)])", "ExceptionGroup"),
        ("def f(): f()\nf()", "RecursionError"),
        ("class E(Exception):\n  def __str__(self): raise ValueError\nraise E", "E"),
        ("class E(Exception):\n  def __str__(self): return 5\nraise E", "E"),
        ("raise ValueError('x' * 10**6)", "ValueError"),
        ("raise type('K' * 10**5, (Exception,), {})", "K" * 100),
        ("raise ValueError('\\ud800')", "ValueError"),
        ("import sys\nsys.stderr = None\n1/0", "ZeroDivisionError"),
        ("import sys\nsys.excepthook = 5\n1/0", "ZeroDivisionError"),
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


def test_memory(box: Box) -> None:
    result = box.run("x = bytearray(10**10)")
    assert result.ending == "memory" and result.error and result.error.kind == "MemoryError" and result.error.line == 1


def test_memory_used_up_in_small_pieces(box: Box) -> None:
    # Nothing is freed when the error is raised: to say so must need next to no memory.
    result = box.run("x = []\nwhile True: x.append([0] * 500)", memory_mb=128, cpu_s=5)
    assert result.ending == "memory", result


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
        "import time\nprint('x', flush=True)\nwhile True:\n  try: time.sleep(60)\n  except BaseException: pass",
        "import os, signal\nprint('x', flush=True)\nos.kill(os.getpid(), signal.SIGSTOP)",
        "import threading, time\nprint('x', flush=True)\nthreading.Thread(target=time.sleep, args=(60,)).start()",
        "import atexit, time\nprint('x', flush=True)\natexit.register(time.sleep, 60)",
        "import sys, time\nprint('x', flush=True)\nsys.stdin.close(); sys.stderr.close(); time.sleep(60)",
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
        ("import ctypes; ctypes.string_at(0)", signal.SIGSEGV),
        ("import os; os.abort()", signal.SIGABRT),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", signal.SIGTERM),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", signal.SIGKILL),
        (
            "import signal, time; signal.alarm(1); signal.setitimer(signal.ITIMER_REAL, .05); time.sleep(9)",
            signal.SIGALRM,
        ),
    ],
)
def test_killed_by_a_signal(box: Box, code: str, number: signal.Signals) -> None:
    result = box.run(f"print('x', flush=True)\n{code}")
    assert (result.ending, result.stdout, result.exit_code) == ("killed", "x\n", None)
    assert result.error and f"signal {int(number)}" in result.error.message


def test_output_is_kept_up_to_a_size(box: Box) -> None:
    result = box.run("import sys\nprint('a' * 200_000)\nprint('b', file=sys.stderr)")
    assert result.ok and result.truncated and result.stdout == "a" * 65536 and result.stderr == "b\n"
    exact = box.run("import sys\nsys.stdout.write('a' * 65536)")
    assert len(exact.stdout) == 65536 and not exact.truncated
    assert box.run("print('é' * 1000)", stdout_kb=1).stdout == "é" * 512


def test_a_flood_is_ended(box: Box) -> None:
    result = box.run("import sys\nwhile True: sys.stdout.write('x' * 65536)", output_mb=2)
    assert result.ending == "output" and result.truncated and len(result.stdout) == 65536
    assert result.error and result.error.kind == "OutputLimit" and "2 MiB" in result.error.message
    both = "import os\nfor i in range(48): os.write(1 + i % 2, b'x' * 65536)"
    assert box.run(both, output_mb=2).ending == "output"  # both streams count


def test_output_of_many_small_writes_comes_whole(box: Box) -> None:
    code = "import time\nfor i in range(200):\n  print(i, flush=True)\n  if i % 50 == 0: time.sleep(.005)"
    assert box.out(code) == "".join(f"{i}\n" for i in range(200))


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


def test_the_same_code_gives_the_same_output(box: Box) -> None:
    code = "import random\nprint(hash('a'), random.random(), random.sample(range(99), 3), {'b', 'a', 'c'})"
    assert len({box.out(code) for _ in range(3)}) == 1


def test_only_four_descriptors_are_open(box: Box) -> None:
    code = "import os\nfor i in range(300):\n  try: os.fstat(i); print(i)\n  except OSError: pass"
    assert box.out(code).split() == ["0", "1", "2", "3"]


def test_runs_leave_nothing_to_one_another(box: Box) -> None:
    spoil = "import builtins, sys, os\nbuiltins.print = None\nsys.path.clear()\nos.environ['X'] = '1'\nsys.modules['json'] = 5"  # noqa: E501
    assert box.run(spoil).ok
    assert box.out("import os, json; print(os.environ.get('X'), json.dumps(1))") == "None 1\n"


@thrice_if_late
def test_times_are_measured(box: Box) -> None:
    result = box.run("import time\nx = sum(range(10**6))\ntime.sleep(.1)")
    assert result.seconds >= 0.1 and result.cpu_s and 0.0 < result.cpu_s < 1
    assert_quick(result.seconds, 2)


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


def test_a_reply_without_end(box: Box) -> None:
    result = box.run("import os\nos.write(3, bytes([0, 0, 16, 0]))\nwhile True: os.write(3, b' ' * 65536)", wall_s=30)
    assert not result.ok and result.ending != "timeout" and result.seconds < AT_ONCE_S


def test_closing_the_channel_harms_nobody_else(box: Box) -> None:
    result = box.run("import os\nos.close(3)\nprint(1)")
    assert result.stdout == "1\n" and result.ending in ("ok", "exit")
    assert "foretrace" not in result.stderr
    assert box.out("print(2)") == "2\n"


FORBIDDEN: dict[str, str] = {
    "fork": "import os; os.fork()",
    "spawn": "import os; os.posix_spawn('/bin/true', ['true'], {})",
    "subprocess": "import subprocess; subprocess.run(['/bin/true'])",
    "socket": "import socket; socket.socket()",
    "kill all": "import os; os.kill(-1, 9)",
    "kill the parent": "import os; os.kill(os.getppid(), 9)",
    "raise a limit": "import resource; resource.setrlimit(resource.RLIMIT_CPU, (99, 99))",
    "setsid": "import os; os.setsid()",
    "chown": "import os; os.chown('.', 0, 0)",
    "outlive the parent": (
        "import ctypes\nif ctypes.CDLL(None, use_errno=True).prctl(1, 0, 0, 0, 0): raise OSError(ctypes.get_errno())"
    ),
}


@pytest.mark.parametrize("name", FORBIDDEN)
def test_forbidden_acts_raise_plain_errors(box: Box, name: str) -> None:
    result = box.run(FORBIDDEN[name])
    assert result.ending == "error" and result.error is not None, result
    assert result.error.kind in ("PermissionError", "OSError", "FileNotFoundError", "ValueError"), result.error


def test_what_can_be_read_and_written(box: Box, tmp_path: Path) -> None:
    tmp_path.joinpath("decoy").write_text("x")
    code = (
        f"decoy = {str(tmp_path)!r}"
        + """
import json, os
def tries(act):
    try: act(); return "yes"
    except OSError as e: return type(e).__name__
print(json.dumps({
    "library": tries(lambda: open(os.__file__).read()),
    "passwd": tries(lambda: open("/etc/passwd").read()),
    "folder": tries(lambda: os.listdir(decoy)),
    "file": tries(lambda: open(decoy + "/decoy").read()),
    "proc": tries(lambda: open("/proc/self/environ").read()),
    "scratch": tries(lambda: open("file", "w").write("x")),
    "tmp": tries(lambda: open("/tmp/foretrace-test-written", "w").write("x")),
    "library write": tries(lambda: open(os.__file__, "a")),
    "null": tries(lambda: open("/dev/null", "w").write("x")),
    "random": tries(lambda: open("/dev/urandom", "rb").read(1)),
}))"""
    )
    seen: dict[str, Any] = json.loads(box.out(code))
    assert {k for k, v in seen.items() if v == "yes"} == {"library", "null", "random"} | (
        {"scratch", "tmp"} if box.level == 3 else set()
    )


def test_files_of_the_scratch_folder_work_as_files_do(jailed: Box) -> None:
    code = """
import os, pathlib, shutil, tempfile
pathlib.Path("a").write_text("x"); os.chmod("a", 0o600); shutil.copy2("a", "b"); os.rename("b", "c")
os.symlink("c", "l"); os.link("c", "h"); os.mkdir("d"); os.truncate("a", 0)
with tempfile.TemporaryDirectory() as folder: open(folder + "/x", "w").close()
print(sorted(os.listdir(".")), open("l").read())"""
    assert jailed.out(code) == "['a', 'c', 'd', 'h', 'l'] x\n"
    assert jailed.out("import os; print(os.listdir('.'), os.listdir('/tmp'))") == "[] []\n"


def test_the_running_interpreter_runs_the_code(box: Box) -> None:
    assert box.out("import sys; print(sys.version)") == sys.version + "\n"


def test_no_mark_is_left_on_what_runs_share(box: Box) -> None:
    mark = (
        "import fcntl, os\n"
        "try:\n    fcntl.fcntl(0, fcntl.F_SETFL, os.O_APPEND | os.O_NONBLOCK)\nexcept OSError: pass\n"
        "try:\n    fcntl.flock(0, fcntl.LOCK_EX)\nexcept OSError as error: print(type(error).__name__)\n"
    )
    assert box.run(mark).stdout == "PermissionError\n"
    seen = box.run("import fcntl, os\nprint(fcntl.fcntl(0, fcntl.F_GETFL) & (os.O_APPEND | os.O_NONBLOCK))")
    assert seen.stdout == "0\n"


def test_what_was_printed_before_a_crash_is_kept(box: Box) -> None:
    assert box.run("print('before')\nimport os\nos._exit(3)").stdout == "before\n"
