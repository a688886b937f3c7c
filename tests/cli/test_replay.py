"""`foretrace replay` on the command line; what it computes is tested in tests/evaluation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import foretrace
from cli.conftest import Run
from evaluation.planted import plant
from evaluation.timed import READ, RUN, WRITE, Timed, make_trace
from foretrace.core.predictions import PredictionsHeader, write_predictions
from foretrace.core.store import write_traces
from foretrace.core.trace import Trace


def make_traces() -> list[Trace]:
    steps = [Timed(5.0, 2.0, READ), Timed(4.0, 3.0, RUN), Timed(3.0, 0.5, WRITE), Timed(6.0, 1.0, READ)]
    return [make_trace([*steps, Timed(None, 1.0)], key=f"k{n}", task=f"t{n}") for n in range(4)]


@pytest.fixture
def timed(tmp_path: Path) -> Path:
    """Four traces of which most times are known."""
    write_traces(make_traces(), tmp_path / "timed")
    return tmp_path / "timed"


@pytest.fixture
def guesses(tmp_path: Path) -> Path:
    """Half of the guesses are right, and the predictor knows it."""
    made = plant(
        make_traces(), lambda n: n % 10 < 5, lambda n: {"confidence": 0.8 if n % 10 < 5 else 0.2, "seconds": 0.5}
    )
    write_predictions(tmp_path / "p.jsonl", PredictionsHeader(predictor="planted"), made.rows)
    return tmp_path / "p.jsonl"


def test_one_sentence_says_what_is_saved(run: Run, timed: Path, guesses: Path) -> None:
    done = run("replay", timed, "--predictions", guesses)
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
    assert any(line.startswith("all (this)") for line in rest)
    assert any(line.startswith("0.8                         4     4  6 s    6.1%         0 s") for line in rest), (
        done.out
    )
    assert "assumed: a wrong call takes the median in these traces of calls of the same name (8)" in rest
    assert rest[-3] == "unknown times: no model time 4"
    assert (
        rest[-1] == "worth it: 6.1% of the time is saved with 50% of the guesses right; `read_file` carries 100% of it"
    )


def test_json_has_all(run: Run, timed: Path, guesses: Path) -> None:
    found = run("replay", timed, "--predictions", guesses, "--json", "--threshold", "0.5").json
    assert (found["base_s"], found["saved_s"], found["launched"], found["hits"]) == (98.0, 6.0, 4, 4)
    assert (found["wasted_s"], found["stale"], found["gate"]) == (0.0, 0, "confidence")
    assert found["share"] == pytest.approx(6 / 98) and found["settings"]["threshold"] == 0.5
    assert [point["threshold"] for point in found["frontier"]] == [None, 0.2, 0.5, 0.8]
    report = foretrace.replay(timed, guesses)
    assert report.saved_s == 6.0 == foretrace.replay(foretrace.read_traces(timed), guesses).saved_s


def test_options_reach_the_replay(run: Run, timed: Path, guesses: Path) -> None:
    options = ["--allow", "sandbox_exec", "--ahead", "2", "--top", "2"]
    options += ["--guess-latency", "0.1", "--verifier-s", "0.25", "--seed", "3"]
    done = run("replay", timed, "--predictions", guesses, *options, "--json")
    assert done.json["settings"] == {
        "guess_latency": 0.1, "assume_times": None, "verifier_s": 0.25, "threshold": None, "ahead": 2, "top": 2,
        "allow": ["sandbox_exec"], "seed": 3,
    }  # fmt: skip
    shown = run("replay", timed, "--predictions", guesses, *options).out
    assert "assumed: the verifier takes 0.25 s (16)" in shown


def line(key: str, step: int) -> str:
    return json.dumps({"key": key, "step": step, "action": "file_read", "tool": "read_file", "arguments": {}}) + "\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (line("x", 1), "p.jsonl: none of its 1 predictions is for a step of these traces; name the traces"),
        ('{"key": "k0"\n', "p.jsonl line 1: is not a prediction"),
    ],
)
def test_bad_predictions_are_one_line(run: Run, timed: Path, tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "p.jsonl").write_text(text)
    done = run("replay", timed, "--predictions", tmp_path / "p.jsonl")
    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
    assert said in done.err


def test_what_does_not_count_is_said(run: Run, timed: Path, tmp_path: Path) -> None:
    bad = json.dumps({"key": "k0", "step": 1, "action": "file_read", "confidence": 7})
    (tmp_path / "p.jsonl").write_text(f"{bad}\n" + line("k0", 3) + line("other", 3) + '{"key": "k0", "st')
    done = run("replay", timed, "--predictions", tmp_path / "p.jsonl")
    assert (done.code, done.err) == (0, "")
    *_, uncovered, left_out, _, last = done.out.splitlines()
    assert uncovered == "without a prediction: 3 steps of these traces, whose time counts, and none of it is saved"
    assert left_out == (
        "left out: predictions for steps that are not in these traces 1, bad confidence in the predictions 1, torn "
        "last line in the predictions 1"
    )
    assert last == "not worth it: no guess at a call that is safe to run early is right"
