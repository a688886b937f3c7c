"""Traces of the demo model make a dataset only where that is asked for; it says so, and is never pushed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from dataset.little import corpus, tree
from foretrace.core.errors import PushError, UsageError
from foretrace.core.store import write_traces
from foretrace.core.trace import Trace
from foretrace.dataset.build import build
from foretrace.dataset.demonstration import is_demo_model
from foretrace.dataset.push import push
from foretrace.dataset.settings import BuildSettings
from foretrace.models.servers.demo import Demo

TOLD = "6 of 36 traces come from the demo model: this dataset is a demonstration, never training data"
ALLOWED = BuildSettings(allow_demo=True, statistical_gates=False)


def by_the_demo_model(trace: Trace, model: str = Demo().spec) -> Trace:
    made = msgspec.structs.replace(trace.provenance, origin="generated", model=model)
    return msgspec.structs.replace(trace, provenance=made)


@pytest.fixture
def honest(tmp_path: Path) -> Path:
    write_traces(corpus(10), tmp_path / "honest")
    return tmp_path / "honest"


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """36 traces, 6 of them by the demo model."""
    traces = corpus(12)
    write_traces([*map(by_the_demo_model, traces[:6]), *traces[6:]], tmp_path / "mixed")
    return tmp_path / "mixed"


def test_refused_in_one_line_before_anything_is_written(tmp_path: Path, honest: Path, mixed: Path) -> None:
    before = tree(tmp_path)
    with pytest.raises(UsageError) as refused:
        build([honest, mixed], tmp_path / "out")
    said = str(refused.value)
    assert said.startswith(f"{mixed}: 6 of 36 traces come from the demo model") and "\n" not in said
    assert "allow_demo=True" in said and str(honest) not in said
    assert tree(tmp_path) == before and not (tmp_path / "out").exists()


SERVED = ["llamacpp:demo-model", "openai:demo-model", "ollama:demo-model:latest", "mine:Server:demo-model"]
SERVED += ["ollama:someone/demo-model", "openai:models/demo-model.gguf", "llamacpp:C:\\models\\Demo-Model.GGUF"]
OTHERS = [None, "", "demo", "openai:demo-model-2", "openai:demo-model/other", "my-demo-model"]


@pytest.mark.parametrize(("model", "is_demo"), [*((m, True) for m in SERVED), *((m, False) for m in OTHERS)])
def test_a_server_does_not_hide_it_and_others_are_not_taken_for_it(model: str | None, is_demo: bool) -> None:
    assert is_demo_model(model) == is_demo


def test_it_is_never_pushed(tmp_path: Path, mixed: Path) -> None:
    build([mixed], tmp_path / "out", ALLOWED)
    ways: list[dict[str, Any]] = [{}, {"dry_run": True}, {"allow_undecided": True}]
    for how in ways:
        with pytest.raises(PushError) as refused:
            push(tmp_path / "out", org="org", **how)
        assert str(refused.value) == f"{tmp_path / 'out'}: {TOLD}, and is never pushed: build one without them"
