"""`foretrace ceiling` on the command line; what it computes is tested in tests/evaluation."""

from __future__ import annotations

from pathlib import Path

import pytest

import foretrace
from cli.conftest import Run
from evaluation.timed import READ, RUN, WRITE, Timed, make_trace
from foretrace.api import evaluation
from foretrace.cli.display.speculation import write_time
from foretrace.core.store import TraceStore, write_traces


@pytest.fixture
def timed(tmp_path: Path) -> Path:
    """Four traces of which most times are known."""
    steps = [Timed(5.0, 2.0, READ), Timed(4.0, 3.0, RUN), Timed(3.0, 0.5, WRITE), Timed(None, 1.0, READ)]
    made = [make_trace(steps[n % 2 :], key=f"k{n}", task=f"t{n}", agent="helper") for n in range(4)]
    write_traces(made, tmp_path / "timed")
    return tmp_path / "timed"


def test_one_sentence_says_what_there_is_to_win(run: Run, timed: Path) -> None:
    done = run("ceiling", timed)
    assert (done.code, done.err) == (0, "")
    first, second, *rest, last = done.out.splitlines()
    assert last == (
        "hardly worth it: 5% of the time is saved if 70% of the guesses are right and accepted; "
        "`read_file` carries 100% of it"
    )
    assert first == "a perfect predictor of the next call saves at most 7.1% [0, 11] of 56 s"
    assert second.startswith("4 traces of 4 tasks; times are known of 71% of 14 steps: 68% the model's, 32% the tools'")
    assert any(line.startswith("guess 3 calls ahead") for line in rest) and "unknown times: no model time 4" in rest
    assert [line.split("  ")[-1].strip() for line in rest if line.startswith("guess ")] == ["71%"] * 4
    allowed = run("ceiling", timed, "--allow", "sandbox_exec", "--guess-latency", "0", "--seed", "3")
    assert allowed.out.startswith("a perfect predictor of the next call saves at most 29% ")


def test_workers_change_nothing(run: Run, timed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "_TRACES_PER_WORKER", 1)
    assert len(TraceStore(timed).shards) > 1
    assert run("ceiling", timed, "--json", "--workers", "2").json == run("ceiling", timed, "--json").json
    assert foretrace.ceiling(timed) == foretrace.ceiling(timed, workers=2)


def test_json_has_all(run: Run, timed: Path) -> None:
    found = run("ceiling", timed, "--json").json
    assert (found["wall_s"], found["model_s"], found["tool_s"], found["eligible_s"]) == (56.0, 38.0, 18.0, 4.0)
    assert found["oracle"]["saved_s"] == found["ahead"]["2"]["saved_s"] == 4.0
    assert found["oracle"]["share"] == pytest.approx(4 / 56) and found["coverage"] == pytest.approx(10 / 14)
    assert found["name"] == "all"
    assert [row["name"] for row in found["tools"]] == ["read_file", "bash: pytest", "write_file"]
    report = foretrace.ceiling(timed)
    assert report.oracle.saved_s == 4.0 == foretrace.ceiling(foretrace.read_traces(timed)).oracle.saved_s


def test_without_times_it_is_unknown_and_says_what_to_record(run: Run, traces: Path) -> None:
    done = run("ceiling", traces)
    assert (done.code, done.err) == (0, "")
    assert done.out == (
        "unknown: the times of 0 of 12 steps are known, and half of them are needed; record the model's seconds on "
        "every reply (`model_s`), or time stamps of its input and its reply; or assume them: --assume-times tracelab\n"
    )
    assert run("ceiling", traces, "--json").json["verdict"] == "unknown"


def test_times_can_be_assumed(run: Run, traces: Path) -> None:
    shown = run("ceiling", traces, "--assume-times", "tracelab").out
    assert "times of 12 steps are assumed, not measured: a reply 5.7 s, a call 0.3 s (medians of" in shown
    own = run("ceiling", traces, "--assume-times", "model=6,tool=0.5,verifier=12", "--json").json
    assert own["assume_times"] == {"source": "given", "model": 6.0, "tool": 0.5, "actions": {"verifier": 12.0}}
    assert (own["verdict"], own["assumed_steps"]) == ("known", 12) and own["wall_s"] > 72


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--guess-latency", "-1"], "--guess-latency -1.0: give seconds, 0 or more"),
        (["--guess-latency", "nan"], "--guess-latency nan: give seconds, 0 or more"),
        (["--allow", "local_write"], "--allow local_write: is not safe to run early; what can be allowed is sandbox"),
        (["--allow", "all"], "--allow all: is not safe to run early"),
        (["--seed", "-1"], "--seed -1: give 0 or more"),
        (["--assume-times", "model=6"], "--assume-times model=6: give tool too, in seconds"),
        (["--assume-times", "model=6,tool=-1"], "--assume-times model=6,tool=-1: tool is not between 0 and 86,400 s"),
        (["--assume-times", "model=6,tool=1,x=2"], "--assume-times model=6,tool=1,x=2: unknown name 'x'; take model"),
        (["--assume-times", "nowhere"], "--assume-times nowhere: give tracelab, or seconds such as model=6,tool=0.5"),
    ],
)
def test_a_wrong_value_is_one_line(run: Run, timed: Path, options: list[str], said: str) -> None:
    done = run("ceiling", timed, *options)
    assert done.code == 2 and done.out == "" and done.err.count("\n") == 1
    assert done.err.startswith(f"foretrace: {said}")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.25, "0.25 s"), (9.96, "10 s"), (59.9, "60 s"), (125, "2 min 5 s"), (3599.9, "1 h"), (12000, "3 h 20 min"),
        (86399, "1 d"), (93600, "1 d 2 h"), (0, "0 s"),
    ],
)  # fmt: skip
def test_a_time_has_its_two_largest_units(seconds: float, text: str) -> None:
    assert write_time(seconds) == text
