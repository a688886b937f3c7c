"""The self-test: a guard that is not in force is found out, whatever the configuration says."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from foretrace.core.errors import SandboxError
from foretrace.sandbox.forkserver import selftest
from foretrace.sandbox.local import LocalSandbox
from sandbox.boxes import Box, settings


def test_every_guard_of_the_level_is_on(box: Box) -> None:
    guards = {g.name: g for g in box.do(box.sandbox.guards())}
    assert {n for n, g in guards.items() if g.level <= box.level and not g.on} == set()
    assert {g.level for g in guards.values()} == {0, 1, 2, 3} and all(g.reason for g in guards.values())
    assert len(guards) == len(box.do(box.sandbox.guards()))
    missing = box.do(box.sandbox.start()).missing
    assert set(missing) == {n for n, g in guards.items() if not g.on}


@pytest.mark.skipif(os.getuid() != 0, reason="others may not do all of it")
def test_a_plain_process_gets_through_each_probe(tmp_path: Path) -> None:
    """Else what a guard prevents would fail without it, too."""
    with selftest.make_decoys() as decoys:
        program = f"{selftest.PROBE_PROGRAM.read_text('utf-8')}\nmain({decoys!r})\n"
        environment = {**os.environ, decoys["variable"]: "secret"}
        done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True)
    assert set(json.loads(done.stdout).values()) == {"done"}


SECCOMP, INSTRUCTIONS = "seccomp.py", "Instructions = list"
SPOILT: dict[str, tuple[str, str, str, int, set[str]]] = {
    # What is broken: file, line, what it becomes, the level asked for, the guards that must be found off.
    "nothing": ("jail.py", "NOBODY = 65534", "NOBODY = 65534", 3, set()),
    "no landlock": ("child.py",
        'self.calls.append(syscalls.prepare_call("landlock_restrict_self", rules, 0))', "pass", 2, {
        "filesystem_read", "filesystem_write"}),
    "landlock lets read": ("fork_server.py", "readable, listable = jail.carve_holes(roots, holes)",
        'readable, listable = ["/"], []', 2, {
        "filesystem_read"}),
    "no filter": ("seccomp.py", "0x00050000", "0x7FFF0000", 2, {
        "fork", "socket", "unshare", "trace"}),
    "filter lets forks, sockets and chmod": (
        SECCOMP, INSTRUCTIONS, f"_ALLOWED += ' fork clone socket chmod'\n{INSTRUCTIONS}", 2, {
        "fork", "socket", "metadata"}),
    "no limits": ("child.py", "resource.setrlimit(kind, (limit, limit))", "pass", 3, {"limits"}),
    "no new namespaces": ("jail.py", '"net", "ipc"', '"ipc"', 3, {"namespaces"}),
    "no scratch": ("jail.py", "mode=0700,uid=", "mode=0500,uid=", 3, {"scratch"}),
}  # fmt: skip


@pytest.mark.parametrize("name", SPOILT)
def test_a_guard_that_does_not_work_is_found_out(runner: asyncio.Runner, spoiled: Any, name: str) -> None:
    file, line, other, level, off = SPOILT[name]
    spoiled(file, line, other)
    sandbox = LocalSandbox(settings(level))
    if not off:
        assert runner.run(sandbox.start()).level == level
        runner.run(sandbox.close())
        return
    with pytest.raises(SandboxError, match="self-test") as caught:
        runner.run(sandbox.start())
    found = str(caught.value).split("the self-test failed: ")[1].split("; mend that")[0]
    # One broken guard may let others' acts through, but what is broken must be among those named.
    assert off <= {part.split(" (")[0] for part in found.split("; ")}, found


@pytest.mark.parametrize("printed", ["", "x", "[]", "5", '{"a": ', "null", '"x"'])
def test_an_answer_that_cannot_be_read_proves_nothing(printed: str) -> None:
    async def say(program: str) -> str:
        return printed

    assert not any(guard.on for guard in asyncio.run(selftest.run_selftest(say, {}, ("user",))))
