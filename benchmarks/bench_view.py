"""Pages of `view` in Chromium: how long a large folder takes to write, and its list and longest traces to open.

    python benchmarks/bench_view.py [--traces 100000] [--steps 2]

The traces are small ones of `--steps` steps, under keys and tasks of their own, beside one of 1,000 steps, one of 3,000
and one with a message of 5 MB. Times of the browser are those of the page's own thread, by its clock, from the address
to the last row or step; wall time stands beside them. Without playwright or Chromium the bench says so and ends.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import foretrace
from foretrace.core.store import write_traces
from foretrace.core.trace import Message, Outcome, Provenance, Task, ToolCall, Trace, add_trace_id

GOAL_S = 2.0


def make_trace(key: str, steps: int, *, first: str = "Find out why the test fails, and mend it.") -> Trace:
    """A trace of calls and results, timed."""
    messages = [Message(role="user", author="user", content=first)]
    for n in range(steps):
        call = ToolCall(id=f"c{n}", name="bash", arguments=f'{{"command": "sed -n {n},{n + 40}p src/module.py"}}')
        messages.append(Message(role="assistant", author="model", content="", tool_calls=(call,), model_s=2.0))
        result = f"{n}: def function():\n" * 12
        messages.append(
            Message(role="tool", author="environment", content=result, tool_call_ids=(call.id,), tool_s=0.4)
        )
    origin = Provenance(origin="imported", source="bench", model=f"model-{len(key) % 7}")
    outcome = Outcome(success=bool(steps % 2), reward=0.5)
    task = Task(id=f"task-{key}", group="bench")
    return add_trace_id(Trace(key=key, task=task, messages=tuple(messages), provenance=origin, outcome=outcome))


def make_traces(count: int, steps: int) -> Iterator[Trace]:
    """The long ones first."""
    yield make_trace("long-1000", 1000)
    yield make_trace("long-3000", 3000)
    yield make_trace("wide", 2, first="word " * 1_000_000)
    for n in range(count - 3):
        yield make_trace(f"bench@1/train:row-{n:08d}", 1 + n % (2 * steps))


def measure_page(browser: Any, address: str, last: str) -> tuple[float, float]:
    """Seconds of the page's thread, and of the wall, until `last` is there."""
    page = browser.new_page()
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    begun = time.perf_counter()
    page.goto(address)
    page.wait_for_selector(last, state="attached", timeout=120_000)
    wall = time.perf_counter() - begun
    found = {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}
    page.close()
    return found["TaskDuration"], wall


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=int, default=100_000)
    parser.add_argument("--steps", type=int, default=2, help="mean number of steps of a trace")
    given = parser.parse_args()
    executable = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        sync_playwright = None
    if sync_playwright is None or executable is None:
        print("left out: playwright or Chromium is not installed (make .venv/browser)")
        return
    with tempfile.TemporaryDirectory() as place:
        folder, out = Path(place, "traces"), Path(place, "view")
        write_traces(make_traces(given.traces, given.steps), folder)
        before = resource.getrusage(resource.RUSAGE_SELF)
        report = foretrace.view(folder, out=out)
        after = resource.getrusage(resource.RUSAGE_SELF)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        size = sum(path.stat().st_size for path in out.rglob("*"))
        index = sum(path.stat().st_size for path in (out / "data").glob("index-*.js"))
        print(f"view of {report.listed:,} traces: {cpu:.1f} CPU s, {size / 1e6:.0f} MB, its list {index / 1e6:.1f} MB")
        print(f"memory at its peak: {after.ru_maxrss / 1024:.0f} MB")
        address = (out / "index.html").as_uri()
        whole = f".count:has-text('{report.listed:,} traces'):not(:has-text('loading'))"
        opened = {
            "the list, its first rows": (address, "#results tbody tr"),
            "the list, whole": (address, whole),
            "a trace of 1,000 steps": (f"{address}#long-1000", "#m1999"),
            "a trace of 3,000 steps": (f"{address}#long-3000", "#m5999"),
            "a message of 5 MB": (f"{address}#wide", "#m3"),
        }
        flags = ["--no-sandbox"] if os.geteuid() == 0 else []
        with sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=executable, args=flags)
            for name, (at, last) in opened.items():
                own, wall = measure_page(browser, at, last)
                print(f"{name}: {own:.2f} s of the page's thread, {wall:.2f} s in all (goal {GOAL_S:.0f} s)")
            browser.close()


if __name__ == "__main__":
    main()
