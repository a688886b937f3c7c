"""Snippets, what was seen of one, and what of that is a violation."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import subprocess
import sys
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
_WEAK = {"allow_weak_isolation": True, "min_level": 0}
SETTINGS = {
    "L3": {"level": 3, "min_level": 3},
    "L2": {"level": 2},
    "container": {"refuse": True},
    "L1": {"level": 1, **_WEAK},
    "L0": {"level": 0, **_WEAK},
}
"""`container`: no user namespaces, and the level left to the sandbox. L0 and L1 promise only verdicts."""

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
    """One piece of code, and what must be seen of it."""

    name: str
    kind: str
    """`forge`, `leak`, `escape`, `resource` or `behaved`."""
    code: str
    forms: tuple[str, ...] = ("run",)
    """`run`, `session`, or a form of judging: `values`, `calls`, `program`, `together`."""
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
    """What was observed of one run."""

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


class Host:
    """A process of ours that runs snippets at one setting, and holds secrets in its environment, arguments, memory and
    descriptors. `isolation` is what its sandbox says of itself."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.world = World()
        with _decoy_descriptors(self.world) as (secret, folder):
            self.process = subprocess.Popen(
                [
                    *(sys.executable, str(HERE / "host.py"), json.dumps({"workers": 1, **settings})),
                    *(f"{secret},{folder}", SECRETS["argv"]),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={
                    **os.environ,
                    "FORETRACE_DECOY_TOKEN": SECRETS["env"],
                    "HOME": str(self.world.home),
                    "TMPDIR": str(self.world.work),
                },
                pass_fds=(secret, folder),
            )
        self._buffer = b""
        self.weighed = False
        """Whether `answer` keeps the peaks of its tree in `tasks` and `memory_mb`."""
        self.tasks, self.memory_mb = 0, 0.0
        hello = self.answer()
        self.raised = hello.get("raised", "")
        self.isolation = hello.get("isolation", {})
        if not self.raised:
            self.tell({"hold": SECRETS["memory"]})
            self._warm()

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
        now = self.world.seen()
        seen.changed = [name for name in sorted({*before, *now}) if before.get(name) != now.get(name)]
        return seen

    def _left(self) -> int:
        """How many processes there are beside the fork servers: its children, each perhaps with the first process of
        a pid namespace."""
        pid = self.process.pid
        rest = set(tree.descendants(pid)) - set(tree.children(pid))
        return sum(not tree.first_in_its_namespace(one) for one in rest)

    def close(self) -> None:
        """Let it close its sandbox; then whatever is left is ended."""
        assert self.process.stdin and self.process.stdout
        self.process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(5)
        tree.end_all(self.process.pid)
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
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
