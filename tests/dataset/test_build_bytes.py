"""Nothing but traces and settings moves the bytes of a dataset: no hash seed, no order, no number of workers."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from dataset.little import CONFIGS, RUN_BUILD, attempt, corpus, files, rows, tree
from foretrace.api.datasets import build
from foretrace.core.store import read_traces, write_traces
from foretrace.dataset import plan


@pytest.mark.slow
def test_hash_seed_and_workers_do_not_move_a_byte(
    sample_traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes with other hash seeds, one with two workers: one tree. Another seed: another tree."""
    jobs = {"one": ("0", 1), "two": ("77", 2)}
    running = []
    for name, (hash_seed, workers) in jobs.items():
        job = {
            "traces": [str(sample_traces)],
            "out": str(tmp_path / name),
            "workers": workers,
            "messages_per_job": 400,
        }
        environment = os.environ | {"PYTHONHASHSEED": hash_seed}
        command = [sys.executable, str(RUN_BUILD), json.dumps(job)]
        running.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True))
    for process in running:
        out, _ = process.communicate(timeout=120)
        assert process.returncode == 0, out
    monkeypatch.setattr(plan, "MESSAGES_PER_JOB", 400)
    build(sample_traces, out=tmp_path / "other", seed=5, statistical_gates=False)
    one = tree(tmp_path / "one")
    assert sum(name.startswith("proposer/train") for name in one) > 1
    assert one == tree(tmp_path / "two")
    assert one != tree(tmp_path / "other")


def test_order_of_rows_does_not_move_a_byte(sample_traces: Path, sample_dataset: Path, tmp_path: Path) -> None:
    """Traces added backwards."""
    write_traces(reversed(list(read_traces(sample_traces))), tmp_path / "back")
    build(tmp_path / "back", out=tmp_path / "from-back")
    assert tree(tmp_path / "from-back") == tree(sample_dataset)


def test_order_of_folders_does_not_move_a_byte(tmp_path: Path) -> None:
    """Dealt to two folders named either way round, with some in both, and one key with other content in each."""
    every = corpus(8)
    one, other = (attempt("same", random.Random(n), name="r") for n in (1, 2))
    for left, right in (("a", "b"), ("d", "c")):
        write_traces([*every[::2], one], tmp_path / left)
        write_traces([*every[1::2], *every[:6], other], tmp_path / right)
    dealt = []
    for folders in (("a", "b"), ("b", "a"), ("c", "d")):
        out = tmp_path / "-".join(folders)
        report = build([tmp_path / f for f in folders], out=out, statistical_gates=False)
        assert report.manifest["counts"]["traces_in_two_inputs"] == 4
        dealt.append(tree(out))
    assert dealt[0] == dealt[1] == dealt[2]


def test_parts_are_decided_by_the_traces_alone(
    sample_traces: Path, sample_dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same rows whether they were built in one part or in many, in other files."""
    monkeypatch.setattr(plan, "MESSAGES_PER_JOB", 200)
    build(sample_traces, out=tmp_path / "d", statistical_gates=False)
    for config in CONFIGS:
        one, many = ([json.dumps(r) for r in rows(folder, config)] for folder in (sample_dataset, tmp_path / "d"))
        assert sorted(one) == sorted(many)
    assert files(tmp_path / "d", "eval") == [tmp_path / "d/eval/test-00000-of-00001.parquet"]
