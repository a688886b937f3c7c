"""Hard pairs: what is likely is counted over train groups alone, and likely wrong answers are preferred."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from dataset import little
from foretrace.actions.label_steps import label_trace
from foretrace.core.store import write_traces
from foretrace.core.trace import Trace
from foretrace.dataset.build import build
from foretrace.dataset.inferred_tools import InferredTools
from foretrace.dataset.likely_calls import LikelyCalls, name_step, name_steps
from foretrace.dataset.prompts import make_token_counter
from foretrace.dataset.recipes.attempts import TaskAttempts, make_attempt, select_targets
from foretrace.dataset.recipes.mirrored_pairs import AcceptedActions, find_mirrored_pairs
from foretrace.dataset.settings import BuildSettings
from foretrace.dataset.shard_job import ShardJob, count_calls_of_shards
from foretrace.engines.processes import Processes

SHAPE: dict[str, Any] = {"pairs": 2, "recipes": ("verifier",), "outcomes": "not_failed", "statistical_gates": False}


def count(*traces: Trace) -> LikelyCalls:
    likely = LikelyCalls()
    for trace in traces:
        likely.add_trace(trace)
    return likely


def solve(key: str, *commands: str) -> Trace:
    steps = [message for command in commands for message in (little.runs(command), little.seen("ok"))]
    return little.trace(key, little.user("Do it."), *steps, little.says("Done."), group=key, task=key)


def test_shares_are_smoothed_counts_of_what_followed() -> None:
    traces = [solve("a", "ls", "cat x", "pytest"), solve("b", "ls", "cat y", "pytest"), solve("c", "ls", "make")]
    likely = count(*traces)
    ls, cat, pytest_, done = name_steps(traces[0].messages, label_trace(traces[0]))
    make = name_step(traces[2].messages[3], "verifier")
    assert cat.endswith(" bash cat") and likely.measure_share(ls, []) == pytest.approx(3 / 11)
    alone = 2 / 11
    assert likely.measure_share(cat, [ls]) == pytest.approx((2 + 2 * alone) / (3 + 2))
    assert likely.measure_share(cat, [ls]) > likely.measure_share(make, [ls]) > likely.measure_share(done, [ls])
    assert likely.measure_share(pytest_, [ls, cat]) > likely.measure_share(pytest_, [done, cat])
    assert likely.measure_share("unknown", [ls]) == 0.0
    merged = count(traces[0])
    merged.merge(count(*traces[1:]))
    assert merged == likely


def test_test_groups_are_not_counted(tmp_path: Path) -> None:
    traces = [solve("train", "ls"), solve("test", "rm x"), solve("validation", "mv x y")]
    write_traces(traces, tmp_path / "t")
    job = ShardJob(
        number=0,
        count=1,
        stores=(str(tmp_path / "t"),),
        shards=tuple(range(64)),
        settings=BuildSettings(),
        splits={"train": "train", "test": "test", "validation": "validation"},
    )
    assert count_calls_of_shards(job) == count(traces[0])


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same traces, built twice: the pairs as they come, and hard ones."""
    folder = tmp_path_factory.mktemp("hard")
    write_traces(little.corpus(30), folder / "traces")
    for name, hard in (("plain", False), ("hard", True)):
        build([folder / "traces"], folder / name, BuildSettings(**SHAPE, hard=hard))
    return {name: folder / name for name in ("traces", "plain", "hard")}


def measure(dataset: Path, family: str) -> float:
    """Mean share of the rejected answers at their prompts, by an oracle of the corpus, whose order is always one."""
    order = ["ls", "cat", "cat", "sed", "pytest"]
    shares: list[float] = []
    for row in little.rows(dataset, "verifier"):
        if row["family"] == family:
            command = json.loads(row["rejected"][0]["content"])["arguments"].get("command", "")
            here = sum(message["role"] == "assistant" for message in row["prompt"])
            place = order.index(command.split()[0]) if command else len(order)
            shares.append(1 / (1 + abs(place - here)))
    return statistics.mean(shares)


def test_likely_wrong_answers_are_preferred(built: dict[str, Path]) -> None:
    plain, hard = (json.loads((built[name] / "manifest.json").read_text()) for name in ("plain", "hard"))
    assert hard["settings"].pop("hard") is True and hard["settings"] == plain["settings"]
    assert measure(built["hard"], "redundancy") > measure(built["plain"], "redundancy") + 0.02
    verdicts = {gate["name"]: gate["verdict"] for gate in hard["gates"]}
    assert verdicts["shortcut/redundancy"] == verdicts["balance"] == verdicts["repeats"] == "pass"


@pytest.mark.integration
def test_the_same_bytes_with_any_number_of_workers(built: dict[str, Path], tmp_path: Path) -> None:
    build([built["traces"]], tmp_path / "two", BuildSettings(**SHAPE, hard=True), engine=Processes(2))
    assert little.tree(tmp_path / "two") == little.tree(built["hard"])


def test_the_likeliest_candidates_come_first() -> None:
    traces = [each for each in little.corpus(30) if each.outcome.success]
    settings, likely = BuildSettings(pairs=2), count(*traces)
    sums = {"plain": 0.0, "hard": 0.0}
    for each in traces:
        attempts = [make_attempt(each, settings, make_token_counter(None), InferredTools(), None)]
        select_targets(attempts)
        judge = TaskAttempts(attempts, "train", settings, Counter(), likely)
        for name, task in (("plain", judge._replace(likely=None)), ("hard", judge)):
            for pair in find_mirrored_pairs(attempts, task, AcceptedActions(attempts)):
                if pair.family == "redundancy":
                    both = (pair.first, pair.second), (pair.second, pair.first)
                    sums[name] += judge.measure_likelihood(*both[0]) * judge.measure_likelihood(*both[1])
    assert sums["hard"] > 1.2 * sums["plain"] > 0
