"""Snippets, what was seen of one, and what of that is a violation; the same judge for guarded and unguarded runs."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hostile import tree
from hostile.world import SECRETS, World

HERE = Path(__file__).resolve().parent
WALL_S = 1.0
LIMITS: dict[str, float] = {
    "wall_s": WALL_S, "cpu_s": 1, "memory_mb": 256, "file_mb": 4, "scratch_mb": 8, "processes": 32, "open_files": 64,
    "stdout_kb": 64, "output_mb": 4, "reply_kb": 128,
}  # fmt: skip
PROBE = "print(1 + 1)"
MOST_TEXT = 1_500_000
"""What may come back of one run: twice the kept output, escaped, and some values."""
BLOCKS = "\n#---\n"
"""Between the blocks of a session."""

LITERALS = ({"code": "assert f(3) == 12345"}, {"code": "assert f(4) == 54321"})
LOOP = (
    {
        "code": "def check(candidate):\n"
        "    table = {3: 12000 + 345, 4: 54000 + 321}\n"
        "    for given, wanted in table.items():\n"
        "        assert candidate(given) == wanted, repr(candidate(given))\n"
    },
)
PROGRAM = ({"stdin": "3\n", "stdout": "12345\n"},)
TESTS = {"values": LITERALS, "calls": LOOP, "program": PROGRAM, "together": LITERALS}
"""The problem of a form: no snippet knows 12345 or 54321 unless it says `knows`."""


@dataclass(frozen=True, kw_only=True)
class Snippet:
    """One piece of code, what must be seen of it, and the unguarded control that it must bite."""

    name: str
    kind: str
    """`forge`, `leak`, `escape`, `resource` or `behaved`."""
    code: str
    forms: tuple[str, ...] = ("run",)
    """`run`, `session`, or a form of judging: `values`, `calls`, `program`, `together`."""
    control: str = "process"
    """What runs it unguarded: a plain `process`, a `fork` of the parent, an `inside_worker` that goes on after it, or
    one of the graders."""
    bites: str = ""
    """The violation that the control must show; empty: the kind's own."""
    tests: tuple[dict[str, Any], ...] = ()
    setup: str = ""
    stdin: str = ""
    limits: dict[str, float] = field(default_factory=dict)
    endings: tuple[str, ...] = ()
    """Endings that are right; empty: all of `ENDED`."""
    most: int | None = None
    """The code prints `TOOK n` for what it took: more than this is a violation. None: it may not print TOOK at all."""
    stdout: str | tuple[str, ...] | None = None
    """What must be printed, exactly (one of these)."""
    tasks: int | None = None
    """How many processes and threads it may have at one time."""
    memory_mb: float | None = None
    passes: bool | None = None
    """Whether it must pass its tests (well-behaved code)."""
    probe: str = PROBE
    """Run after it, in the same sandbox: must print 2."""
    needs: str = ""
    """What the control needs to bite: `root`, `x86_64`."""

    @property
    def weighed(self) -> bool:
        """Whether it matters how many tasks and how much memory it takes."""
        return self.tasks is not None or self.memory_mb is not None

    def world(self, facts: dict[str, Any]) -> tuple[str, str]:
        """Code and probe, each with `WORLD` where it asks for it."""
        head = f"WORLD = {facts!r}\n"
        first, *rest = self.code.split(BLOCKS)
        code = BLOCKS.join([head + first if "WORLD" in self.code else first, *rest])
        return code, head + self.probe if "WORLD" in self.probe else self.probe


@dataclass
class Seen:
    """What was observed of one run, guarded or not."""

    ending: str = ""
    stdout: str = ""
    everything: str = ""
    """All text that came back: output, errors, values."""
    passed: bool | None = None
    seconds: float = 0.0
    changed: list[str] = field(default_factory=list)
    tasks: int = 0
    memory_mb: float = 0.0
    left: int = 0
    """Processes that were still alive when it was over."""
    probe: str = ""
    raised: str = ""


ENDED = ("ok", "error", "exit", "timeout", "memory", "output", "killed")
"""Endings that are right where a snippet names none: not `lost`, which code cannot bring about."""
DEFAULT_BITE = {"forge": "forged", "leak": "leaked", "escape": "changed"}


def violations(snippet: Snippet, seen: Seen, slack_s: float = 1.0) -> list[str]:
    """What was seen that must not be. It is late when it ends `slack_s` after its time is up."""
    found = []
    if seen.raised:
        found.append(f"raised: {seen.raised}")
    if seen.passed and (snippet.kind == "forge" or snippet.passes is False):
        found.append("forged: the verdict is a pass")
    if snippet.passes and not seen.passed:
        found.append(f"alarm: right code does not pass: {seen.everything[:600]}")
    found += [f"leaked: {place}" for place, secret in SECRETS.items() if secret in seen.everything]
    found += [f"changed: {change}" for change in seen.changed]
    if seen.left:
        found.append(f"left: {seen.left} processes")
    if seen.seconds > snippet.limits.get("wall_s", WALL_S) + slack_s:
        found.append(f"late: {seen.seconds:.1f} s")
    allowed = snippet.endings or ENDED
    if seen.ending not in allowed and not seen.raised:
        found.append(f"ending: {seen.ending}: {seen.everything[:300]}")
    took = [int(number) for number in re.findall(r"TOOK (\d+)", seen.stdout)]
    if took and (snippet.most is None or max(took) > snippet.most):
        found.append(f"took: {max(took)}")
    if snippet.stdout is not None:
        right = (snippet.stdout,) if isinstance(snippet.stdout, str) else snippet.stdout
        if seen.stdout not in right:
            found.append(f"printed: {seen.stdout[:300]!r} of {right!r}; {seen.ending} {seen.everything[-300:]!r}")
    if len(seen.everything) > MOST_TEXT:
        found.append(f"verbose: {len(seen.everything)} characters came back")
    if snippet.tasks is not None and seen.tasks > snippet.tasks:
        found.append(f"tasks: {seen.tasks}")
    if snippet.memory_mb is not None and seen.memory_mb > snippet.memory_mb:
        found.append(f"memory: {seen.memory_mb:.0f} MiB")
    if seen.probe.strip() != "2":
        found.append(f"unusable: the next run gave {seen.probe[:200]!r}")
    return found


class Parent:
    """A process of ours that runs snippets and holds secrets in its environment, arguments, memory and descriptors."""

    def __init__(self, process: subprocess.Popen[bytes] | Fork) -> None:
        self.process = process
        self._buffer = b""
        self.weighed = False
        """Whether `answer` keeps the peaks of its tree in `tasks` and `memory_mb`."""
        self.tasks, self.memory_mb = 0, 0.0

    def tell(self, message: dict[str, Any]) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def answer(self, timeout_s: float = 30.0) -> dict[str, Any]:
        """The next line it says."""
        assert self.process.stdout
        until = time.monotonic() + timeout_s
        while b"\n" not in self._buffer:
            if select.select([self.process.stdout], [], [], 0.025)[0]:
                chunk = os.read(self.process.stdout.fileno(), 1 << 20)
                if not chunk:
                    return {"raised": f"the parent ended with {self.process.wait()}"}
                self._buffer += chunk
            elif time.monotonic() > until:
                return {"raised": f"no answer within {timeout_s:g} s"}
            if self.weighed:
                tasks, memory_mb = tree.weigh(self.process.pid)
                self.tasks, self.memory_mb = max(self.tasks, tasks), max(self.memory_mb, memory_mb)
        line, _, self._buffer = self._buffer.partition(b"\n")
        return json.loads(line)

    def close(self) -> None:
        tree.end_all(self.process.pid)
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe:
                pipe.close()


@contextlib.contextmanager
def _decoy_descriptors(world: World) -> Iterator[tuple[int, int]]:
    """A file with a secret, and the decoy folder, for a parent to hold."""
    secret, folder = os.memfd_create("decoy"), os.open(world.folder, os.O_RDONLY)
    try:
        os.write(secret, SECRETS["descriptor"].encode())
        yield secret, folder
    finally:
        os.close(secret)
        os.close(folder)


def _environment(world: World) -> dict[str, str]:
    return {"FORETRACE_DECOY_TOKEN": SECRETS["env"], "HOME": str(world.home), "TMPDIR": str(world.work)}


class Fork:
    """An unguarded parent, as far as `Parent` uses a `Popen`."""

    def __init__(self, pid: int, stdin: Any, stdout: Any) -> None:
        self.pid, self.stdin, self.stdout = pid, stdin, stdout
        self._pidfd = os.pidfd_open(pid)

        self.ended = False

    def kill(self) -> None:
        if not self.ended:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def wait(self) -> str:
        """Until it has ended; with what is known only to the process that it is a fork of."""
        if not self.ended:
            select.select([self._pidfd], [], [])
            os.close(self._pidfd)
            self.ended = True
        return "some exit code"


class UnguardedParents:
    """Forks a parent for each snippet from one process that has imported what they need, `naive.py`. It ends with the
    thread that made it."""

    def __init__(self) -> None:
        self._socket, its = socket.socketpair()
        self._process = subprocess.Popen(
            [sys.executable, "-S", str(HERE / "naive.py"), SECRETS["argv"]],
            stdin=its,
            env={**os.environ, "FORETRACE_DECOY_TOKEN": SECRETS["env"]},
        )
        its.close()
        self._lock = threading.Lock()

    def fork(self, world: World) -> Fork:
        ask, tell = os.pipe()
        hear, answer = os.pipe()
        with self._lock, _decoy_descriptors(world) as decoys:
            told = json.dumps(_environment(world)).encode()
            socket.send_fds(self._socket, [told], [ask, answer, *decoys])
            pid = int.from_bytes(self._socket.recv(4))
        os.close(ask)
        os.close(answer)
        assert pid, "the process that forks unguarded parents has ended"
        return Fork(pid, open(tell, "wb"), open(hear, "rb"))

    def close(self) -> None:
        self._socket.close()
        self._process.wait()


def unguarded(snippet: Snippet, parents: UnguardedParents) -> Seen:
    """Run it without any isolation, in its own world of decoys."""
    with World() as world:
        code, probe = snippet.world(world.facts())
        tests = snippet.tests or (PROGRAM if snippet.forms == ("program",) else LITERALS)
        before = world.seen()
        supervisor = Parent(parents.fork(world))
        checks = [
            test["code"] + ("\ncheck(f)" if "def check" in test["code"] else "") for test in tests if "code" in test
        ]
        checks[:1] = [f"{snippet.setup}\n{check}" for check in checks[:1]]
        # All of them end by themselves; those that show it by being late need not be waited for.
        cap = snippet.limits.get("wall_s", WALL_S) + 1.1 if "late" in snippet.bites else 10
        job = {"code": code, "control": snippet.control, "probe": f"{probe}\n", "checks": checks, "cap": cap}
        job |= {"wanted": tests[0].get("stdout") or "", "stdin": snippet.stdin or tests[0].get("stdin") or ""}
        job |= {"secret": SECRETS["memory"], "folder": str(world.work)}
        supervisor.weighed = snippet.weighed
        supervisor.tell(job)
        gave = supervisor.answer()
        after = world.seen()
        supervisor.close()
    seen = Seen(tasks=supervisor.tasks, memory_mb=supervisor.memory_mb, probe="2", changed=_differences(before, after))
    for name in ("raised", "ending", "stdout", "passed", "seconds", "left"):
        if name in gave:
            setattr(seen, name, gave[name])
    seen.everything = f"{gave.get('stdout', '')}{gave.get('stderr', '')}"
    if snippet.control == "inside_worker":
        seen.stdout, _, seen.probe = seen.stdout.rstrip("\n").rpartition("\n")
    return seen


def _differences(before: dict[str, str], after: dict[str, str]) -> list[str]:
    names = sorted({*before, *after})
    return [name for name in names if before.get(name) != after.get(name)]


class Host(Parent):
    """The guarded parent at one setting; `isolation` is what its sandbox says of itself."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.world = World()
        with _decoy_descriptors(self.world) as (secret, folder):
            process = subprocess.Popen(
                [
                    *(sys.executable, str(HERE / "host.py"), json.dumps({"workers": 1, **settings})),
                    *(f"{secret},{folder}", SECRETS["argv"]),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, **_environment(self.world)},
                pass_fds=(secret, folder),
            )
        super().__init__(process)
        hello = self.answer()
        self.raised = hello.get("raised", "")
        self.isolation = hello.get("isolation", {})
        if not self.raised:
            self.tell({"hold": SECRETS["memory"]})
            self._warm()

    def _warm(self) -> None:
        """One of everything, so that what is started when first needed is there."""
        for form in ("run", "values", "calls", "program", "session"):
            self.ask(form, "def f(x):\n    return x\n", tests=TESTS.get(form, ()), limits={})
        self.ask("run", "import time\ntime.sleep(9)", limits={**LIMITS, "wall_s": 0.2})
        self.ask("run", PROBE, limits={})

    def ask(self, form: str, code: str, **more: Any) -> dict[str, Any]:
        self.tell({"id": 0, "form": form, "code": code, "setup": "", "tests": (), **more})
        return self.answer()

    def run(self, snippet: Snippet, form: str) -> Seen:
        """Run it guarded, then its probe."""
        code, probe = snippet.world(self.world.facts())
        before = self.world.seen()
        self.tasks, self.memory_mb = 0, 0.0
        self.weighed = snippet.weighed
        idle_tasks, idle_mb = tree.weigh(self.process.pid) if self.weighed else (0, 0.0)
        begun = time.monotonic()
        gave = self.ask(
            form, code, tests=snippet.tests or TESTS.get(form, ()), setup=snippet.setup, stdin=snippet.stdin,
            limits={**LIMITS, **snippet.limits},
        )  # fmt: skip
        seconds = time.monotonic() - begun
        seen = read(gave)
        seen.seconds = seconds
        seen.tasks, seen.memory_mb = self.tasks - idle_tasks, self.memory_mb - idle_mb
        after = self.ask("run", probe, limits={})
        seen.probe = read(after).stdout or json.dumps(after)
        until = time.monotonic() + 1.0
        while (left := self._left()) and time.monotonic() < until:
            time.sleep(0.02)
        seen.left = left
        seen.changed = _differences(before, self.world.seen())
        return seen

    def _left(self) -> int:
        """How many processes there are beside the fork servers: its children, each perhaps with the first process of
        a pid namespace."""
        pid = self.process.pid
        rest = set(tree.descendants(pid)) - set(tree.children(pid))
        return sum(not tree.first_in_its_namespace(one) for one in rest)

    def close(self) -> None:
        """Let it close its sandbox; then whatever is left is ended."""
        self.process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(5)
        super().close()
        self.world.close()


def read(said: dict[str, Any]) -> Seen:
    """What a guarded parent's answer shows."""
    if "raised" in said:
        return Seen(raised=said["raised"], everything=said["raised"])
    gave = said["gave"]
    last = gave[-1] if isinstance(gave, list) else gave
    seen = Seen(ending=last.get("ending", "ok"), stdout=last.get("stdout", ""), everything=json.dumps(gave))
    if "tests" in last:
        seen.passed = bool(last["tests"]) and all(test["passed"] for test in last["tests"])
    return seen
