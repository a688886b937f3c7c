"""Preloaded packages are there at once, and nothing else that is installed can be imported or read."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

import foretrace
from sandbox.boxes import Box, box_at

pytest.importorskip("numpy")


@pytest.fixture(scope="module", params=[3, 2], ids=["L3", "L2"])
def numpy_box(request: pytest.FixtureRequest, runner: asyncio.Runner) -> Iterator[Box]:
    yield from box_at(request.param, runner, preload="numpy")


def test_numpy_is_there_at_once(numpy_box: Box) -> None:
    results = [numpy_box.run("import numpy as np\nprint(np.arange(5).sum())") for _ in range(5)]
    assert [r.stdout for r in results] == ["10\n"] * 5
    assert min(r.cpu_s or 1 for r in results) < 0.04  # a cold import takes 0.15 s


def test_its_parts_that_come_later_can_be_imported(numpy_box: Box) -> None:
    code = """
import numpy as np
import numpy.random, numpy.linalg, numpy.fft, numpy.polynomial, numpy.ma, numpy.testing
print(np.linalg.inv(np.eye(2)).trace(), np.random.default_rng(0).integers(10), np.fft.fft([1, 0]).real.sum())
print(np.linalg.svd(np.ones((60, 60)))[1].round()[0], np.ma.array([1, 2], mask=[0, 1]).sum())"""
    result = numpy_box.run(code, memory_mb=1024, cpu_s=5)
    assert (result.ending, result.stdout) == ("ok", "2.0 8 2.0\n60.0 1\n"), result


def test_without_a_preload_there_is_only_the_standard_library(box: Box) -> None:
    for name in ("numpy", "msgspec", "foretrace", "pip"):
        error = box.run(f"import {name}").error
        assert error is not None and error.kind == "ModuleNotFoundError", (name, error)


def test_nothing_else_that_is_installed_can_be_read(numpy_box: Box) -> None:
    import msgspec

    for path in (msgspec.__file__, foretrace.__file__, __file__):
        assert numpy_box.run(f"open({path!r}).read()").ending == "error"
    code = """
import sys, os
for p in sys.path:
    for q in (p + "/msgspec", p + "/foretrace"):
        try: print(os.listdir(q))
        except OSError: pass"""
    assert numpy_box.out(code) == ""


def test_a_program_begins_with_streams_and_warnings_as_python_has_them(box: Box) -> None:
    code = """
import sys, warnings
print([type(s).__name__ for s in (sys.stdout, sys.stderr)], warnings.showwarning.__module__, len(warnings.filters))
warnings.warn("said", DeprecationWarning)
def f(): warnings.warn("once", UserWarning)
f(), f()
"""
    result = box.run(code)
    assert result.stdout == "['TextIOWrapper', 'TextIOWrapper'] warnings 5\n"
    assert result.stderr.count("DeprecationWarning: said") == result.stderr.count("UserWarning: once") == 1, result


def test_what_was_printed_before_a_hang_is_kept(box: Box) -> None:
    assert box.run("print('a')\nprint('b')\nwhile True: pass", wall_s=0.3).stdout == "a\nb\n"


def test_many_lines_cost_what_they_cost_plain_python(box: Box) -> None:
    result = box.run("for n in range(100_000): print(n, 'line')", wall_s=20, stdout_kb=2_000)
    assert result.stdout.count("\n") == 100_000 and result.stdout.endswith("99999 line\n")
    assert (result.cpu_s or 9) < 0.5
