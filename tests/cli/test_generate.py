"""`foretrace generate`: what it makes, says and refuses."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from cli.conftest import Run, write_rows
from fakes.model_server import Asked, ModelServer, serving
from foretrace.api.generation import generate
from foretrace.cli.display.generate import describe_progress
from foretrace.core.errors import ForetraceWarning, UsageError
from foretrace.core.problem import Problem, Test
from foretrace.core.store import read_traces
from foretrace.episodes.generate.progress import RunProgress
from foretrace.models.servers.scripted import Scripted
from foretrace.models.token_meter import TokenMeter
from models.test_probe import picky

RIGHT = "<think>I add one.</think><code>\ndef inc(x):\n    return x + 1\n</code>"
WRONG = "<think>I take one.</think><code>\ndef inc(x):\n    return x - 1\n</code>"
DONE = "<verify>It is done.</verify>"


@pytest.fixture
def setting() -> str:
    """Three problems, and a script that solves two of them, one after an error."""
    names, tests = ("first", "second", "third"), ["assert inc(0) == 1", "assert inc(41) == 42"]
    given = {"entry_point": "inc", "public_tests": tests[:1], "tests": tests}
    write_rows(Path("problems.jsonl"), [{"id": n, "statement": f"The {n} one: add 1.", **given} for n in names])
    turns = {"first": [RIGHT, DONE], "second": [WRONG, RIGHT, DONE], "third": [WRONG, DONE]}
    write_rows(Path("script.jsonl"), [{"turns": turns[n], "match": f"The {n} one"} for n in names])
    return f"generate {PROBLEMS} --model scripted:script.jsonl --out t"


PROBLEMS = "--problems jsonl --path problems.jsonl --protocol tools"


def test_parts_together_are_the_whole(run: Run, setting: str) -> None:
    for more in ("", "--part 1/2 --out one", "--part 2/2 --out other"):
        assert run(f"{setting} {more}").code == 0
    whole, one, other = ({trace.key for trace in read_traces(folder)} for folder in ("t", "one", "other"))
    assert one | other == whole and not one & other and len(one) == 2
    for part in ("3/2", "0/2", "2", "a/b"):
        refused = run(f"{setting} --part {part}")
        assert refused.code == 2 and f"--part {part}" in refused.err


def test_a_table_a_folder_and_the_probe(run: Run, setting: str) -> None:
    result = run(setting)
    assert result.code == 0, result.err
    for line in (
        "attempts       3 = 0 already there + 0 filtered out + 3 done now + 0 not started",
        "success        66.7% of 3",
        "mean reward    0.3333",
        "recovered      50.0% of those that erred",
        "stored         3",
        "isolation      level",
        "has_tool_feedback",
    ):
        assert line in result.out
    assert "the model server does: continuation, reasoning_apart" in result.err
    assert "not logprobs: a script has no tokens" in result.err
    assert sorted(t.task.id for t in read_traces("t")) == ["jsonl/first", "jsonl/second", "jsonl/third"]
    assert run("label t --out labels.jsonl").code == 0


@pytest.mark.usefixtures("setting")
def test_all_options_from_a_file(run: Run) -> None:
    Path("c.toml").write_text(
        'problems = "jsonl"\npath = "problems.jsonl"\nprotocol = "tools"\nmodel = "scripted:script.jsonl"\nout = "t"\n'
        'max-turns = 2\nhints = true\nfeedback = "counts"\nstructure-bonus = true\nmax-time = 60\nkeep = "success"\n'
        'concurrency = 2\n[model-option]\ntokens = "bytes"\n'
    )
    result = run("generate --config c.toml --json -q")
    assert result.code == 0, result.err
    assert (result.json["stored"], result.json["left_out"]) == (2, {"not_success": 1})
    (trace,) = (t for t in read_traces("t") if t.task.id == "jsonl/first")
    assert trace.provenance.sampling["feedback"] == "counts" and trace.provenance.sampling["hints"]
    assert trace.outcome.reward == pytest.approx(1.1)  # with the bonus for the verify block
    assert trace.provenance.capabilities["token_ids"] and trace.provenance.tool_versions["foretrace"]


LEAVES = "<code>\ndef inc(x):\n    return x\nimport sys\nsys.exit(0)\n</code>"
EQUALS_ALL = (
    "<code>\nclass Equal(int):\n    def __eq__(self, other): return True\n    __hash__ = None\n"
    "def inc(x):\n    return Equal()\n</code>"
)


def test_a_model_that_cheats_its_tests_is_flagged(run: Run, setting: str) -> None:
    """In the trace, in what `show` prints, in the page of `view` and in the column of the dataset."""
    replies = {"first": LEAVES, "second": EQUALS_ALL, "third": RIGHT}
    script = [{"turns": [reply, DONE], "match": f"The {name} one"} for name, reply in replies.items()]
    write_rows(Path("script.jsonl"), script)
    assert run(f"{setting} --flagged zero -q").code == 0
    outcomes = {trace.task.id.removeprefix("jsonl/"): trace.outcome for trace in read_traces("t")}
    flags = {name: outcome.flags for name, outcome in outcomes.items()}
    assert flags == {"first": ("exited",), "second": ("same_for_others",), "third": ()}
    assert {name: outcome.reward for name, outcome in outcomes.items()} == {"first": -1.0, "second": -1.0, "third": 1.0}
    shown = run("show t", next(t.key for t in read_traces("t") if t.outcome.flags == ("exited",))).out
    assert "the answer was flagged: exited" in shown and "verdict.exited" in shown
    assert run("view t --out page").code == 0
    page = "".join(file.read_text("utf-8") for file in Path("page").rglob("*") if file.suffix in (".html", ".js"))
    assert "verdict.same_for_others" in page
    built = run("build t --out d --outcomes all -q")
    assert built.code == 0, built.err
    files = Path("d/trajectories").glob("*.parquet")
    rows = [row for file in files for row in pq.read_table(file, columns=["task", "flags"]).to_pylist()]
    assert {row["task"].removeprefix("jsonl/"): tuple(row["flags"]) for row in rows} == flags


def test_errors_and_what_is_left_stand_within_79_columns() -> None:
    status = RunProgress(TokenMeter())
    status.doing, status.done, status.remaining = "running", 12_345, 123_456 - 12_345
    status.successes, status.ideal_attempts, status.in_flight = 6_789, 4_567, 8
    status.started = time.monotonic() - 600.0
    status._recent[0] = (status.started, 0, 0)
    status.errors.update(stream=567, overflow=1_234, sandbox=89, timeout=12)
    told = describe_progress(status)
    assert "12,345 of 123,456 done, 90 min left; errors: overflow 1,234, stream 567, ..." in told[:79]
    parts = ["of 123,456 done", " left", "errors: ", "% passed", "% ideal", "tokens/s", "8 in progress"]
    assert sorted(parts, key=told.index) == parts
    status.errors.clear()
    assert "55% passed, 37% ideal" in describe_progress(status)[:79]


def test_the_good_rows_of_a_problem_file_are_attempted(run: Run, setting: str) -> None:
    with Path("problems.jsonl").open("a") as file:
        file.write('{no json\n{"id": "bare", "statement": "s", "entry_point": "f"}\n')
    result = run(setting, "--json")
    assert (result.code, result.json["done"], result.json["problems_left_out"]) == (0, 3, 2)
    (line,) = (line for line in result.err.splitlines() if "left out" in line)
    assert line.startswith("left out 2 of 5 problems of problems.jsonl, e.g. row 3: not JSON: ")
    assert "problems       3, and 2 left out" in run(setting, "-q").out
    limited = run(setting, "--limit", 3)
    assert limited.code == 0 and "left out 2" not in limited.err
    with pytest.warns(ForetraceWarning, match=re.escape(line)) as warned:
        report = generate("jsonl:problems.jsonl", model="scripted:script.jsonl", protocol="tools", out="python")
    assert report.counts.done == 3 and warned[0].filename == __file__


def test_nothing_but_errors_is_no_success(run: Run, setting: str) -> None:
    write_rows(Path("script.jsonl"), [["<think>Only this is said.</think>"]])
    result = run(setting, "--json")
    assert result.code == 1
    assert "all 3 attempts ended in an error, e.g. script: " in result.err.splitlines()[-1]
    assert (result.json["success"], result.json["errors"]) == (None, {"script": 3})
    assert all(t.outcome.error and t.outcome.reward is None for t in read_traces("t"))


def say(asked: Asked) -> str:
    return DONE if asked.turn else RIGHT


def ask(server: ModelServer) -> str:
    return f"--model openai:toy --base-url {server.url}"


def test_a_run_that_a_failure_ends_says_what_was_done(run: Run, setting: str) -> None:
    with serving(ModelServer()) as server:

        def quota(asked: Asked) -> str:
            if asked.number == 5:
                server.fault("/v1/chat/completions", status=402, body="{}", times=-1)
            return say(asked)

        server.say = quota
        more = f"{ask(server)} --model-option backoff_s=0.01 --samples 9 --concurrency 1"
        result = run(f"{setting} {more} --json")
    told = result.json
    assert result.code == 1 and 0 < told["done"] < 27
    assert told["done"] == told["stored"] == len(list(read_traces("t"))) == 27 - told["remaining"]
    assert "quota is used up" in told["error"] and told["stopped"] == told["error"]
    *_, kept, why = result.err.splitlines()
    assert kept == "what was finished is kept in t; the same command goes on from there"
    assert "quota is used up" in why


def test_cut_replies_are_told(run: Run, setting: str) -> None:
    with serving(ModelServer(say=lambda asked: "word " * 50 if asked.turn else say(asked), context=100_000)) as server:
        result = run(f"{setting} {ask(server)} --max-tokens 40 --max-turns 3 --json")
    assert result.code == 0 and (result.json["replies"], result.json["cut_replies"]) == (9, 6)
    assert result.json["metrics"]["cut_replies"] == 2.0
    assert "6 of 9 replies were cut at --max-tokens 40: raise it" in result.err.splitlines()
    assert "were cut" not in run(setting, "--seed", 1).err


def test_sigterm_ends_it_as_an_interrupt_does(setting: str) -> None:
    with serving(ModelServer(say=say, latency_s=lambda n: 0 if n < 8 else 60)) as server:
        words = f"-m foretrace {setting} {ask(server)} --samples 6 --concurrency 2 -q".split()
        with subprocess.Popen([sys.executable, *words], stderr=subprocess.PIPE, text=True) as process:
            while server.completions < 9 and process.poll() is None:
                time.sleep(0.05)
            process.send_signal(signal.SIGTERM)
            told = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert told == "foretrace: interrupted; what was finished is kept in t, the same command goes on from there\n"
    assert len(list(read_traces("t"))) >= 1 and not list(Path("t/journal").iterdir())


def test_a_key_is_taken_from_the_variable_that_is_named(
    run: Run, setting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "sk-secret-0123456789")
    with serving(ModelServer(say=say, key="sk-secret-0123456789")) as server:
        result = run(f"{setting} {ask(server)} --api-key-env MY_KEY")
    assert result.code == 0 and "sk-secret" not in result.out + result.err
    assert all(b"sk-secret" not in path.read_bytes() for path in Path("t").rglob("*") if path.is_file())


def test_from_a_notebook_by_objects_and_inside_a_running_loop() -> None:
    problem = Problem(id="p", statement="Add 1.", entry_point="inc", public_tests=(Test(code="assert inc(0) == 1"),))
    given: dict[str, Any] = {"protocol": "tools", "out": "t"}

    async def cell() -> Any:
        return generate([problem], model=Scripted.of([RIGHT, DONE]), samples=2, **given)

    report = asyncio.run(cell())
    assert (report.counts.stored, report.success) == (2, 1.0)
    for more, error in (({"sampels": 2}, TypeError), ({"path": "x"}, UsageError)):
        with pytest.raises(error, match=next(iter(more))):
            generate([problem], model=Scripted.of([DONE]), **given, **more)


def test_speculation_is_reported_and_leaves_what_replay_reads(run: Run, setting: str) -> None:
    result = run(f"{setting} --speculate tests")
    assert result.code == 0
    table = result.out[result.out.index("speculation ") :].splitlines()
    assert [line.split("  ")[0] for line in table[1:-1]] == ["verifier: run_tests", "final_answer: submit"]
    assert table[-1].startswith("tests hid ") and table[-1].endswith(" of CPU)")
    replayed = run("replay t --predictions t/guesses.jsonl --allow sandbox_exec --json")
    assert replayed.code == 0 and replayed.json["predictor"] == "tests"
    facts = run(f"{setting} --out u --speculate t/guesses.jsonl --speculate-top 1 --json").json["speculation"]
    assert (facts["predictor"], facts["guesses"], facts["settings"]["top"]) == ("guesses.jsonl", 2, 1)
    assert json.loads(Path("u/speculation.json").read_text()) == facts
    assert {trace.key for trace in read_traces("t")} == {trace.key for trace in read_traces("u")}
    for more in ("--limit 1", "", ""):  # a run that goes on, and one that finds all done, lose nothing
        assert run(f"{setting} --out v --speculate tests {more}").code == 0
    assert Path("v/guesses.jsonl").read_text().count("\n") == Path("t/guesses.jsonl").read_text().count("\n")
    launched, again = (Path(folder, "launches.jsonl").read_text().splitlines() for folder in "tv")
    assert {json.loads(line)["key"] for line in again} == {json.loads(line)["key"] for line in launched}


MINE = """
class Mine:
    def fit(self, rows): assert rows
    def predict(self, prompt, k):
        return [("verifier", "run_tests", {"code": "x = 1"}, 0.25), ("retrieval", None, {}, 0.1)]
"""


@pytest.mark.slow
@pytest.mark.usefixtures("setting")
def test_a_predictor_and_a_model_may_guess_with_a_dataset(
    run: Run, sample_dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("mine.py").write_text(MINE)
    monkeypatch.syspath_prepend(".")
    reply = {"action": "verifier", "tool": "run_tests", "arguments": {"code": "x = 1"}}
    write_rows(Path("guess.jsonl"), [{"turns": [json.dumps(reply)], "repeat": True}])
    with serving(ModelServer(say=say, latency_s=lambda _: 0.5)) as server:
        line = f"generate {PROBLEMS} {ask(server)} --json --quiet --speculate-dataset {sample_dataset}"
        for name in ("mine:Mine", "scripted:guess.jsonl"):
            done = run(f"{line} --out {name.partition(':')[0]} --speculate {name}")
            assert done.code == 0, done.err
            facts = done.json["speculation"]
            assert (facts["predictor"], facts["failed"], facts["refused"]) == (name, None, 0)
            assert facts["guesses"] and facts["rows"]["verifier"]["launched"]
            assert facts["rows"]["verifier"]["used"] == 0
        done = run(f"{line} --out x --retries 0 --speculate openai:toy --speculate-url http://127.0.0.1:9")
        assert done.code == 1 and "127.0.0.1:9" in done.err


def test_none_sends_none_and_is_recorded(run: Run) -> None:
    code = "<code>\ndef two_sum(nums, target):\n    return None\n</code>"
    with serving(picky("temperature", say=lambda asked: code)) as server:
        line = "generate --problems builtin --limit 1 --protocol tools --max-turns 1 --out t --json -q"
        refused = run(f"{line} {ask(server)}")
        assert refused.code == 2
        assert "takes no temperature: let the server choose it (--temperature none)" in refused.err
        done = run(f"{line} {ask(server)} --temperature none")
        assert done.code == 0, done.err
        assert "temperature" not in server.sent("/v1/chat/completions")[-1]
        (trace,) = read_traces("t")
        assert trace.provenance.sampling["temperature"] is None
        assert trace.provenance.capabilities["reasons"]["temperature"].startswith("refused, so it is not sent")
        told = run(f"doctor {ask(server)} --json -q")
        assert told.json["capabilities"]["logprobs"]["yes"] and "temperature" not in told.err


@pytest.mark.parametrize(
    ("out", "more", "said"),
    [
        ("mine", "", "exists; choose another folder, or overwrite it with --overwrite"),
        ("mine", "--overwrite", "is not a foretrace dataset, so it will not be overwritten"),
        ("mine/notes.txt", "", "is a file; name a folder"),
        ("new", "--pairs 1", "mirrored pairs come in twos"),
    ],
)
def test_what_a_build_would_refuse_is_refused_before_an_import(
    run: Run, swe_file: Path, out: str, more: str, said: str
) -> None:
    Path("mine").mkdir()
    Path("mine/notes.txt").write_text("mine")
    done = run(f"build swe_smith={swe_file} --out {out} {more}")
    assert done.code in (1, 2) and said in done.err, done.err
    assert not Path(f"{out}-traces").exists()
