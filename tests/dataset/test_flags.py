"""The filter of cheats: a success with a cheat gives no row, is counted, and is kept where that is asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dataset.little import build, examine, rows, runs, says, seen, trace, user
from foretrace.core.trace import Trace
from foretrace.dataset.settings import BuildSettings
from foretrace.dataset.trace_filters import FlagFilter, select_traces

CHEAT = "git log --all --oneline"


def attempt(number: int, *, cheats: bool, success: bool | None = True) -> Trace:
    """An attempt of two commands at a task of its own."""
    first = CHEAT if cheats else "git log -5"
    looks = runs(first), seen("4f2c9ab1 Sum"), runs(f"cat a{number}.py"), seen(f"x = {number}")
    said = user(f"Fix bug {number}."), *looks, says("Fixed.")
    return trace(f"k{number:02}", *said, task=f"t{number}", group=f"g{number}", success=success)


def decide(*traces: Trace, keep: bool = False) -> tuple[dict[str, str], dict[str, Any]]:
    """What is left out, and what the manifest says."""
    filters = [FlagFilter(BuildSettings(keep_flagged=keep))]
    selection = select_traces(filters, examine(traces, filters))
    return selection.left_out, selection.filters["flags"]


def test_successes_with_a_cheat_are_left_out_and_counted() -> None:
    left_out, said = decide(attempt(1, cheats=True), attempt(2, cheats=False))
    assert left_out == {"k01": "flags"}
    assert said["by_source"] == {"little:train": {"history.read": 1}}
    assert (said["successes"], said["flagged"], said["left_out"], said["kept"]) == (2, 1, 1, False)
    assert said["rules"] == {"history.read": 1}


@pytest.mark.parametrize("success", [False, None])
def test_what_is_no_success_stays(success: bool | None) -> None:
    left_out, said = decide(attempt(1, cheats=True, success=success))
    assert left_out == {} and said["flagged"] == 0


def test_a_mark_leaves_nothing_out() -> None:
    ended = trace("k", user("Look."), runs("cat a.py"), seen("x = 1"), says("Done."))
    outcome = msgspec.structs.replace(ended.outcome, fabricated=True)
    left_out, said = decide(msgspec.structs.replace(ended, outcome=outcome))
    assert left_out == {} and said["rules"] == {"ending.fabricated": 1} and said["flagged"] == 0


def test_a_build_has_no_row_of_them(tmp_path: Path) -> None:
    traces = [attempt(n, cheats=n % 4 == 0) for n in range(40)]
    for kept, left_out in ((False, 10), (True, 0)):
        folder = tmp_path / str(kept)
        found = build(folder, *traces, recipes=["trajectories"], keep_flagged=kept)["filters"]["flags"]
        assert (found["left_out"], found["flagged"]) == (left_out, 10)
        assert (CHEAT in json.dumps(list(rows(folder / "d", "trajectories")))) == kept
