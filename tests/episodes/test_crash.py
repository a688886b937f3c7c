"""kill -9 of the real command at random moments: nothing is lost, nothing is there twice, and each run gets further."""

from __future__ import annotations

import contextlib
import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from episodes.generating import adds, ids, plus, stored
from fakes.model_server import Asked, ModelServer, serving
from foretrace.core.journal import FOLDER, JournalIndex
from foretrace.core.store import TraceStore

COMMAND = (sys.executable, "-m", "foretrace")
KILLS = 12
PROBLEMS = 24
SAMPLES = 6


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    """The command, of a model that solves some problems at some samples."""
    rows, scripts = [], []
    for number in range(PROBLEMS):
        problem = plus(number)
        tests = [test.code for test in (*problem.public_tests, *problem.hidden_tests)]
        rows.append({"id": f"plus/{number}", "statement": problem.statement, "entry_point": "plus", "tests": tests})
        for code in (f"x + {number}", "x - 1", f"x + {number} + 0"):
            turns = [f"<think>I add.</think><code>\ndef plus(x):\n    return {code}\n</code>", "<verify>Done.</verify>"]
            scripts.append({"turns": turns, "match": problem.statement})
    for name, lines in (("problems", rows), ("script", scripts)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    generate = ["generate", "--problems", "jsonl", "--path", "problems.jsonl"]
    generate += ["--protocol", "tools", "--model", "scripted:script.jsonl", "--samples", str(SAMPLES)]
    return [*generate, "--keep", "success", "--quiet", "--json"]


def finished(out: Path) -> Iterator[str]:
    """Keys of all attempts that are durable, whether they were sealed or not."""
    if (out / "manifest.json").exists():
        yield from stored(out)
        for heads in TraceStore(out).manifest.left_out.values():
            yield from (f"{head}/{number}" for head, numbers in heads.items() for number in numbers)
    for journal in (out / FOLDER).glob("*.zst"):
        index = JournalIndex(journal)
        yield from (*index.stored, *index.left_out)


def run(command: list[str], folder: Path) -> Any:
    """The report of the command."""
    done = subprocess.run([*COMMAND, *command], cwd=folder, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def wait_for_journal(process: subprocess.Popen[bytes], out: Path, *, there: bool) -> None:
    """Until attempts stand in a journal, or none does; or the process has ended."""
    end = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < end:
        with contextlib.suppress(FileNotFoundError):  # sealed and removed between the two looks
            if any(path.stat().st_size > 0 for path in (out / FOLDER).glob("*.zst")) is there:
                return
        time.sleep(0.005)


@pytest.mark.slow
def test_kill_nine_at_random_moments(tmp_path: Path, command: list[str]) -> None:
    out, moments = tmp_path / "killed", random.Random(3)
    done: set[str] = set()
    progress = in_journal = 0
    for _ in range(KILLS):
        killed = [*COMMAND, *command, "--out", "killed"]
        process = subprocess.Popen(killed, cwd=tmp_path, stdout=subprocess.DEVNULL)
        in_the_middle = moments.random() < 0.8  # else at any moment, the start and the sealing too
        if in_the_middle:
            wait_for_journal(process, out, there=False)  # the one of the run before is sealed
            wait_for_journal(process, out, there=True)
        time.sleep(moments.random() * (0.1 if in_the_middle else 3.0))
        process.kill()
        process.wait()
        now = set(finished(out))
        sealed = list(stored(out)) if (out / "manifest.json").exists() else []
        in_journal += any((out / FOLDER).glob("*.zst")) if (out / FOLDER).exists() else 0
        # Killed between the sealing and the removal of the journal, it holds what is sealed; the next run knows that.
        assert len(sealed) == len(set(sealed)), "an attempt is there twice"
        assert done <= set(now), "a finished attempt was lost"
        progress += bool(set(now) - done)
        done = set(now)
        if len(done) == PROBLEMS * SAMPLES:
            break
    assert progress >= 4 and in_journal >= 4
    assert len(done) > 0
    report = run([*command, "--out", "killed"], tmp_path)
    assert report["already_done"] + report["filtered"] == len(done) and report["remaining"] == 0
    run([*command, "--out", "whole"], tmp_path)
    assert ids(out) == ids(tmp_path / "whole")
    killed, whole = (TraceStore(tmp_path / name).manifest for name in ("killed", "whole"))
    assert (killed.segments, killed.left_out, killed.counts) == (whole.segments, whole.left_out, whole.counts)
    assert 0 < len(ids(out)) < PROBLEMS * SAMPLES


@pytest.mark.slow
def test_control_c_seals_and_the_same_command_goes_on(tmp_path: Path, command: list[str]) -> None:
    """The server answers no more, from when a few attempts are done until after the interrupt."""

    def say(asked: Asked) -> str:
        return "<verify>Done.</verify>" if asked.turn else adds(asked)

    interrupted = False
    with serving(ModelServer(say=say, latency_s=lambda n: 0 if interrupted or n < 12 else 60)) as server:
        more = ["--model", "openai:toy", "--base-url", server.url, "--samples", "1", "--concurrency", "2"]
        generate = [*command, *more, "--out", "t"]
        pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        with subprocess.Popen([*COMMAND, *generate], cwd=tmp_path, **pipes) as process:
            while not any(path.stat().st_size > 0 for path in (tmp_path / "t" / FOLDER).glob("*.zst")):
                assert process.poll() is None
                time.sleep(0.005)
            process.send_signal(signal.SIGINT)
            output, told = process.communicate(timeout=60)
        assert (process.returncode, output) == (130, "")
        assert told == "foretrace: interrupted; what was finished is kept in t, the same command goes on from there\n"
        assert not list((tmp_path / "t" / FOLDER).iterdir())
        kept = set(stored(tmp_path / "t"))
        assert kept
        interrupted = True
        report = run(generate, tmp_path)
    assert report["already_done"] == len(kept) and 0 < report["done"] < PROBLEMS and report["remaining"] == 0
