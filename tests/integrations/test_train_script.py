"""The dry run of docs/train.md, as the page has it: traces are made, and examples/train/train.sh goes from them to a
trained proposer and verifier, their guesses, and what they would have saved, all in one go, on a CPU.

The made-up agent is simple enough for a tiny model: that it learned is seen in every figure at the end.
"""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import foretrace
from docs.test_examples import ROOT, blocks, commands
from foretrace.core.predictions import read_predictions
from foretrace.evaluation.pair_accuracy import score_pairs
from integrations.llama_build import Say

pytestmark = pytest.mark.integration
PAGE, SCRIPT = "docs/train.md", "examples/train/train.sh"


class Ran(NamedTuple):
    """The dry run: its folder, and what it printed."""

    folder: Path
    printed: str

    @property
    def out(self) -> Path:
        return self.folder / "out"


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory, say: Say) -> Ran:
    """The page's block of Python and its commands, in a folder of their own."""
    for name in ("torch", "trl", "fastapi", "uvicorn"):
        pytest.importorskip(name, reason=f"{name} is not installed (make test-integrations installs it)")
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    folder = tmp_path_factory.mktemp("train")
    (folder / "examples").symlink_to(ROOT / "examples")
    made = blocks(PAGE)
    (python,) = [block.text for block in made if block.language == "python"]
    (shell,) = [block.text for block in made if f"$ {SCRIPT} traces demo-model" in block.text]
    lines = ["set -e", *(command for command, _ in commands(shell))]
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", python], cwd=folder, check=True)
    done = subprocess.run(
        ["bash", "-c", "\n".join(lines)], cwd=folder, env=make_environment(folder), capture_output=True, text=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    say(f"  {SCRIPT}: {after.ru_utime - used.ru_utime + after.ru_stime - used.ru_stime:.0f} CPU seconds")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return Ran(folder, done.stdout)


def make_environment(folder: Path) -> dict[str, str]:
    """A shell in which this Python's commands are, no network, and a cache of its own."""
    (folder / "bin").mkdir()
    command = folder / "bin/foretrace"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m foretrace "$@"\n')
    command.chmod(0o755)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return os.environ | {
        "PATH": f"{folder / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(folder / "hf"),
        "OMP_NUM_THREADS": "1",
        "PORT": str(port),
    }


def load_weights(folder: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    return load_file(folder / "model.safetensors")


def test_all_steps_are_done_in_their_order(ran: Ran) -> None:
    titles = [line for line in ran.printed.splitlines() if line.startswith("== ")]
    assert [title.split()[1] for title in titles] == [f"{number}." for number in range(1, 9)]
    assert "a perfect predictor of the next call saves at most 8.7%" in ran.printed


def test_each_training_changes_the_model(ran: Ran) -> None:
    base = load_weights(ran.folder / "demo-model")
    proposer, preferring, verifier = (load_weights(ran.out / name) for name in ("proposer", "proposer-dpo", "verifier"))
    assert base.keys() == proposer.keys() == preferring.keys()
    for one, other in ((base, proposer), (proposer, preferring), (base, verifier)):
        assert any((one[name].float() != other[name].float()).any() for name in one.keys() & other.keys())
    assert "score.weight" in verifier


@pytest.mark.parametrize("name", ["proposer", "proposer-dpo"])
def test_the_proposer_guesses_better_than_what_is_always_said(ran: Ran, name: str) -> None:
    guesses = read_predictions(ran.out / f"{name}.jsonl")
    assert guesses.header is not None and guesses.header.steps == count_rows(ran, "eval") >= 40
    assert guesses.header.faults.get("bad_guess", 0) <= 10, "most answers can be read"
    report = foretrace.score(ran.out / f"{name}.jsonl", ran.out / "dataset")
    (majority,) = [each for each in report.references if each.predictor == "majority"]
    value, low = find_figure(report.scores, "type_accuracy")
    assert value > 0.6 and low > find_figure(majority.scores, "type_accuracy")[0]
    assert find_figure(report.scores, "exact_call")[1] > 0.3


def test_one_command_sets_both_proposers_beside_the_free_predictors(ran: Ran) -> None:
    """What `foretrace score` printed in step 6, a line for each predictor."""
    table = ran.printed.partition("== 6. ")[2].partition("== 7. ")[0].partition("\npredictor ")[2].splitlines()
    named = [re.split(r"\s{2,}", line)[0] for line in table[1:]]
    names = [*map("{} (reference)".format, ("majority", "markov:2", "memory"))]
    assert [name.rpartition("/")[2] for name in named[:2]] == ["proposer-dpo", "proposer"] and {*names} <= {*named}


def count_rows(ran: Ran, config: str) -> int:
    """Rows of the split test."""
    configs = json.loads((ran.out / "dataset/manifest.json").read_bytes())["configs"]
    return configs[config]["test"]["rows"]


def find_figure(rows: list[Any], metric: str) -> tuple[float, float]:
    """A figure and the lower end of its interval."""
    (found,) = [row for row in rows if (row.slice, row.metric) == ("natural", metric)]
    return found.value, found.low


def test_the_verifier_prefers_the_right_action(ran: Ran) -> None:
    report = score_pairs(ran.out / "pairs.jsonl", ran.out / "dataset")
    value = report.families[0].accuracy.value
    assert report.rows == count_rows(ran, "verifier") > 0 and report.missing == 0
    assert value is not None and value > 0.7


def test_each_guess_has_the_verifiers_score(ran: Ran) -> None:
    verified = read_predictions(ran.out / "verified.jsonl")
    guesses = [row for row in verified.rows if row.action is not None]
    assert guesses and all(row.score is not None for row in guesses)
    report = foretrace.score(ran.out / "verified.jsonl", ran.out / "dataset")
    assert report.verifier is not None and report.verifier.auroc.value is not None


def test_the_guesses_would_have_saved_time(ran: Ran) -> None:
    report = foretrace.replay(ran.folder / "traces", ran.out / "verified.jsonl")
    assert report.verdict == "known"
    assert report.launched >= report.hits > 0
    assert 0 < report.saved_s <= report.oracle.saved_s
    assert "== 8. what they would have saved\nthis predictor would have saved" in ran.printed


def test_an_adapter_becomes_a_whole_model(tmp_path: Path) -> None:
    """`merge.py`: what `use_peft` leaves, then what it leaves behind, answers alike."""
    peft = pytest.importorskip("peft", reason="peft is not installed (make test-integrations installs it)")
    import torch
    from transformers import AutoModelForCausalLM

    from foretrace.models.demo_model import write_demo_model

    base = AutoModelForCausalLM.from_pretrained(write_demo_model(tmp_path / "base"), dtype=torch.float32)
    adapted = peft.get_peft_model(base, peft.LoraConfig(r=4, task_type="CAUSAL_LM", init_lora_weights=False))
    adapted.save_pretrained(tmp_path / "adapter")
    ids = torch.arange(3, 40)[None]
    with torch.no_grad():
        expected = adapted.eval()(ids).logits
    subprocess.run([sys.executable, ROOT / "examples/train/merge.py", tmp_path / "adapter"], check=True)
    assert not list((tmp_path / "adapter").glob("adapter_*"))
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "adapter", dtype=torch.float32).eval()
    with torch.no_grad():
        found = merged(ids).logits
    # The base model is stored in half precision, and so is what it is merged into.
    assert (found - expected).abs().mean() < 0.02 * expected.abs().mean()
