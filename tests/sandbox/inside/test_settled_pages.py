"""What a fork costs: memory that is written no more belongs to a file, and no module does anything at forks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import foretrace

MODULE = "foretrace.sandbox.inside.server.container_relay"
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux shows the areas of memory")

_SETTLE = """
import ctypes, json, os, sys
from foretrace.sandbox.inside.server import pinned_pages, settled_pages
def read(areas): return [ctypes.string_at(start, end - start).hex() for start, end in areas]
pages = pinned_pages.MemoryPages()
areas = pages.find_read_only()
before = read(areas)
settled = settled_pages.settle_pages(pages)
import decimal, sqlite3, ctypes.util  # what they call now is found by the addresses that were settled
if os.fork() == 0:
    os._exit(0 if read(areas) == before else 1)
same = os.waitstatus_to_exitcode(os.wait()[1]) == 0 and read(areas) == before
left = len(set(areas) & set(pages.find_read_only()))
print(json.dumps([len(areas), settled, sum(end - start for start, end in areas), same, left]))
"""


def test_memory_that_is_written_no_more_is_a_file_with_the_same_bytes() -> None:
    done = subprocess.run([sys.executable, "-c", _SETTLE], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    count, settled, size, same, left = json.loads(done.stdout)
    assert count > 5 and settled == size and same and left == 0


def test_no_module_is_imported_that_acts_at_forks_before_it_is_kept_from_that() -> None:
    folder = str(Path(foretrace.__file__).parents[1])
    code = f"import sys; sys.path.insert(0, {folder!r}); import {MODULE}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert not {"threading", "random", "logging"} & set(done.stdout.split())
