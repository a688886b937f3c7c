"""`foretrace ceiling`, `effects` and `replay`; what they compute is tested in tests/evaluation."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

import foretrace
from cli.conftest import Run
from evaluation.planted import plant
from evaluation.timed import DEPLOY, READ, RUN, WRITE, Timed, make_trace
from foretrace.api import evaluation
from foretrace.cli.display.speculation import write_time
from foretrace.core.errors import UsageError
from foretrace.core.predictions import PredictionsHeader, write_predictions
from foretrace.core.store import TraceStore, write_traces
from foretrace.core.trace import Trace


@pytest.fixture
def timed() -> Path:
    """Four traces of which most times are known."""
    steps = [Timed(5.0, 2.0, READ), Timed(4.0, 3.0, RUN), Timed(3.0, 0.5, WRITE), Timed(None, 1.0, READ)]
    write_traces([make_trace(steps[n % 2 :], key=f"k{n}", task=f"t{n}", agent="helper") for n in range(4)], "timed")
    return Path("timed")


@pytest.mark.usefixtures("timed")
def test_one_sentence_says_what_there_is_to_win(run: Run) -> None:
    done = run("ceiling timed")
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
    allowed = run("ceiling timed --allow sandbox_exec --guess-latency 0 --seed 3")
    assert allowed.out.startswith("a perfect predictor of the next call saves at most 29% ")


def test_workers_change_nothing(run: Run, timed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "_TRACES_PER_WORKER", 1)
    assert len(TraceStore(timed).shards) > 1
    assert run("ceiling timed --json --workers 2").json == run("ceiling timed --json").json
    assert foretrace.ceiling(timed) == foretrace.ceiling(timed, workers=2)


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
    ("seconds", "text"),
    [
        (0.25, "0.25 s"), (9.96, "10 s"), (59.9, "60 s"), (125, "2 min 5 s"), (3599.9, "1 h"), (12000, "3 h 20 min"),
        (86399, "1 d"), (93600, "1 d 2 h"), (0, "0 s"),
    ],
)  # fmt: skip
def test_a_time_has_its_two_largest_units(seconds: float, text: str) -> None:
    assert write_time(seconds) == text


def make_traces() -> list[Trace]:
    steps = [Timed(5.0, 2.0, READ), Timed(4.0, 3.0, RUN), Timed(3.0, 0.5, WRITE), Timed(6.0, 1.0, READ)]
    return [make_trace([*steps, Timed(None, 1.0)], key=f"k{n}", task=f"t{n}") for n in range(4)]


@pytest.fixture
def replayed() -> str:
    """Replays four traces of which most times are known. Half of the guesses are right, and the predictor knows it."""
    write_traces(make_traces(), "replayed")
    right = [n % 10 < 5 for n in range(20)]
    made = plant(make_traces(), lambda n: right[n], lambda n: {"confidence": 0.8 if right[n] else 0.2, "seconds": 0.5})
    write_predictions(Path("p.jsonl"), PredictionsHeader(predictor="planted"), made.rows)
    return "replay replayed --predictions p.jsonl"


def test_one_sentence_says_what_is_saved(run: Run, replayed: str) -> None:
    done = run(replayed)
    assert (done.code, done.err) == (0, "")
    first, second, third, *rest = done.out.splitlines()
    assert first == (
        "this predictor would have saved 6.1% [0, 12] of 1 min 38 s: 6 s, 1.07 times as fast; "
        "a perfect predictor would have saved 12% [12, 12]"
    )
    assert second == (
        "run early: 12 calls, 4 used, 8 not; held back as not safe: 4 guesses; 12 s of tool time "
        "wasted, 2 s for each second saved"
    )
    assert third == (
        "4 traces of 4 tasks; times are known of 80% of 20 steps with a prediction; the first guess is right at 50% "
        "of those with calls, at 50% of those that are safe to run early"
    )
    assert "saved            6.1%  12%" in rest
    for start in ("all (this)", "0.8                         4     4  6 s    6.1%         0 s"):
        assert any(line.startswith(start) for line in rest), done.out
    assert "assumed: a wrong call takes the median in these traces of calls of the same name (8)" in rest
    assert rest[-3] == "unknown times: no model time 4"
    worth = "worth it: 6.1% of the time is saved with 50% of the guesses right; `read_file` carries 100% of it"
    assert rest[-1] == worth


def test_options_reach_the_replay(run: Run, replayed: str) -> None:
    line = f"{replayed} --allow sandbox_exec --ahead 2 --top 2 --guess-latency 0.1 --verifier-s 0.25 --seed 3"
    assert run(line, "--json").json["settings"] == {
        "guess_latency": 0.1, "assume_times": None, "verifier_s": 0.25, "threshold": None, "ahead": 2, "top": 2,
        "allow": ["sandbox_exec"], "seed": 3,
    }  # fmt: skip
    assert "assumed: the verifier takes 0.25 s (16)" in run(line).out


def line(key: str, step: int) -> str:
    return json.dumps({"key": key, "step": step, "action": "file_read", "tool": "read_file", "arguments": {}}) + "\n"


def test_what_does_not_count_is_said(run: Run, replayed: str) -> None:
    bad = json.dumps({"key": "k0", "step": 1, "action": "file_read", "confidence": 7})
    Path("p.jsonl").write_text(f"{bad}\n" + line("k0", 3) + line("other", 3) + '{"key": "k0", "st')
    done = run(replayed)
    assert (done.code, done.err) == (0, "")
    *_, uncovered, left_out, _, last = done.out.splitlines()
    assert uncovered == "without a prediction: 3 steps of these traces, whose time counts, and none of it is saved"
    assert left_out == (
        "left out: predictions for steps that are not in these traces 1, bad confidence in the predictions 1, torn "
        "last line in the predictions 1"
    )
    assert last == "not worth it: no guess at a call that is safe to run early is right"


def test_a_table_and_a_file(run: Run) -> None:
    traces = [make_trace([Timed(call=READ), Timed(call=RUN), Timed(call=WRITE), Timed(call=READ)])]
    write_traces(traces, "t")
    done = run("effects t --out new/effects.json")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        "tool, pattern         class       calls  traces  effects",
        "read_file             read_only       2       1  pure_read 2",
        "bash                  unsafe          1       1  sandbox_exec 1",
        "  command: pytest -q  unsafe          1       1  sandbox_exec 1",
        "write_file            idempotent      1       1  local_write 1",
        "",
        "4 calls of 1 trace: 3 tools, 3 patterns",
        "file: new/effects.json",
    ]
    written = json.loads(Path("new/effects.json").read_text())
    again = run("effects t --out new/effects.json --json").json
    assert again == {"file": "new/effects.json", "replaced": True, **written}
    assert foretrace.effects("t").tools == foretrace.effects(traces).tools


@pytest.mark.parametrize(
    ("call", "more", "says"),
    [
        (("bash", {"command": "ls src"}), [], "may run ahead: pure_read"),
        (("bash", '{"command": "rm a"}'), [], "may not run ahead: local_write"),
        (RUN, [], "may not run ahead: sandbox_exec; seen 1 times: unsafe"),
        (RUN, ["--allow", "sandbox_exec"], "may run ahead: sandbox_exec; seen 1 times: unsafe"),
        (READ, [], "may run ahead: pure_read; seen 2 times: read_only"),
        (DEPLOY, [], "may not run ahead: external_write"),
    ],
)
def test_a_call_is_checked(run: Run, call: tuple[str, Any], more: list[str], says: str) -> None:
    foretrace.effects([make_trace([Timed(call=READ), Timed(call=RUN), Timed(call=READ)])], "e.json")
    text = json.dumps({"name": call[0], "arguments": call[1]})
    done = run("effects --manifest e.json --check", text, *more)
    assert (done.code, done.out) == (0, f"{says}\n")
    checked = foretrace.check_call(*call, manifest="e.json", allow=more[1:])
    assert checked.may_run_ahead == says.startswith("may run")
    assert foretrace.check_call(json.loads(text), manifest="e.json", allow=more[1:]) == checked


@pytest.mark.parametrize("call", [7, "", {}, {"name": 7}, {"name": "bash", "arguments": ["ls"]}])
def test_what_is_no_call_is_refused_from_python(call: Any) -> None:
    with pytest.raises(UsageError, match="not a call: give the name of a tool"):
        foretrace.check_call(call)


def test_calls_are_checked_from_stdin(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = '{"name": "bash", "arguments": {"command": "ls"}}\nx\n{"name": "x"}\n'
    monkeypatch.setattr("sys.stdin", io.StringIO(lines))
    first, wrong, last = map(json.loads, run("effects --check -").out.splitlines())
    assert (first["may_run_ahead"], last["may_run_ahead"]) == (True, False) and "is not a call" in wrong["error"]
