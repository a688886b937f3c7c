"""Predicting a dataset: what is learned from what, bytes, counted faults, errors of one line; a model that guesses."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

import foretrace
from dataset.little import corpus
from evaluation.planted import build_dataset
from fakes.model_server import Asked, ModelServer, serving
from foretrace.core.completion import Completion, Request
from foretrace.core.errors import ModelError, PredictionError, StoreError, UsageError
from foretrace.core.message_columns import ChatText
from foretrace.core.predictions import PredictionId, PredictionsFile, digest_dataset, read_predictions
from foretrace.evaluation.ask_model import Answer, AnswerJournal
from foretrace.evaluation.dataset_rows import DatasetRow, read_rows
from foretrace.evaluation.predict import BadGuessError, PredictReport, check_guesses
from foretrace.evaluation.predict_with_model import ModelSettings, rank_guesses
from foretrace.evaluation.predictors.base import Guess
from foretrace.models.base import Server
from foretrace.models.servers.scripted import Scripted


def write_dataset(folder: Path, **settings: Any) -> Path:
    """A dataset of 24 groups, with rows in its train and test splits."""
    return build_dataset(folder, corpus(), **{"split": (0.6, 0.0, 0.4), "recipes": ("proposer", "eval")} | settings)


class Spy:
    """Remembers what each of its kind has learned, and guesses what it is told to."""

    learned: ClassVar[list[set[str]]] = []
    asked: ClassVar[list[tuple[int, Sequence[ChatText]]]] = []
    says: Any = staticmethod(lambda prompt, k: [("file_read", "bash", {"command": "ls"}, 0.5)])

    def fit(self, rows: Sequence[DatasetRow]) -> None:
        Spy.learned.append({row.group for row in rows})
        self._number = len(Spy.learned) - 1

    def predict(self, prompt: Sequence[ChatText], k: int) -> Any:
        Spy.asked.append((self._number, prompt))
        return Spy.says(prompt, k)


@pytest.fixture(autouse=True)
def fresh_spy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Spy, "learned", [])
    monkeypatch.setattr(Spy, "asked", [])


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("predict"))


def test_eval_rows_are_predicted_by_all_train_rows(dataset: Path, tmp_path: Path) -> None:
    out = tmp_path / "p.jsonl"
    report = foretrace.predict(dataset, predictor=Spy, out=out, k=2)
    train, asked = read_rows(dataset, "proposer", "train"), read_rows(dataset, "eval", "test")
    assert Spy.learned == [{row.group for row in train}]
    assert (report.learned_rows, report.steps, report.guesses) == (len(train), len(asked), len(asked))
    found = read_predictions(out)
    assert [(row.key, row.step) for row in found.rows] == [(row.key, row.step) for row in asked]
    header = found.header
    assert header is not None and header.latency_s.keys() == {"p50", "p95", "mean"}
    assert (header.dataset, header.predictor, header.steps, header.k) == (digest_dataset(dataset), "Spy", len(asked), 2)
    assert all(row.seconds is not None and row.confidence == 0.5 for row in found.rows)


def test_no_train_row_is_predicted_by_what_learned_its_group(dataset: Path, tmp_path: Path) -> None:
    out = tmp_path / "p.jsonl"
    foretrace.predict(dataset, predictor=Spy, out=out, rows="proposer", folds=3)
    rows = read_rows(dataset, "proposer", "train")
    groups = {row.group for row in rows}
    of_prompt = {row.prompt: row.group for row in rows}
    assert len(Spy.learned) == 3 and len(Spy.asked) == len(rows)
    assert all(of_prompt[tuple(prompt)] not in Spy.learned[number] for number, prompt in Spy.asked)
    assert all(groups - learned for learned in Spy.learned)
    found = read_predictions(out)
    header = found.header
    assert header is not None and header.settings == {"folds": 3}
    assert (header.config, header.split) == ("proposer", "train")
    assert header.built_from["split"] == [0.6, 0.0, 0.4] and header.built_from["target"] == "call"
    assert [(row.key, row.step) for row in found.rows] == [(row.key, row.step) for row in rows]


def test_validation_rows_are_predicted_by_all_train_rows_and_choose_thresholds(tmp_path: Path) -> None:
    dataset = write_dataset(tmp_path / "d", split=(0.5, 0.2, 0.3))
    validation, test = tmp_path / "validation.jsonl", tmp_path / "test.jsonl"
    report = foretrace.predict(dataset, predictor=Spy, out=validation, rows="validation")
    foretrace.predict(dataset, predictor=Spy, out=test)
    foretrace.predict(dataset, predictor=Spy(), out=test.with_stem("object"))
    assert (report.config, report.split) == ("proposer", "validation")
    train, asked = read_rows(dataset, "proposer", "train"), read_rows(dataset, "proposer", "validation")
    assert Spy.learned[0] == {row.group for row in train} and not Spy.learned[0] & {row.group for row in asked}
    found = read_predictions(validation)
    assert [(row.key, row.step) for row in found.rows] == [(row.key, row.step) for row in asked]
    assert found.header is not None and found.header.settings == {}
    scored: dict[str, Path] = {}
    for name, path in (("validation", validation), ("test", test)):
        scores, scored[name] = tmp_path / f"{name}-scores.jsonl", tmp_path / f"{name}-scored.jsonl"
        lines = [{"key": row.key, "step": row.step, "score": 1 / (1 + row.step)} for row in read_predictions(path).rows]
        scores.write_text("".join(json.dumps(line) + "\n" for line in lines))
        foretrace.verify(path, dataset, scores=scores, out=scored[name])
    verifier = foretrace.score(scored["test"], dataset, validation=scored["validation"]).verifier
    assert verifier is not None
    assert (verifier.thresholds_from, verifier.chosen_on) == ("validation", len(asked))


@pytest.mark.parametrize("name", ["majority", "markov:2", "regression", pytest.param("memory", marks=pytest.mark.slow)])
def test_without_times_the_same_rows_give_the_same_bytes(dataset: Path, tmp_path: Path, name: str) -> None:
    one, two = tmp_path / "1.jsonl", tmp_path / "2.jsonl"
    for out in (one, two):
        foretrace.predict(dataset, predictor=name, out=out, k=3, times=False)
    assert one.read_bytes() == two.read_bytes()
    assert b'"seconds"' not in one.read_bytes() and b'"latency_s":{}' in one.read_bytes()


def test_faults_are_counted_and_never_scored(dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count = iter(range(10**6))

    def say(prompt: Any, k: int) -> Any:
        number = next(count)
        if number % 4 == 0:
            raise RuntimeError("out of ideas")
        return [[("file_read", None, {}, float("nan"))], [], [Guess("file_read", None, {}, None)]][number % 4 - 1]

    monkeypatch.setattr(Spy, "says", staticmethod(say))
    report = foretrace.predict(dataset, predictor=Spy, out=tmp_path / "p.jsonl", limit=8)
    assert report.faults == {"bad_guess": 2, "no_guess": 2, "raised": 2}
    assert report.example is not None and report.example.endswith("RuntimeError: out of ideas")
    found = read_predictions(tmp_path / "p.jsonl")
    assert found.header is not None and found.header.faults == report.faults
    assert len(found.rows) == report.guesses == 2


def test_a_predictor_that_never_guesses_writes_no_file(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Spy, "says", staticmethod(lambda prompt, k: "garbage"))
    with pytest.raises(PredictionError, match=r"Spy: gave no guess at any of \d+ rows, e.g. .*list of guesses"):
        foretrace.predict(dataset, predictor=Spy, out=tmp_path / "p.jsonl")
    assert not (tmp_path / "p.jsonl").exists()


def test_a_predictor_that_cannot_learn(dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Spy, "fit", lambda self, rows: 1 / 0)
    with pytest.raises(PredictionError, match=r"^Spy: cannot learn from \d+ rows: ZeroDivisionError: "):
        foretrace.predict(dataset, predictor=Spy, out=tmp_path / "p.jsonl")


@pytest.mark.parametrize(
    "given",
    [
        "text", None, [("file_read", None, {})], [("no_action", None, {}, 0.5)], [("file_read", 3, {}, 0.5)],
        [("file_read", "bash", "no json", 0.5)], [("file_read", "bash", [1], 0.5)],
        [("file_read", "bash", {"x": float("nan")}, 0.5)], [("file_read", "bash", {"x": object()}, 0.5)],
        [("file_read", "bash", {}, True)], [("file_read", "bash", {}, "0.5")],
        [("file_read", "bash", {}, 1.5)], [("file_read", "\ud800", {}, 0.2)],
        [("file_read", "x", '{"a": "\ud800"}', 0.2)], [("file_read", "bash", {}, float("inf"))], [["file_read"]],
    ],
)  # fmt: skip
def test_garbage_is_no_guess(given: Any) -> None:
    with pytest.raises(BadGuessError):
        check_guesses(given, 3)


def test_guesses_are_cut_to_k_and_not_repeated() -> None:
    ls = ("file_read", "bash", {"command": "ls"}, 0.5)
    given = [ls, ("file_read", "bash", '{"command": "ls"}', 0.4), ("blocked", "", {}, None)]
    with pytest.raises(BadGuessError, match="'blocked'"):
        check_guesses(given, 3)
    given[2] = ("BLOCKED", "", {}, None)
    assert [guess.action for guess in check_guesses(given, 3)] == ["file_read", "BLOCKED"]
    assert len(check_guesses(given, 1)) == 1


def test_what_cannot_be_served(dataset: Path, tmp_path: Path) -> None:
    out = tmp_path / "p.jsonl"
    with pytest.raises(PredictionError, match="is not a foretrace dataset"):
        foretrace.predict(tmp_path, predictor="majority", out=out)
    wrong: dict[str, dict[str, Any]] = {
        "k=0": {"k": 0},
        "folds=1": {"rows": "proposer", "folds": 1},
        "folds=5 is for train rows, and eval rows are predicted": {"folds": 5},
        "folds=5 is for train rows, and validation rows are predicted": {"rows": "validation", "folds": 5},
        "samples=7 is for a model": {"samples": 7},
        "folds=3 is for a predictor": {"predictor": None, "model": "scripted:x.jsonl", "rows": "proposer", "folds": 3},
        "is not a predictor: it has no 'fit', 'predict'": {"predictor": "pathlib:PurePath"},
    }
    for said, settings in wrong.items():
        with pytest.raises(UsageError, match=said):
            foretrace.predict(dataset, out=out, **{"predictor": "majority"} | settings)
    message = write_dataset(tmp_path / "m", target="message")
    with pytest.raises(PredictionError, match="was built with target='message'; build with target='call'"):
        foretrace.predict(message, predictor="majority", out=out)
    manifest = json.loads((message / "manifest.json").read_text())
    manifest["settings"]["target"] = "call"
    (message / "manifest.json").write_text(json.dumps(manifest))
    for file in (message / "eval").glob("*.parquet"):
        file.write_bytes(b"no parquet")
    with pytest.raises(PredictionError, match="cannot be read"):
        foretrace.predict(message, predictor="majority", out=out)
    assert not out.exists()


LS = '{"action":"file_read","tool":"bash","arguments":{"command":"ls"}}'
TEST = 'Let me think.</think>```json\n{"action":"verifier","tool":"bash","arguments":{"command":"pytest"}}\n```'


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
def test_a_model_that_cannot_be_asked_so(dataset: Path, tmp_path: Path, settings: dict[str, Any], says: str) -> None:
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
