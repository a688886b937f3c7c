"""Builds that must not be, and builds that are stopped: what was whole stays whole, and the next one ends the same."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from dataset import little
from dataset.little import RUN_BUILD, calls, corpus, rows, runs, says, seen, trace, tree, user
from foretrace.api.datasets import build
from foretrace.cli.main import main
from foretrace.core.errors import BuildError, StoreError, UsageError
from foretrace.core.store import TraceWriter, write_traces
from foretrace.core.trace import ToolSpec
from foretrace.dataset import build as module


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("faults") / "traces"
    write_traces(corpus(40), folder)
    return folder


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("small") / "traces"
    write_traces(corpus(4), folder)
    return folder


@pytest.fixture(scope="module")
def other_dataset(small: Path) -> Path:
    build(small, out=small.parent / "dataset", statistical_gates=False)
    return small.parent / "dataset"


@pytest.fixture
def previous(other_dataset: Path, tmp_path: Path) -> Path:
    """A dataset of other traces, which is there already."""
    return shutil.copytree(other_dataset, tmp_path / "dataset")


Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(traces: Path) -> Iterator[Start]:
    """Start a build in a process group of its own; all that is left of it is ended with the test."""
    running: list[subprocess.Popen[str]] = []

    def run(out: Path, **job: Any) -> subprocess.Popen[str]:
        told = {"traces": [str(traces)], "out": str(out), "settings": {"statistical_gates": False}, **job}
        command, pipe = [sys.executable, str(RUN_BUILD), json.dumps(told)], subprocess.PIPE
        process = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True)
        running.append(process)
        return process

    yield run
    for process in running:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_for(process: subprocess.Popen[str], what: str) -> None:
    """Read its progress up to a line that begins so."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(what):
            return
    pytest.fail(f"never said {what!r}: {process.stderr.read() if process.stderr else ''}")


def test_a_dataset_that_is_there_is_refused_and_replaced_only_when_told(small: Path, previous: Path) -> None:
    before = tree(previous)
    with pytest.raises(BuildError, match="exists; choose another folder, or overwrite it"):
        build(small, out=previous)
    assert tree(previous) == before
    build(small, out=previous, overwrite=True, seed=3, statistical_gates=False)
    assert tree(previous) != before
    assert [p.name for p in previous.parent.iterdir()] == ["dataset"]


@pytest.mark.parametrize("holds", ["notes.txt", "manifest.json", ""])
def test_something_else_is_never_overwritten(small: Path, tmp_path: Path, holds: str) -> None:
    """A file, or a folder, not even where it has a manifest.json of its own."""
    path = tmp_path / "d" / holds if holds else tmp_path / "d"
    path.parent.mkdir(exist_ok=True)
    path.write_text('{"name": "an app"}')
    for overwrite in (False, True):
        with pytest.raises(BuildError, match=r"is not a foretrace dataset|exists; choose|is a file"):
            build(small, out=tmp_path / "d", overwrite=overwrite)
    assert tree(tmp_path).keys() == {path.relative_to(tmp_path).as_posix()}


def test_a_traces_folder_is_never_overwritten(tmp_path: Path) -> None:
    """Neither the one that is read, nor another, nor one that lies within the output."""
    for name in ("t", "other"):
        write_traces(corpus(2), tmp_path / name)
    before = tree(tmp_path)
    for out in ("t", "other"):
        with pytest.raises(BuildError, match="is not a foretrace dataset"):
            build(tmp_path / "t", out=tmp_path / out, overwrite=True)
    assert tree(tmp_path) == before
    build(tmp_path / "t", out=tmp_path / "d", statistical_gates=False)
    (tmp_path / "t").rename(tmp_path / "d" / "t")
    with pytest.raises(UsageError, match="would be overwritten"):
        build(tmp_path / "d" / "t", out=tmp_path / "d", overwrite=True)


def test_an_empty_folder_is_as_good_as_none_and_a_file_is_no_parent(small: Path, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    build(small, out=tmp_path / "d", statistical_gates=False)
    assert (tmp_path / "d" / "manifest.json").is_file()
    with pytest.raises(StoreError, match="cannot write"):
        build(small, out=tmp_path / "d" / "manifest.json" / "d")


def test_what_a_lost_worker_leaves_is_not_in_the_dataset(small: Path, other_dataset: Path, tmp_path: Path) -> None:
    def leave(doing: str, done: int, total: int | None) -> None:
        if doing == "checking":
            (folder,) = tmp_path.glob(".d.building/dataset-*")
            (folder / "eval/candidates-00007-of-00009.parquet").touch()
            (folder / "lost").mkdir(exist_ok=True)

    build(small, out=tmp_path / "d", statistical_gates=False, progress=leave)
    assert tree(tmp_path) == {f"d/{name}": digest for name, digest in tree(other_dataset).items()}
    assert {path.name for path in (tmp_path / "d").iterdir()} == {path.name for path in other_dataset.iterdir()}


def test_a_second_builder_is_refused(traces: Path, small: Path, previous: Path) -> None:
    """While one builds, and the first goes on as if nothing was."""
    refused: list[str] = []

    def progress(doing: str, done: int, total: int | None) -> None:
        if doing.startswith("building") and not done:
            with pytest.raises(StoreError) as caught:
                build(small, out=previous, overwrite=True)
            refused.append(str(caught.value))

    build(traces, out=previous, overwrite=True, statistical_gates=False, progress=progress)
    assert len(refused) == 1 and "another process is writing here" in refused[0]
    assert len({r["group"] for r in rows(previous, "proposer")}) == 40


def test_folders_that_cannot_be_built(small: Path, tmp_path: Path) -> None:
    with TraceWriter(tmp_path / "none") as writer:
        writer.checkpoint()
    with TraceWriter(tmp_path / "three", shards=3) as writer:
        writer.add(corpus(1)[0])
        writer.checkpoint()
    damaged = shutil.copytree(small, tmp_path / "damaged")
    segment = next(damaged.glob("shard-*/*.parquet"))
    segment.write_bytes(segment.read_bytes()[:-200])
    before = tree(tmp_path)
    refused: dict[str, list[Path]] = {
        "at least one traces folder": [],
        "no such folder": [tmp_path / "missing"],
        "holds no traces": [tmp_path / "none"],
        "one number of shards": [small, tmp_path / "three"],
        "damaged": [damaged],
    }
    for why, folders in refused.items():
        with pytest.raises((BuildError, StoreError, UsageError), match=why):
            build(folders, out=tmp_path / "d")
    assert tree(tmp_path) == before


ODD = {
    "a list": "[1, 2]",
    "a number": "5",
    "no JSON": "not json",
    "NaN": '{"n": NaN}',
    "half a character": '{"command": "\\ud800"}',
    "a huge number": '{"n": 123456789012345678901234567890}',
    "nothing": "",
    "deep": "[" * 3000 + "]" * 3000,
}


@pytest.mark.parametrize("arguments", ODD.values(), ids=list(ODD))
def test_odd_arguments_cost_their_own_step_at_most(tmp_path: Path, arguments: str) -> None:
    """The build goes on; rows that are written hold JSON."""
    odd = trace("a", user("x"), calls("go", arguments), seen("y"), runs("ls"), seen("z"), says("done"))
    manifest = little.build(tmp_path, odd, *corpus(3))
    mine = [r for r in rows(tmp_path / "d", "proposer") if r["key"] == "a"]
    lost = sum(manifest["drops"]["proposer"].get(r, 0) for r in ("unreadable_call", "empty_step"))
    assert len(mine) + lost == 3
    assert all(json.loads(r["completion"][0]["content"])["action"] for r in mine)
    row = next(r for r in rows(tmp_path / "d", "trajectories") if r["key"] == "a")
    assert row["messages"][1]["tool_calls"][0]["function"]["name"] == "go"


def test_odd_tools_are_written_as_json(tmp_path: Path) -> None:
    tools = (ToolSpec(name='a"b', description="\n", parameters="nope"), ToolSpec(name="c", parameters='{"x": 1}'))
    little.build(tmp_path, trace("a", user("x"), runs("ls"), seen("y"), says("z"), tools=tools))
    shown = [tool["function"] for tool in next(rows(tmp_path / "d", "trajectories"))["tools"]]
    empty = {"type": "object", "properties": {}}
    assert [(t["name"], t["parameters"]) for t in shown] == [('a"b', empty), ("c", empty | {"x": 1})]


@pytest.mark.parametrize("window_rows", [4096, 8])
def test_disk_full(start: Start, previous: Path, window_rows: int) -> None:
    """No file may grow beyond a few blocks: one clear line, and all is as it was.

    With small windows several files are begun when one fails: they are given up without a word of the library's.
    """
    before = tree(previous)
    process = start(previous, overwrite=True, file_size=4096 if window_rows > 8 else 30_000, window_rows=window_rows)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "cannot write: " in out.splitlines()[-1] and not err
    assert tree(previous) == before and [p.name for p in previous.parent.iterdir()] == ["dataset"]


@pytest.mark.slow
def test_killed_at_any_moment(start: Start, traces: Path, previous: Path, tmp_path_factory: Any) -> None:
    """kill -9: the previous dataset is untouched, no worker lives on, and the next build ends in the same bytes."""
    before = tree(previous)
    for moment, workers in (("building 0", 1), ("building 1", 2), ("checking 3", 1)):
        process = start(previous, overwrite=True, messages_per_job=200, workers=workers)
        wait_for(process, moment)
        workers_of_it = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        process.wait()
        assert tree(previous) == before
        assert (previous.parent / ".dataset.building").is_dir()
        _, alive = psutil.wait_procs(workers_of_it, timeout=10)
        assert bool(workers_of_it) == (workers > 1) and not alive
    whole = tmp_path_factory.mktemp("fresh") / "dataset"
    for out in (previous, whole):
        build(traces, out=out, overwrite=True, statistical_gates=False)
    assert tree(previous) == tree(whole) != before
    assert [p.name for p in previous.parent.iterdir()] == ["dataset"]


def test_killed_between_the_two_renames(small: Path, traces: Path, previous: Path) -> None:
    """The old dataset is away and the new one not yet there: the next build puts the old one back before anything."""
    before = tree(previous)
    staging = previous.with_name(".dataset.building")
    staging.mkdir()
    previous.rename(staging / "previous")
    (staging / "dataset-1").mkdir()
    with pytest.raises(BuildError, match="exists"):
        build(traces, out=previous)
    assert tree(previous) == before
    assert [p.name for p in previous.parent.iterdir()] == ["dataset"]


def test_the_last_rename_fails(traces: Path, previous: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old dataset is back at once."""
    before, honest = tree(previous), Path.rename

    def rename(self: Path, target: Path) -> Path:
        if self.name.startswith("dataset-"):
            raise OSError(5, "Input/output error", str(target))
        return honest(self, target)

    monkeypatch.setattr(Path, "rename", rename)
    with pytest.raises(BuildError, match="cannot write"):
        build(traces, out=previous, overwrite=True, statistical_gates=False)
    monkeypatch.undo()
    assert tree(previous) == before
    assert [p.name for p in previous.parent.iterdir()] == ["dataset"]


def test_a_worker_that_is_killed(start: Start, previous: Path) -> None:
    """As the system does when memory runs out: one clear line, and all is as it was."""
    before = tree(previous)
    process = start(previous, overwrite=True, workers=2, messages_per_job=60)
    wait_for(process, "building 1")
    time.sleep(0.05)
    spawned = [c for c in psutil.Process(process.pid).children() if "spawn_main" in " ".join(c.cmdline())]
    spawned[0].kill()
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "a worker process died" in out.splitlines()[-1]
    assert "Traceback" not in err
    assert tree(previous) == before and [p.name for p in previous.parent.iterdir()] == ["dataset"]


@pytest.mark.parametrize("workers", [1, 2])
def test_interrupted(start: Start, previous: Path, workers: int) -> None:
    """Ctrl-C reaches the whole group: all is as it was at once, and no worker complains."""
    before = tree(previous)
    process = start(previous, overwrite=True, workers=workers, messages_per_job=60)
    wait_for(process, "building 4")
    os.killpg(process.pid, signal.SIGINT)
    begun = time.monotonic()
    _, err = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT and err.count("Traceback") == 1  # the script's own
    assert time.monotonic() - begun < 20
    assert tree(previous) == before and [p.name for p in previous.parent.iterdir()] == ["dataset"]


def test_command_says_that_it_was_interrupted(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "check_shards", stop)
    assert main(["build", str(small), "--out", str(tmp_path / "d"), "--quiet"]) == 130
    assert "is as it was before" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
