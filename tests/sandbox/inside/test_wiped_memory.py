"""A child finds nothing in its memory of what its fork server's earlier children were told, held or said."""

from __future__ import annotations

import asyncio
import secrets
import warnings
from typing import Any

import pytest

from foretrace.core.problem import Test
from foretrace.sandbox.base import Limits
from sandbox.boxes import Box, box_at

# Reads all of its memory page by page through a pipe, which refuses what is not mapped: it needs no /proc. A second
# search goes by /proc where that can be read.
_SEARCH = """
import ctypes, os, re
libc = ctypes.CDLL(None)
libc.malloc.restype = libc.getauxval.restype = ctypes.c_void_p
libc.write.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t)
mark = bytes(x ^ 1 for x in CODED)
planted = mark + bytes(x ^ 1 for x in [113, 109, 96, 111, 117, 100, 101])
near = [id(None), id(object()), id(planted), libc.malloc(600), libc.malloc(1 << 20), libc.getauxval(31),
    ctypes.cast(libc.printf, ctypes.c_void_p).value, ctypes.addressof(ctypes.c_int())]
ranges, reach = [], 1 << 27
for low, high in sorted((max(a - reach, 1 << 16) & -4096, (a + reach) & -4096) for a in near):
    if ranges and low <= ranges[-1][1]: ranges[-1][1] = max(high, ranges[-1][1])
    else: ranges.append([low, high])
read, write = os.pipe()
found, size = set(), 0
def look(block):
    found.update(m.decode() for m in re.findall(re.escape(mark) + b"([a-z]+)", block))
for low, high in ranges:
    last = b""
    while low < high:
        count = libc.write(write, low, 65536)
        if count <= 0:
            low, last = low + 4096, b""
            continue
        block = last + os.read(read, 65536)
        look(block)
        last, low, size = block[-100:], low + count, size + count
def by_proc():
    with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", 0) as memory:
        for line in maps:
            low, high = (int(word, 16) for word in line.split()[0].split("-"))
            try:
                memory.seek(low)
                look(memory.read(high - low))
            except (OSError, ValueError, OverflowError): pass
seen = "no"
try: by_proc()
except OSError: pass
else: seen = "yes"
print(size > 4_000_000, seen, *sorted(found))
"""
LONG = Limits(wall_s=20, cpu_s=15)


async def tell(sandbox: Any, mark: str) -> None:
    """Have each thing that a fork server passes on carry the mark and its own name."""
    much = "y" * 200_000
    program = (
        f"# {mark}code {much}\nimport sys\nprint(input())\nprint('{mark}printed')\n"
        f"print('{mark}complained', file=sys.stderr)\nraise ValueError('{mark}raised')"
    )
    result = await sandbox.run(program, stdin=f"{mark}given{much}{mark}given\n")
    assert f"{mark}given" in result.stdout and result.error and result.error.message == f"{mark}raised"
    code = f"def f(x):\n    return x.replace('argument', 'answer') # {mark}candidate"
    tests = [Test(code=f"assert f('{mark}argument') == '{mark}answer'"), Test(code=f"assert f('a') != '{mark}wanted'")]
    checks = [
        Test(
            code=f"def check(candidate):\n    x = '{mark}relayed'\n    assert candidate(x + {much!r})[:5] == x[:5]\n"
            f"    assert candidate('') != '{mark}expected'"
        )
    ]
    assert (await sandbox.judge(code, tests, entry_point="f")).passed
    for form in ("calls", "together"):
        verdict = await sandbox.judge(code, checks, entry_point="f", setup=f"y = '{mark}setup'", form=form)
        assert verdict.passed and verdict.integrity == form, verdict
    async with await sandbox.session() as session:
        assert (await session.run(f"x = '{mark}block'\nprint('{mark}out'){' ' * 200_000}")).ok
        assert (await session.run(f"class {mark}kind(Exception): pass\nraise {mark}kind('{mark}failed')")).error


async def search(sandbox: Any, mark: str) -> list[list[str]]:
    """What the children of all fork servers find."""
    code = f"CODED = {[ord(letter) ^ 1 for letter in mark]}\n{_SEARCH}"
    results = await asyncio.gather(*(sandbox.run(code, limits=LONG) for _ in range(2)))
    assert all(result.ok for result in results), results
    return [result.stdout.split() for result in results]


def boxes(level: int, runner: asyncio.Runner) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield from box_at(level, runner, workers=2)


def found(box: Box) -> list[list[str]]:
    mark = f"Q{secrets.token_hex(6)}_"
    for _ in range(2):  # the second time through fork servers that are not fresh
        box.do(tell(box.sandbox, mark))
    return box.do(search(box.sandbox, mark))


@pytest.mark.parametrize("level", [3, 0, *(pytest.param(level, marks=pytest.mark.slow) for level in (2, 1))])
def test_nothing_of_earlier_children_is_found(runner: asyncio.Runner, level: int) -> None:
    for box in boxes(level, runner):
        for enough, by_proc, *names in found(box):
            assert enough == "True" and names == ["planted"]
            assert by_proc == "yes" or level > 0


@pytest.mark.slow
@pytest.mark.parametrize(("level", "tries"), [(0, 1), (3, 40)])
def test_without_wiped_memory_it_would_be_found(runner: asyncio.Runner, spoiled: Any, level: int, tries: int) -> None:
    spoiled("parent_connection.py", "memory.madvise(_WIPE_ON_FORK)", "pass")
    for _ in range(tries):  # without /proc, the search does not reach the memory wherever the kernel places it
        for box in boxes(level, runner):
            if {name for _, _, *names in found(box) for name in names} - {"planted"}:
                return
    pytest.fail("nothing was found")
