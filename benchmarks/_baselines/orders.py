"""What a measured program shares: the snippet, and a loop that takes orders as JSON lines and answers each with one."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

ANSWER = "def f(x):\n    return x + 1\n"
WRONG = "def f(x):\n    return x + 2\n"
TEST = "assert f(2) == 3"
NUMPY_ANSWER = "import numpy\n\ndef f(x):\n    return int(numpy.add(x, 1))\n"
NUMPY_WRONG = NUMPY_ANSWER.replace("1))", "2))")
AT_ONCE = 2
STEPS = 20
WORK = 300_000
"""Turns of the loop in a working block: about 20 ms."""


def blocks(working: bool) -> list[str]:
    """The blocks of a session; each uses what the ones before it made, and prints a running total."""
    waste = f"waste = sum(k * k % 7 for k in range({WORK}))\n" if working else ""
    return [
        f"def step_{n}(x):\n    return x + {n}\n{waste}total = step_{n}({'total' if n > 1 else '0'})\nprint(total)\n"
        for n in range(1, STEPS + 1)
    ]


LAST_TOTAL = sum(range(1, STEPS + 1))


def serve(label: str, act: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Answer each order with what `act` gives for it and the wall-clock seconds it took, until stdin ends."""
    # What is measured may print; only this descriptor answers.
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(message: dict[str, Any]) -> None:
        # Flushed at once: a fork must not inherit an answer that is still in the buffer.
        replies.write(json.dumps(message) + "\n")
        replies.flush()

    say({"label": label})
    for line in sys.stdin:
        begun = time.perf_counter()
        reply = act(json.loads(line))
        say({"wall": time.perf_counter() - begun, **reply})


def serve_checks(label: str, check: Callable[[str, int], int], answer: str = ANSWER, wrong: str = WRONG) -> None:
    """Serve orders to check the answer so many times; `check` gives how many of the checks passed.

    Refuses to be measured where the right answer fails or the wrong one passes: what checks nothing is fast.
    """
    if check(answer, AT_ONCE) != AT_ONCE:
        sys.exit(f"{label}: the right answer does not pass")
    if check(wrong, AT_ONCE):
        sys.exit(f"{label}: the wrong answer passes")
    serve(label, lambda order: {"passed": check(answer, order["count"])})
