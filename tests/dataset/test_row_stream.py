"""Rows that are loaded from traces are those that a build writes, to the last byte and in the same order."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import datasets
import msgspec
import pytest

import foretrace
from dataset.little import calls, corpus, files, rows, runs, says, seen, system, trace, tree, user
from foretrace.core.errors import BuildError, ForetraceWarning, UsageError
from foretrace.core.store import write_traces
from foretrace.core.trace import Outcome, Trace
from foretrace.dataset import parquet, plan
from foretrace.dataset.inferred_tools import DESCRIPTION
from foretrace.dataset.settings import SPLITS

PLAIN = ("proposer", "trajectories")


def written(dataset: Path, config: str, split: str) -> list[str]:
    """The built rows in the order of the files."""
    return [json.dumps({k: v for k, v in row.items() if k != "split"}) for row in rows(dataset, config, split)]


def loaded(*arguments: Any, **settings: Any) -> list[str]:
    return [json.dumps(row) for row in foretrace.load(*arguments, **settings)]


@pytest.mark.parametrize("config", PLAIN)
@pytest.mark.parametrize("split", SPLITS)
def test_loaded_rows_are_the_built_ones(sample_traces: Path, sample_dataset: Path, config: str, split: str) -> None:
    found = loaded(sample_traces, config, split)
    assert found == written(sample_dataset, config, split) and found


@pytest.mark.slow
def test_many_files_windows_and_settings(sample_traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cut into files and windows is the same, and so is what each setting does."""
    monkeypatch.setattr(plan, "MESSAGES_PER_JOB", 200)
    monkeypatch.setattr(parquet, "WINDOW_ROWS", 7)
    more: dict[str, Any] = {"target": "type", "outcomes": "all", "max_context_tokens": 1024, "window": "blocks"}
    more["seed"] = 3
    shares = (0.5, 0.2, 0.3)
    foretrace.build(sample_traces, out=tmp_path / "d", statistical_gates=False, split=shares, **more)
    assert len(files(tmp_path / "d", "proposer", "train")) > 1
    for config, split in itertools.product(PLAIN, SPLITS):
        assert loaded(sample_traces, config, split, shares=shares, **more) == written(tmp_path / "d", config, split)


def alike(number: int) -> Trace:
    """Attempts of many groups at a few tasks that begin alike, so that prompts stand in several splits."""
    messages = [user(f"Do {number % 3}."), runs("ls"), seen("a"), runs(f"cat {number}"), seen("b"), says("Done.")]
    return trace(f"k{number:02d}", *messages, task=f"t{number}", group=f"g{number}")


def test_prompts_that_a_held_out_split_has_are_left_out(tmp_path: Path) -> None:
    write_traces(map(alike, range(24)), tmp_path / "t")
    report = foretrace.build(tmp_path / "t", out=tmp_path / "d", split=(0.5, 0.25, 0.25), statistical_gates=False)
    assert report.manifest["drops"]["proposer"]["prompt_in_two_splits"] > 10
    for split in SPLITS:
        found = loaded(tmp_path / "t", "proposer", split, shares=(0.5, 0.25, 0.25))
        assert found == written(tmp_path / "d", "proposer", split) and found


def of_agent(number: int) -> Trace:
    """Attempts of an agent whose tools the source does not give."""
    agent = system("You are a careful agent that books rooms and answers letters.")
    books = calls(f"book_{number % 5}", {"room": number}), seen("ok")
    said = agent, user(f"Do {number}."), *books, runs(f"cat {number}"), seen("b"), says("Done.")
    return trace(f"k{number:02d}", *said, task=f"t{number}", group=f"g{number}")


def test_inferred_tools_are_told_and_corrections_win(tmp_path: Path) -> None:
    write_traces(map(of_agent, range(15)), tmp_path / "t")
    lines = [f"{one.key},{one.id},2,verifier" for one in foretrace.read_traces(tmp_path / "t")]
    (tmp_path / "c.csv").write_text("\n".join(["key,id,message_index,correct_action", *lines]))
    shares = (0.5, 0.2, 0.3)
    given: dict[str, dict[str, Any]] = {"plain": {}, "corrected": {"corrections": tmp_path / "c.csv"}}
    for name, more in given.items():
        foretrace.build(tmp_path / "t", out=tmp_path / name, statistical_gates=False, split=shares, **more)
        for config, split in itertools.product(PLAIN, SPLITS):
            found = loaded(tmp_path / "t", config, split, shares=shares, **more)
            assert found == written(tmp_path / name, config, split) and found
            if config == "proposer":
                assert all(DESCRIPTION in row and r"{\"name\":\"bash\"" in row for row in found)
    for split in SPLITS:
        right, other = (written(tmp_path / name, "proposer", split) for name in ("corrected", "plain"))
        assert len(right) == len(other) and right != other


@pytest.mark.slow
def test_a_trainers_dataset_is_made_of_it(sample_traces: Path, sample_dataset: Path, tmp_path: Path) -> None:
    """As the library streams the built folder; nothing is written, and a second epoch is the first again."""
    before = tree(sample_traces)
    view = foretrace.load(sample_traces)
    stream = datasets.IterableDataset.from_generator(
        foretrace.load, gen_kwargs={"traces": str(sample_traces), "split": "train"}
    )
    built = datasets.load_dataset(str(sample_dataset), "proposer", split="train", streaming=True)
    first = [json.dumps(row) for row in view]
    assert first == [json.dumps(row) for row in stream] == [json.dumps(row) for row in built]
    assert first == [json.dumps(row) for row in view] and tree(sample_traces) == before


def test_rows_come_before_all_traces_are_read(sample_traces: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "WINDOW_ROWS", 2)
    read: list[str] = []
    honest = foretrace.dataset.shard_job.Attempt
    monkeypatch.setattr(foretrace.dataset.shard_job, "Attempt", lambda t, *rest: read.append(t.key) or honest(t, *rest))
    total = len(list(foretrace.load(sample_traces, split="test")))
    every, _ = len(read), read.clear()
    assert next(iter(foretrace.load(sample_traces, split="test"))) and total > 2
    assert 0 < len(read) < every


def test_what_cannot_be_loaded_is_said(sample_traces: Path, tmp_path: Path) -> None:
    for config in ("verifier", "verifier_unpaired", "eval"):
        with pytest.raises(UsageError, match=f"config='{config}': its rows are chosen among all .* proposer, trajec"):
            foretrace.load(sample_traces, config)
    with pytest.raises(UsageError, match="config='poser': is not a config"):
        foretrace.load(sample_traces, "poser")
    with pytest.raises(UsageError, match="split='dev': the splits are train, validation, test"):
        foretrace.load(sample_traces, split="dev")
    with pytest.raises(UsageError, match="the smallest is 1024"):
        foretrace.load(sample_traces, max_context_tokens=9)
    write_traces([], tmp_path / "none")
    with pytest.raises(BuildError, match="holds no traces"):
        foretrace.load(tmp_path / "none")


def test_rows_of_no_wanted_outcome_are_refused_as_in_a_build(tmp_path: Path) -> None:
    unknown = [msgspec.structs.replace(trace, outcome=Outcome()) for trace in corpus(12)]
    write_traces(unknown, tmp_path / "t")
    said = (
        r"no row could be made from \d+ traces \(\d+ unknown\); left out: .*; the setting is outcomes='success': not_"
    )
    with pytest.raises(BuildError, match=said):
        list(foretrace.load(tmp_path / "t"))
    with pytest.raises(BuildError, match=said):
        foretrace.build(tmp_path / "t", out=tmp_path / "d")
    assert list(foretrace.load(tmp_path / "t", outcomes="not_failed"))


def test_an_empty_split_is_said(tmp_path: Path) -> None:
    every = corpus(4)
    write_traces([trace for trace in every if trace.task.group == every[0].task.group], tmp_path / "t")
    with pytest.warns(ForetraceWarning, match="no row of test; .*split test is empty: too few groups"):
        assert not list(foretrace.load(tmp_path / "t", split="test", outcomes="all"))
