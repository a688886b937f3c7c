"""Memory that is copied while forking: what changed is found, and neither side pays for it page by page."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from foretrace.sandbox.inside.confine import syscalls
from foretrace.sandbox.inside.server import pinned_pages
from sandbox.boxes import Box

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux shows and pins pages")

_CHANGES = """
import ctypes, json, mmap, os, resource, signal, sys
from foretrace.sandbox.inside.server import pinned_pages
size, count = mmap.PAGESIZE, 400
memory = mmap.mmap(-1, size * count, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
wiped = mmap.mmap(-1, size * count, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
wiped.madvise(18)
def write(step):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for at in range(0, size * count, size * step): memory[at] = memory[at] + 1
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
def in_child(step):
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(theirs, json.dumps([write(step), memory[0]]).encode())
        signal.pause()
    said = json.loads(os.read(ours, 100))
    changed = pages.find_unshared(areas)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return said, changed
write(1)
wiped[:] = memory[:]
pages = pinned_pages.MemoryPages()
areas = pages.find_areas()
shared, changed = in_child(4)
start = ctypes.addressof(ctypes.c_char.from_buffer(memory)) // size
ours = sorted(number - start for number in changed if start <= number < start + count)
pinned = pinned_pages.pin_pages(pinned_pages.make_ring(), range(start, start + count))
eager, _ = in_child(4)
print(json.dumps({"ours": ours, "all": len(changed), "shared": shared, "pinned": pinned // size, "eager": eager,
    "here": memory[0], "after": write(4)}))
"""


def test_what_a_child_changes_is_found_and_then_copied_by_the_fork() -> None:
    """Written pages are found, wiped ones are not; pinned ones cost no fault on either side and stay apart."""
    done = subprocess.run([sys.executable, "-c", _CHANGES], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["ours"] == list(range(0, 400, 4)) and said["all"] < 400
    assert said["shared"][0] >= 100  # the control: shared pages do fault
    if not said["pinned"]:
        pytest.skip("io_uring is refused here")
    assert said["pinned"] == 400 and said["eager"][0] < 50 and said["after"] < 50
    assert said["eager"][1] == 2 and said["here"] == 1  # each side has its own


def test_fork_servers_pin_what_runs_change(box: Box) -> None:
    """As much as a run needs, and not all of the memory there is."""
    pool = box.sandbox._verified.pool
    found = [server.facts["pinned"] for server in (*pool._idle, *pool._lent)]
    if not _pins_here():
        pytest.skip("io_uring is refused here")
    assert found and all(1 << 19 < size < 4 << 20 for size in found), found


def _pins_here() -> bool:
    code = """
import mmap
from foretrace.sandbox.inside.server.pinned_pages import MemoryPages, make_ring, pin_pages
memory = mmap.mmap(-1, 4096, flags=34)
memory[0] = 1
print(pin_pages(make_ring(), [first for first, _ in MemoryPages().find_areas()[:1]]))
"""
    return subprocess.check_output([sys.executable, "-c", code], text=True).strip() != "0"


def test_a_machine_that_refuses_has_nothing_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a missing call, nor nothing, nor far too much is an error."""
    ring = pinned_pages.make_ring()
    assert (
        pinned_pages.pin_pages(ring, [])
        == pinned_pages.pin_pages(ring, range(1 << 14))
        == pinned_pages.pin_pages(-1, [1, 2])
        == 0
    )
    monkeypatch.setattr(syscalls, "NUMBERS", {})
    assert pinned_pages.make_ring() == -1 and pinned_pages.pin_pages(ring, [1, 2]) == 0
    if ring >= 0:
        os.close(ring)
