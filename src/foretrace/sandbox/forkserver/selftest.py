"""The self-test of a sandbox: a program in it probes each guard. A guard is on if it prevented its probe."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import tempfile
from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

from foretrace.sandbox.base import Guard
from foretrace.sandbox.inside import syscalls

PROBE_PROGRAM = Path(__file__).resolve().parents[1] / "inside" / "guard_probes.py"
NAMESPACES = ("user", "pid", "mnt", "net", "ipc", "uts")
_LEVELS = {
    **dict.fromkeys(("limits", "environment"), 0),
    **dict.fromkeys(("fork", "execute", "socket", "unshare", "trace", "metadata", "signal"), 1),
    **dict.fromkeys(("filesystem_read", "filesystem_write", "network"), 2),
    **dict.fromkeys(("jail", "scratch"), 3),
}
"""The lowest isolation level that needs each guard."""
RunInSandbox = Callable[[str], Awaitable[str]]
"""Runs a program in the sandbox and returns what it printed."""


async def run_selftest(run_in_sandbox: RunInSandbox, namespaces: dict[str, int], kinds: Sequence[str]) -> list[Guard]:
    """Probe every guard, and compare the fork server's `namespaces` (inode numbers by kind): those of `kinds` must not
    be this process's."""
    with make_decoys() as decoys:
        program = f"{PROBE_PROGRAM.read_text('utf-8')}\nmain({decoys!r})\n"
        printed = await run_in_sandbox(program)
    outcomes: Any = {}
    with contextlib.suppress(ValueError):
        outcomes = json.loads(printed)
    outcomes = outcomes if isinstance(outcomes, dict) else {}
    return [*_judge_outcomes(outcomes), _check_namespaces(namespaces, kinds)]


@contextlib.contextmanager
def make_decoys() -> Generator[dict[str, Any]]:
    """A file, a listening port and a variable that code must not reach."""
    with tempfile.TemporaryDirectory(prefix="foretrace-selftest-") as folder, socket.socket() as listener:
        decoy = Path(folder, "decoy")
        decoy.write_text("decoy", "utf-8")
        # Readable for every user: what keeps code out must be a guard, and not file permissions.
        os.chmod(folder, 0o777)
        os.chmod(decoy, 0o666)
        listener.bind(("127.0.0.1", 0))
        listener.listen(4)
        yield {
            "decoy": str(decoy),
            "port": listener.getsockname()[1],
            "variable": f"FORETRACE_{secrets.token_hex(4)}",
            "parent": os.getpid(),
            "unshare": syscalls.NUMBERS.get("unshare", -1),
            "vm_readv": syscalls.NUMBERS.get("process_vm_readv", -1),
        }


def _judge_outcomes(outcomes: dict[str, str]) -> Iterator[Guard]:
    """All guards, from the outcomes of the probes."""
    for name, level in _LEVELS.items():
        wanted = name == "scratch"  # the one probe that must succeed
        seen = outcomes.get(name, "no answer")
        on = seen != "no answer" and (seen == "done") == wanted
        reason = "it was possible" if seen == "done" else seen
        if on:
            reason = "a fresh folder, writable" if wanted else f"prevented: {seen}"
        yield Guard(name=name, on=on, level=level, reason=reason)


def _check_namespaces(namespaces: dict[str, int], kinds: Sequence[str]) -> Guard:
    own = {kind: path.stat().st_ino for kind in kinds if (path := Path("/proc/self/ns", kind)).exists()}
    shared = [kind for kind in kinds if namespaces.get(kind) in (None, own.get(kind))]
    return Guard(
        name="namespaces",
        on=not shared,
        level=3,
        reason=f"not of its own: {', '.join(shared)}" if shared else f"its own: {', '.join(kinds)}",
    )
