"""Many attempts: counted, kept, resumed, budgeted, the same at any concurrency; and what goes wrong with servers."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from core.test_store import listing
from episodes.generating import (
    PROBLEMS,
    SETTINGS,
    Ground,
    OneReply,
    adds,
    answering,
    half,
    ids,
    number_in,
    plus,
    right,
    saying,
    stored,
    turn_of,
    wrong,
)
from fakes.model_server import ModelServer, serving
from foretrace.core.completion import Capabilities, Completion, Request, Sampling
from foretrace.core.errors import ModelError, SandboxError, StoreError, UsageError
from foretrace.core.journal import JournalIndex
from foretrace.core.store import TraceStore
from foretrace.core.trace import Usage
from foretrace.episodes.generate import engine as engine
from foretrace.episodes.generate.engine import GenerateReport
from foretrace.episodes.generate.progress import RunProgress
from foretrace.episodes.generate.settings import Budget
from foretrace.episodes.identity import derive_seed
from foretrace.episodes.settings import EpisodeSettings
from foretrace.models import throttle
from foretrace.models.servers.scripted import Scripted
from foretrace.protocols.tools import Tools
from models.served import PATHS, model_at


def test_every_attempt_is_a_trace_and_the_sums_are_right(ground: Ground, tmp_path: Path) -> None:
    report = ground.generate(tmp_path / "t", half, samples=4)
    traces = stored(tmp_path / "t")
    assert (report.counts.asked, report.counts.done, report.counts.stored, report.counts.remaining) == (24, 24, 24, 0)
    assert len(traces) == 24 and report.success == 0.5
    solved = [t for t in traces.values() if t.outcome.success]
    erred = [t for t in traces.values() if t.outcome.metrics["had_errors"]]
    recovered = [t for t in solved if t.outcome.metrics["recovered"]]
    assert recovered and report.recovery == len(recovered) / len(erred)
    assert report.mean_reward == sum(t.outcome.reward or 0.0 for t in traces.values()) / 24
    assert report.metrics["turns"] == pytest.approx(sum(t.outcome.metrics["turns"] for t in traces.values()) / 24, 1e-3)
    assert not list((tmp_path / "t" / "journal").iterdir())
    assert {t.provenance.run for t in solved} == {report.run}
    assert {t.provenance.sampling["seed"] for t in traces.values()} == {
        derive_seed(0, problem, sample) for problem in PROBLEMS for sample in range(4)
    }
    assert len({derive_seed(seed, problem, n) for seed in (0, 1) for problem in PROBLEMS for n in range(4)}) == 48


def test_the_same_again_does_nothing_and_more_samples_only_the_rest(ground: Ground, tmp_path: Path) -> None:
    ground.generate(tmp_path / "t", samples=2)
    before = listing(tmp_path / "t")
    again = ground.generate(tmp_path / "t", saying(lambda request: pytest.fail("nothing is to be asked")), samples=2)
    assert (again.counts.already_done, again.counts.done) == (12, 0)
    assert listing(tmp_path / "t") == before
    more = ground.generate(tmp_path / "t", samples=3)
    assert (more.counts.already_done, more.counts.done) == (12, 6)
    hints = EpisodeSettings(hints=True)
    for other in ({"seed": 1}, {"episode": hints}):
        assert ground.generate(tmp_path / "t", samples=3, **other).counts.already_done == 0
    assert ground.generate(tmp_path / "t", wrong).counts.already_done == 6  # the model's words are not part of the key


def test_concurrency_and_interruption_change_no_byte(
    ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "perf_counter", lambda: 0.0)  # durations are of this machine, and are in the traces,
    monkeypatch.setattr(
        "foretrace.episodes.episode._write_time", lambda stamp: "2026-01-01T10:00:00+00:00"
    )  # and stamps
    for concurrency in (1, 4, 40):
        ground.generate(tmp_path / str(concurrency), half, samples=3, concurrency=concurrency)
    ground.generate(tmp_path / "parts", half, samples=1)
    ground.generate(tmp_path / "parts", half, PROBLEMS[::-1], samples=2)
    ground.generate(tmp_path / "parts", half, samples=3, concurrency=7)
    whole = listing(tmp_path / "1")
    assert sum(path.endswith(".parquet") for path in whole) > 1
    for name in ("4", "40", "parts"):
        assert listing(tmp_path / name) == whole


def test_keep_leaves_out_counts_and_does_not_do_it_again(ground: Ground, tmp_path: Path) -> None:
    def lazy(request: Request) -> str:  # right, but the third problem without a thought
        return half(request).replace(
            "<think>Now I add.</think>", "" if number_in(request) == 2 else "<think>I add it.</think>"
        )

    report = ground.generate(tmp_path / "t", lazy, samples=2, keep="ideal")
    lost = sum(report.counts.left_out.values())
    assert report.counts.left_out["not_success"] == 6 and report.counts.left_out["not_ideal"] >= 1
    assert report.counts.stored == 12 - lost == len(stored(tmp_path / "t"))
    again = ground.generate(tmp_path / "t", saying(lambda r: pytest.fail("asked again")), samples=2, keep="ideal")
    assert (again.counts.already_done, again.counts.filtered, again.counts.done) == (12 - lost, lost, 0)
    success = ground.generate(tmp_path / "t", lazy, samples=2, keep="success")
    assert (success.counts.filtered, success.counts.done, success.counts.stored) == (6, lost - 6, lost - 6)
    everything = ground.generate(tmp_path / "t", lazy, samples=2, keep="all")
    assert (everything.counts.already_done, everything.counts.stored) == (6, 6)
    assert TraceStore(tmp_path / "t").manifest.left_out == {}
    ground.generate(tmp_path / "one", lazy, samples=2)
    assert ids(tmp_path / "t") == ids(tmp_path / "one")


def test_errors_are_stored_as_such_and_made_again(ground: Ground, tmp_path: Path) -> None:
    """One is too long, one cannot be written, and one passes when it is tried again at once."""
    failed: list[int] = []

    def flaky(request: Request) -> str:
        if (number := number_in(request)) == 3:
            raise ModelError("toy: too long", kind="overflow")
        if number == 4 and number not in failed:
            failed.append(number)
            raise ModelError("broke off", kind="empty", retryable=True)
        return ("\ud800" if number == 1 else "") + right(request)

    report = ground.generate(tmp_path / "t", flaky)
    assert report.counts.errors == {"overflow": 1, "unwritable": 1} and report.counts.retried == 1
    assert report.counts.examples["overflow"] == "toy: too long"
    assert (report.success, report.mean_reward) == (1.0, 1.0)  # an error is not a failure of the model
    outcomes = [t.outcome for t in stored(tmp_path / "t").values() if t.outcome.error]
    assert [(one.success, one.reward) for one in outcomes] == [(None, None)] * 2
    again = ground.generate(tmp_path / "t", right)
    assert (again.counts.already_done, again.counts.done) == (4, 2)
    assert all(t.outcome.success for t in stored(tmp_path / "t").values()) and len(stored(tmp_path / "t")) == 6
    kept = ground.generate(tmp_path / "k", flaky, keep="success")
    assert (kept.counts.stored, kept.counts.failed) == (4, 2)
    assert ground.generate(tmp_path / "k", right, keep="success").counts.done == 2


@pytest.mark.parametrize(
    "odd",
    [{"logprobs": (-0.1, float("-inf")), "exact": "text"}, {"usage": Usage(prompt_tokens=1.5)}],  # type: ignore[arg-type]
    ids=["logprobs", "usage"],
)
def test_numbers_that_cannot_be_read_back_are_the_error_of_their_attempt(
    ground: Ground, tmp_path: Path, odd: dict[str, Any]
) -> None:
    def say(request: Request) -> Completion:
        return Completion(text=right(request), **odd if number_in(request) == 1 and turn_of(request) else {})

    report = ground.generate(tmp_path / "t", say)
    assert (report.counts.errors, report.counts.stored, report.success) == ({"unwritable": 1}, 6, 1.0)
    assert ground.generate(tmp_path / "k", say, keep="success").counts.failed == 1


@pytest.mark.parametrize("kind", ["bad_key", "not_found", "quota"])
def test_a_final_failure_stops_the_run_and_keeps_what_is_done(ground: Ground, tmp_path: Path, kind: str) -> None:
    asked: list[int] = []

    def say(request: Request) -> str:
        if number_in(request) == 4:
            raise ModelError("no more", kind=kind)
        asked.append(number_in(request))
        return right(request)

    with pytest.raises(ModelError, match="no more"):
        ground.generate(tmp_path / "t", say, concurrency=1)
    assert len(stored(tmp_path / "t")) == 4 and 5 not in asked
    assert ground.generate(tmp_path / "t", right).counts.already_done == 4


def test_a_sandbox_that_keeps_failing_stops_the_run(ground: Ground, tmp_path: Path) -> None:
    def say(request: Request) -> str:
        raise SandboxError("no worker can be started")

    with pytest.raises(SandboxError, match="10 attempts in a row"):
        ground.generate(tmp_path / "t", say, samples=4, concurrency=1)
    assert len(stored(tmp_path / "t")) == 10


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), MemoryError("out of memory")])
def test_a_disk_that_fails_stops_the_run_and_loses_nothing(
    ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    synced, sync = [0], os.fsync

    def filling(file: int) -> None:
        synced[0] += 1
        if synced[0] > 6:
            raise error
        sync(file)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", filling)
        with pytest.raises((StoreError, MemoryError), match=r"No space left on device|out of memory"):
            ground.generate(tmp_path / "t", right, concurrency=1)
    (journal,) = (tmp_path / "t" / "journal").iterdir()
    durable = len(JournalIndex(journal).stored)
    assert durable > 1
    assert ground.generate(tmp_path / "t", right).counts.already_done == durable


def _costing(used: Callable[[int], int], most_in_flight: list[int]) -> Scripted:
    """A model whose attempts take two requests, each of `used(problem)` tokens, half of them in the prompt."""
    inside = 0

    async def complete(request: Request) -> Completion:
        nonlocal inside
        inside += 1
        most_in_flight[0] = max(most_in_flight[0], inside)
        await asyncio.sleep(0.002)
        inside -= 1
        half = used(number_in(request)) // 2
        reply = right(msgspec.structs.replace(request, sampling=Sampling(seed=0)))
        return Completion(text=reply, usage=Usage(prompt_tokens=half, completion_tokens=half))

    return answering(complete)


@pytest.mark.parametrize(
    ("budget", "most"),
    [
        (Budget(tokens=5_001), 5_000),
        (Budget(cost=0.005001, price_in=1.0, price_out=1.0), 5_000),
        (Budget(tokens=20_001), 20_000),
    ],
)
@pytest.mark.parametrize("concurrency", [1, 8, None])
def test_a_budget_is_used_and_not_overstepped_by_attempts_that_are_alike(
    ground: Ground, tmp_path: Path, budget: Budget, most: int, concurrency: int | None
) -> None:
    inside, sampling = [0], Sampling(max_tokens=1024)
    model, problems = _costing(lambda _: 430, inside), tuple(map(plus, range(120)))
    report = ground.generate(tmp_path / "t", model, problems, concurrency=concurrency, budget=budget, sampling=sampling)
    used = report.prompt_tokens + report.completion_tokens
    assert 0.8 * most <= used <= most + 1 and not report.tokens_estimated
    assert report.stopped and "no room for another attempt" in report.stopped and report.counts.remaining > 0
    assert (concurrency == 1) == (inside[0] == 1), "it waits no longer than it must"
    assert report.counts.done == len(stored(tmp_path / "t")) == used // 860


def test_attempts_that_used_nothing_are_no_measure(ground: Ground, tmp_path: Path) -> None:
    """Else all that follow would begin at once."""

    async def first_fail(request: Request) -> Completion:
        if number_in(request) < 3:
            raise ModelError("too long", kind="overflow")
        await asyncio.sleep(0.01)
        text = right(msgspec.structs.replace(request, sampling=Sampling(seed=0)))  # in two turns
        return Completion(text=text, usage=Usage(prompt_tokens=500, completion_tokens=500))

    model = answering(first_fail)
    report = ground.generate(tmp_path / "t", model, samples=9, concurrency=50, budget=Budget(tokens=9_000))
    assert report.counts.errors["overflow"] >= 3 and 7_000 <= report.prompt_tokens + report.completion_tokens <= 9_000


def test_the_time_ends_and_what_hangs_is_not_waited_for(ground: Ground, tmp_path: Path) -> None:
    async def slow(request: Request) -> Completion:
        await asyncio.sleep(60 if number_in(request) == 5 else 0.01)
        return Completion(text=right(request))

    begun = time.monotonic()
    report = ground.generate(tmp_path / "t", answering(slow), budget=Budget(seconds=0.6))
    assert time.monotonic() - begun < 10
    assert (report.counts.done, report.counts.remaining) == (5, 1) and report.stopped and "time" in report.stopped


def test_what_the_server_cannot_do_is_refused_with_the_reason(ground: Ground, tmp_path: Path) -> None:
    class Needy(Tools):
        required_capabilities = ("token_prompts",)

    with pytest.raises(UsageError, match=r"needs token_prompts.*tokens=bytes"):
        ground.generate(tmp_path / "t", right, protocol=Needy())
    with pytest.raises(ModelError, match="start the server"):
        ground.generate(tmp_path / "t", model_at("openai", "http://127.0.0.1:9", retries=0))
    assert not (tmp_path / "t").exists()


NAN = float("nan")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        *(({"sampling": Sampling(temperature=t)}, "choose") for t in (float("inf"), NAN, -1.0)),
        *(({"sampling": Sampling(top_p=p)}, "choose") for p in (0.0, 1.1, NAN)),
        *(({"sampling": Sampling(**{name: 0})}, f"{name}=0: choose 1 or more") for name in ("max_tokens", "top_k")),
        *(({name: 0}, f"{name}=0: choose 1 or more") for name in ("samples", "concurrency")),
        ({"budget": Budget(cost=1.0)}, "max_cost needs a price.*: give price_in or price_out"),
        ({"budget": Budget(tokens=-1)}, "max_tokens_total=-1: choose"),
    ],
)
def test_settings_that_cannot_be_served(ground: Ground, tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ground.generate(tmp_path / "t", **settings)


def test_options_of_redaction_are_checked_first(ground: Ground, tmp_path: Path) -> None:
    ground.generate(tmp_path / "finished")
    down = model_at("openai", "http://127.0.0.1:9", retries=0)
    for out, model in (("finished", saying(right)), ("new", down)):
        with pytest.raises(UsageError, match=r"redact_emails.* takes out more than secrets"):
            ground.generate(tmp_path / out, model, redact=False, redact_emails=True)


def test_a_server_that_is_gone_stops_the_run(ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttle.ThrottledModel.__init__, "__kwdefaults__", {"max_failed_rounds": 4, "pause_s": 0.02})
    asked = 0

    def dies(request: Request) -> str:
        nonlocal asked
        asked += 1
        if asked > 4:
            raise ModelError("no connection", kind="refused", retryable=True)
        return right(request)

    with pytest.raises(ModelError, match="no connection; gave up after 4 rounds"):
        ground.generate(tmp_path / "t", dies, samples=20, concurrency=8)
    assert asked < 60
    assert ground.generate(tmp_path / "t", right, samples=2).counts.remaining == 0


def test_progress_and_report_say_where_it_stands_and_what_the_server_can_do(
    ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "_TICK_S", 0.02)
    seen: list[tuple[int, int, dict[str, int]]] = []

    async def slow(request: Request) -> Completion:
        await asyncio.sleep(0.06)
        if number_in(request) == 2:
            raise ModelError("too long", kind="overflow")
        return Completion(text=half(request))

    async def probe() -> Capabilities:
        return Capabilities(logprobs=True, context_length=4096)

    def note(now: RunProgress) -> None:
        seen.append((now.done + now.remaining, now.in_flight, dict(now.errors)))

    model = answering(slow)
    model.probe = probe  # type: ignore[method-assign]
    settings = msgspec.structs.replace(SETTINGS, concurrency=2)
    work = engine.generate(PROBLEMS, Tools(), model, ground.sandbox, tmp_path / "t", settings, progress=note)
    report = ground.runner.run(work)
    assert any(asked == 6 and errors == {"overflow": 1} for asked, _, errors in seen)
    assert max(in_flight for _, in_flight, _ in seen) == 2
    assert report.counts.capabilities == {"logprobs": True, "context_length": 4096}
    assert {t.provenance.capabilities["context_length"] for t in stored(tmp_path / "t").values()} == {4096}


# Settings of the model tell attempts apart, ports do not.


def run(
    ground: Ground,
    out: Path,
    kind: str = "ollama",
    *,
    fault: dict[str, Any] | None = None,
    samples: int = 1,
    **server: Any,
) -> GenerateReport:
    """Generate at a server of its own; the fault begins behind the probe."""
    with serving(ModelServer(say=adds)) as running:
        model = model_at(kind, running.url, **server)
        try:
            ground.runner.run(model.probe())
            if fault is not None:
                running.fault(PATHS[kind], **fault)
            return ground.generate(out, model, protocol=OneReply(), samples=samples)
        finally:
            ground.runner.run(model.close())


def test_settings_that_change_the_text_make_other_attempts_and_are_recorded(ground: Ground, tmp_path: Path) -> None:
    out = tmp_path / "t"
    settings: list[dict[str, Any]] = [{"options": {"think": "true"}}, {"options": {"think": "high"}}]
    for server in [*settings, {}, {"context_length": 2048}]:
        assert run(ground, out, **server).counts.already_done == 0, server
        assert run(ground, out, **server).counts.already_done == 6, server
    told = [t.provenance.sampling for t in stored(out).values()]
    assert len(told) == 24 and sorted({each["context_length"] for each in told}) == [2048, 8192]
    assert [sum(each.get("options") == {"think": think} for each in told) for think in ("true", "high")] == [6, 6]


@pytest.mark.parametrize("kind", PATHS)
def test_another_port_changes_neither_key_nor_id(ground: Ground, tmp_path: Path, kind: str) -> None:
    run(ground, tmp_path / "a", kind)
    run(ground, tmp_path / "b", kind, options={"backoff_s": "0.02"}, retries=2)
    assert ids(tmp_path / "a") == ids(tmp_path / "b") != {}
    assert run(ground, tmp_path / "a", kind).counts.already_done == 6
    assert "127.0.0.1" not in "".join(str(t.provenance) for t in stored(tmp_path / "a").values())
