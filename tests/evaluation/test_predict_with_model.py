"""A model that guesses: ranks from samples, resuming, failures, and a server that is really asked."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import foretrace
from evaluation.test_predict import write_dataset
from fakes.model_server import Asked, ModelServer, serving
from foretrace.core.completion import Completion, Request
from foretrace.core.errors import ModelError, PredictionError, StoreError, UsageError
from foretrace.core.predictions import PredictionId, PredictionsFile, read_predictions
from foretrace.evaluation.ask_model import Answer, AnswerJournal
from foretrace.evaluation.dataset_rows import read_rows
from foretrace.evaluation.predict import PredictReport
from foretrace.evaluation.predict_with_model import ModelSettings, rank_guesses
from foretrace.models.base import Server
from foretrace.models.servers.scripted import Scripted

LS = '{"action":"file_read","tool":"bash","arguments":{"command":"ls"}}'
TEST = 'Let me think.</think>```json\n{"action":"verifier","tool":"bash","arguments":{"command":"pytest"}}\n```'


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("predict_with_model"))


AT = PredictionId("k", 1)


def answer(text: str, sample: int = 0, **more: Any) -> Answer:
    return Answer(id=("k", 1, sample), text=text, **more)


def model(respond: Callable[[Request], str | Completion]) -> Scripted:
    return Scripted("toy", scripts=respond)


def test_equal_calls_are_one_guess_and_its_share_is_the_confidence() -> None:
    spaced = LS.replace(":", ": ").replace(",", ", ")
    answers = [answer(text, number, tokens=1) for number, text in enumerate([TEST, LS, spaced, LS, "garbage"])]
    ranked = rank_guesses(AT, answers, ModelSettings(samples=5))
    assert [(each.rank, each.action, each.confidence, each.tokens) for each in ranked] == [
        (1, "file_read", 0.6, 3),
        (2, "verifier", 0.2, 1),
    ]
    assert [call.arguments for call in ranked[1].calls] == ['{"command": "pytest"}']


def test_with_logprobs_each_text_counts_once_with_its_probability() -> None:
    spaced = LS.replace(":", ": ")
    answers = [
        answer(LS, 0, logprob=math.log(0.2)),
        answer(LS, 1, logprob=math.log(0.2)),
        answer(spaced, 2, logprob=math.log(0.1)),
        answer(TEST, 3, logprob=math.log(0.5)),
    ]
    ranked = rank_guesses(AT, answers, ModelSettings(samples=4, logprobs=True))
    assert [(each.action, pytest.approx(each.confidence)) for each in ranked] == [("verifier", 0.5), ("file_read", 0.3)]


def test_each_sample_has_its_own_seed_and_the_prompt_of_its_row(dataset: Path, tmp_path: Path) -> None:
    asked: list[Request] = []

    def respond(request: Request) -> str:
        asked.append(request)
        return LS

    report = foretrace.predict(dataset, model=model(respond), out=tmp_path / "p.jsonl", samples=3, limit=4)
    rows = read_rows(dataset, "eval", "test")[:4]
    assert (report.steps, report.guesses, report.requests, report.faults) == (4, 4, 12, {})
    assert Counter(tuple((m.role, m.content) for m in r.messages) for r in asked) == {
        tuple(map(tuple, row.prompt)): 3 for row in rows
    }
    assert len({request.sampling.seed for request in asked}) == 12
    found = read_predictions(tmp_path / "p.jsonl")
    assert [(row.key, row.step, row.confidence, row.completion) for row in found.rows] == [
        (row.key, row.step, 1.0, LS) for row in rows
    ]
    assert found.header is not None and found.header.predictor == "scripted:toy"
    assert found.header.settings == {"samples": 3, "temperature": 0.7, "max_tokens": 1024, "confidence": "share"}
    assert {path.name for path in tmp_path.iterdir()} == {"p.jsonl", "p.jsonl.answers"}


def test_a_run_that_was_stopped_goes_on_and_asks_nothing_twice(dataset: Path, tmp_path: Path) -> None:
    asked: Counter[Any] = Counter()

    def respond(request: Request) -> str:
        if asked.total() == 7:
            raise ModelError("quota", kind="quota")
        asked[request.sampling.seed] += 1
        return LS

    out = tmp_path / "p.jsonl"
    with pytest.raises(ModelError, match="quota"):
        foretrace.predict(dataset, model=model(respond), out=out, samples=2, limit=6, concurrency=1)
    assert not out.exists() and asked.total() == 7
    journal = tmp_path / "p.jsonl.journal"
    journal.write_bytes(journal.read_bytes()[:-9])  # the last line was cut off

    def go_on(request: Request) -> str:
        asked[request.sampling.seed] += 1
        return LS

    report = foretrace.predict(dataset, model=model(go_on), out=out, samples=2, limit=6)
    assert report.requests == 12 - 6
    assert sorted(asked.values()) == [1] * 11 + [2], "only what was cut off was asked again"
    assert len(read_predictions(out).rows) == 6
    before, again = out.read_bytes(), foretrace.predict(dataset, model=model(go_on), out=out, samples=2, limit=6)
    assert (again.requests, again.guesses, asked.total(), out.read_bytes()) == (0, 6, 13, before)
    more = foretrace.predict(dataset, model=model(go_on), out=out, samples=3, limit=6)
    assert more.requests == 6, "a finished run goes on with more samples, too"
    other = foretrace.predict(dataset, model=model(go_on), out=out, samples=2, limit=6, temperature=0.1)
    assert other.requests == 12, "and other settings begin anew"


def test_answers_to_something_else_are_not_taken(dataset: Path, tmp_path: Path) -> None:
    out = tmp_path / "p.jsonl"
    AnswerJournal(tmp_path / "p.jsonl", {"predictor": "other"}).add(answer(LS))
    with pytest.raises(PredictionError, match="other settings, model, predictions or dataset"):
        foretrace.predict(dataset, model=model(lambda request: LS), out=out)
    with AnswerJournal(tmp_path / "q.jsonl", {}), pytest.raises(StoreError, match="another process is writing it"):
        foretrace.predict(dataset, model=model(lambda request: LS), out=tmp_path / "q.jsonl")
    (tmp_path / "r.jsonl.journal").write_bytes((tmp_path / "p.jsonl.journal").read_bytes() + b"not json\n")
    with pytest.raises(PredictionError, match=r"r.jsonl.journal: "):
        AnswerJournal(tmp_path / "r.jsonl", {"predictor": "other"})


def test_failures_that_may_pass_are_left_to_the_next_run(dataset: Path, tmp_path: Path) -> None:
    tries: Counter[Any] = Counter()
    broken = [True]

    def respond(request: Request) -> str:
        tries[request.sampling.seed] += 1
        if broken[0] and len(tries) == 1:
            raise ModelError("no reply came", kind="empty", retryable=True)
        return LS

    out = tmp_path / "p.jsonl"
    with pytest.raises(PredictionError, match=r"1 of 3 requests failed, e.g. no reply came; .* to ask for the rest"):
        foretrace.predict(dataset, model=model(respond), out=out, samples=1, limit=3, concurrency=1)
    assert not out.exists() and max(tries.values()) == 2, "once more in the same run"
    broken[0] = False
    assert foretrace.predict(dataset, model=model(respond), out=out, samples=1, limit=3).requests == 1


def test_failures_that_stay_are_counted(dataset: Path, tmp_path: Path) -> None:
    """By row where there is no guess, else by sample."""

    def ask(name: str, samples: int) -> tuple[PredictReport, PredictionsFile]:
        number = iter(range(99))

        def respond(request: Request) -> str:
            match next(number) % 4:
                case 0:
                    raise ModelError("the prompt is too long", kind="overflow")
                case 1:
                    return "I would rather not say."
            return LS

        out, how = tmp_path / name, {"samples": samples, "limit": 4, "concurrency": 1}
        return foretrace.predict(dataset, model=model(respond), out=out, **how), read_predictions(out)

    report, found = ask("one.jsonl", 1)
    assert report.faults == {"bad_guess": 1, "raised": 1}
    assert report.example is not None and report.example.endswith("the prompt is too long")
    assert [row.action for row in found.rows] == [None, "file_read", "file_read"], "what was said is kept, as no guess"
    assert found.problems == {"no_action": 1}
    report, found = ask("four.jsonl", 4)
    assert (report.faults, report.lost_samples) == ({}, {"failed": 4, "no_action": 4})
    assert [row.confidence for row in found.rows] == [0.5] * 4


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"samples": 0}, "samples=0"), ({"max_tokens": 0}, "max_tokens=0"), ({"concurrency": 0}, "concurrency=0"),
        ({"temperature": -1.0}, "temperature=-1.0"), ({"logprobs": True}, "no logprobs: .*; leave out logprobs"),
        ({"predictor": "majority"}, "name one that guesses"),
    ],
)  # fmt: skip
def test_what_cannot_be_served(dataset: Path, tmp_path: Path, settings: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        foretrace.predict(dataset, model=model(lambda r: LS), out=tmp_path / "p.jsonl", **settings)
    assert not [*tmp_path.iterdir()]


def test_a_server_is_asked_for_logprobs(dataset: Path, tmp_path: Path) -> None:
    out = tmp_path / "p.jsonl"
    with serving(ModelServer(say=lambda asked: LS)) as server:
        at = Server(base_url=f"{server.url}/v1")
        report = foretrace.predict(
            dataset, model="openai:toy", server=at, out=out, samples=2, limit=3, logprobs=True, temperature=0.5
        )
        bodies = [seen.body for seen in server.requests if seen.body.get("temperature") == 0.5]
    assert len(bodies) == report.requests == 6 and all(body["logprobs"] for body in bodies)
    found = read_predictions(out)
    assert found.header is not None and found.header.predictor == "openai:toy"
    assert found.header.latency_s["p50"] > 0
    assert all(row.confidence is not None and 0 < row.confidence <= 1 for row in found.rows)
    assert all(row.seconds is not None and row.tokens for row in found.rows)


@pytest.mark.slow
def test_a_command_that_was_killed_goes_on(dataset: Path, tmp_path: Path) -> None:
    """As a process, with kill -9 in the middle: what was answered is not asked again."""
    out = tmp_path / "p.jsonl"
    few = ["--samples", "2", "--concurrency", "2", "--limit", "10", "--quiet"]

    def say(asked: Asked) -> str:
        return LS

    with serving(ModelServer(say=say, latency_s=lambda n: 0.15)) as server:
        given = ["predict", str(dataset), "--model", "openai:toy", "--base-url", f"{server.url}/v1", "--out", str(out)]
        command = [sys.executable, "-m", "foretrace", *given, *few]
        first = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        journal = tmp_path / "p.jsonl.journal"
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and (not journal.exists() or journal.read_bytes().count(b"\n") < 6):
            time.sleep(0.02)
        first.send_signal(signal.SIGKILL)
        first.communicate()
        answered = {tuple(line["id"]) for line in read_answers(journal)}
        assert 5 <= len(answered) < 20 and not out.exists()
        before = len(server.requests)
        done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        asked_again = [s.body["seed"] for s in server.requests[before:] if s.body.get("max_tokens") == 1024]
    assert json.loads(done.stdout)["requests"] == 20 - len(answered) == len(asked_again)
    assert len(read_predictions(out).rows) == 10


def read_answers(journal: Path) -> list[dict[str, Any]]:
    whole = journal.read_bytes().rpartition(b"\n")[0]
    return [json.loads(line) for line in whole.splitlines()[1:]]
