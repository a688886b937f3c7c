"""Attempts that are made elsewhere, in groups: the same traces and counts as here, whatever is lost on the way."""

from __future__ import annotations

import asyncio
import itertools
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import foretrace
from core.test_store import listing
from episodes.cluster import ThreadCluster, attempts_on, write_scripts
from episodes.generating import PROBLEMS, SETTINGS, Ground, ids, number_in, right, saying, stored
from foretrace.cli.display.generate import show_report
from foretrace.cli.output import Output
from foretrace.core.completion import Completion, Request
from foretrace.core.errors import ModelError, SandboxError, UsageError, WorkerError
from foretrace.engines.ray_tasks import RayTasks
from foretrace.episodes.generate import engine
from foretrace.episodes.generate.attempts import StartedAttempt, TimeLeft
from foretrace.episodes.generate.engine import GenerateReport
from foretrace.episodes.generate.resume import PlannedAttempt
from foretrace.episodes.generate.settings import Budget
from foretrace.episodes.identity import Identity, describe_sampling, make_key
from foretrace.models.servers.scripted import Scripted
from foretrace.models.token_meter import TokenMeter
from foretrace.protocols.tools import Tools
from foretrace.registry import make_model
from foretrace.sandbox.base import SandboxSettings
from foretrace.sandbox.local import LocalSandbox


@pytest.fixture(scope="module")
def ground() -> Iterator[Ground]:
    with asyncio.Runner() as runner:
        sandbox = LocalSandbox(SandboxSettings(workers=2))
        yield Ground(runner, sandbox)
        runner.run(sandbox.close())


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_scripts(tmp_path_factory.mktemp("scripts") / "s.jsonl")


async def run(
    cluster: ThreadCluster, model: str, out: Path, sandbox: dict[str, Any] | None = None, **settings: Any
) -> GenerateReport:
    """`generate` on a cluster; the driver's own sandbox stays unused."""
    chosen = msgspec.structs.replace(SETTINGS, **settings)
    attempts = attempts_on(cluster, model, chosen, **sandbox or {})
    try:
        return await engine.generate(PROBLEMS, Tools(), make_model(model), LocalSandbox(), out, chosen, runner=attempts)
    finally:
        attempts.close()


def facts(report: GenerateReport) -> dict[str, Any]:
    """What a report says that is not a matter of time."""
    return {name: value for name, value in report.make_facts().items() if not name.endswith(("seconds", "_s"))}


@pytest.mark.slow
@pytest.mark.parametrize("keep", ["all", "ideal"])
def test_the_bytes_and_the_report_are_those_of_this_process(
    keep: str, ground: Ground, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "perf_counter", lambda: 0.0)
    monkeypatch.setattr("foretrace.episodes.episode._write_time", lambda stamp: "2026-01-01T10:00:00+00:00")
    here = ground.generate(tmp_path / "here", make_model(model), samples=4, keep=keep)
    assert here.counts.done == 24 and 0 < (here.success or 0) < 1
    for cluster, concurrency in ((ThreadCluster(), None), (ThreadCluster(2, repeats=True), 5)):
        out = tmp_path / str(concurrency)
        there = asyncio.run(run(cluster, model, out, samples=4, keep=keep, concurrency=concurrency))
        said = facts(there)
        assert list(said.pop("nodes").values()) == [said["isolation"]] and said == facts(here)
        assert listing(out) == listing(tmp_path / "here")
        assert 1 < cluster.max_in_flight <= cluster.workers < len(cluster.calls) < 24
        assert {call[0].at_once for call in cluster.calls} == {16 if concurrency is None else 2}


def test_more_workers_than_attempts_at_a_time_stay_idle(model: str, tmp_path: Path) -> None:
    cluster = ThreadCluster(64)
    budget = Budget(seconds=1000)
    asyncio.run(run(cluster, model, tmp_path / "t", samples=2, concurrency=2, budget=budget))
    assert cluster.max_in_flight == 2 and cluster.calls[0][0].at_once == 1
    time_left = cluster.calls[0][2]
    assert 900 < time_left.begin < 1000 and time_left.begin * 0.9 < time_left.end < time_left.begin + 60


def test_what_was_finished_before_the_cluster_broke_down_is_kept(ground: Ground, model: str, tmp_path: Path) -> None:
    ground.generate(tmp_path / "here", make_model(model), samples=3)
    with pytest.raises(WorkerError, match="lost a task"):
        asyncio.run(run(ThreadCluster(lost=4), model, tmp_path / "t", samples=3))
    kept = len(stored(tmp_path / "t"))
    assert 0 < kept < 18
    again = asyncio.run(run(ThreadCluster(), model, tmp_path / "t", samples=3))
    assert (again.counts.already_done, again.counts.done) == (kept, 18 - kept)
    assert ids(tmp_path / "t") == ids(tmp_path / "here")


@pytest.mark.slow
def test_an_interrupt_keeps_the_groups_that_came_back(model: str, tmp_path: Path) -> None:
    cluster = ThreadCluster(2)

    async def interrupted() -> None:
        loop, third = asyncio.get_running_loop(), asyncio.Event()
        cluster.on_call = lambda number: loop.call_soon_threadsafe(third.set) and None if number == 3 else None
        running = asyncio.create_task(run(cluster, model, tmp_path / "t", samples=3))
        await third.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(interrupted())
    kept = len(stored(tmp_path / "t"))
    assert 0 < kept < 18 and len(cluster.calls) < 6
    assert asyncio.run(run(ThreadCluster(), model, tmp_path / "t", samples=3)).counts.already_done == kept


@pytest.mark.slow
def test_budgets_hold_for_all_workers_together(ground: Ground, model: str, tmp_path: Path) -> None:
    whole = ground.generate(tmp_path / "here", make_model(model), samples=4)
    tokens = (whole.prompt_tokens + whole.completion_tokens) // 2
    half = asyncio.run(run(ThreadCluster(), model, tmp_path / "t", samples=4, budget=Budget(tokens=tokens)))
    assert half.stopped == f"the budget of {tokens:,} tokens has no room for another attempt"
    assert 0 < half.counts.done < 24 and half.prompt_tokens + half.completion_tokens < 1.2 * tokens
    rest = asyncio.run(run(ThreadCluster(), model, tmp_path / "t", samples=4))
    assert (rest.counts.already_done, rest.counts.done) == (half.counts.done, 24 - half.counts.done)


async def time_groups(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, settings = ThreadCluster(1), msgspec.structs.replace(SETTINGS, concurrency=2)
    attempts, used = attempts_on(cluster, model, settings), TokenMeter()
    identity = Identity(model=model, sampling=describe_sampling(settings.sampling), seed=0)
    group = [
        StartedAttempt(PlannedAttempt(problem, 0, make_key(problem, Tools(), identity, settings.episode)), TokenMeter())
        for problem in PROBLEMS
    ]

    async def run_group(begin: float, end: float) -> list[str]:
        made = await attempts.run(group, TimeLeft(begin, end))
        return [attempt.key.split("/")[2] for attempt in made.attempts]

    try:
        await attempts.start(6, await make_model(model).probe(), identity, used)
        assert await run_group(60, 60) == list("012345")
        assert used.completion_tokens == sum(attempt.meter.completion_tokens for attempt in group) > 0
        assert await run_group(0, 60) == []
        hang_at(monkeypatch, 1)
        assert await run_group(60, 2) == list("02345")
    finally:
        attempts.close()


def hang_at(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    complete = Scripted.complete

    async def hang(self: Scripted, request: Request) -> Completion:
        if number_in(request) == number:
            await asyncio.sleep(600)
        return await complete(self, request)

    monkeypatch.setattr(Scripted, "complete", hang)


def test_what_does_not_end_in_time_is_given_up_and_the_rest_comes_back(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncio.run(time_groups(model, monkeypatch))


def test_a_final_failure_of_a_worker_keeps_the_rest_of_its_group(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    complete = Scripted.complete

    async def refuse_the_last(self: Scripted, request: Request) -> Completion:
        if number_in(request) == 5:
            raise ModelError("the quota is used up", kind="quota")
        return await complete(self, request)

    monkeypatch.setattr(Scripted, "complete", refuse_the_last)
    with pytest.raises(ModelError, match="quota") as refused:
        asyncio.run(run(ThreadCluster(1), model, tmp_path / "t", samples=1, concurrency=1))
    assert refused.value.final and len(stored(tmp_path / "t")) == 5


def test_a_node_that_cannot_begin_is_named(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SandboxError, match=r"^node .*: .*level"):
        asyncio.run(run(ThreadCluster(), model, tmp_path / "t", {"min_level": 4}))
    assert not (tmp_path / "t").exists()


def test_each_node_is_reported_with_its_isolation(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = itertools.cycle(["b", "a", "c"])
    monkeypatch.setattr(socket, "gethostname", lambda: next(names))
    report = asyncio.run(run(ThreadCluster(), model, tmp_path / "t", samples=1))
    assert report.nodes == dict.fromkeys("abc", report.isolation) and report.make_facts()["nodes"] == report.nodes

    def show(weak: int) -> list[str]:
        nodes = {name: {**isolation, "level": weak if name == "b" else 3} for name, isolation in report.nodes.items()}
        weakest = {**nodes["b"], "refused": {}}
        show_report(Output(), msgspec.structs.replace(report, nodes=nodes, isolation=weakest), tmp_path / "t", 0)
        return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines() if "level" in line]

    assert show(3) == ["isolation level 3 (local), the weakest of 3 nodes"]
    assert show(1) == ["isolation level 1 (local), the weakest of 3 nodes", "level 1 b", "level 3 a, c"]


def test_what_cannot_be_sent_is_refused(tmp_path: Path) -> None:
    options: dict[str, Any] = {"model": "demo", "protocol": "tools", "out": tmp_path / "t", "engine": RayTasks()}
    for name, thing in (("model", saying(right)), ("protocol", Tools()), ("sandbox", LocalSandbox())):
        with pytest.raises(UsageError, match=rf"engine='ray' needs {name} by its name"):
            foretrace.generate(PROBLEMS, **options | {name: thing})
    with pytest.raises(UsageError, match="ray_address='auto' is for engine='ray'"):
        foretrace.generate(PROBLEMS, **options | {"engine": "processes", "ray_address": "auto"})
    assert not (tmp_path / "t").exists()
