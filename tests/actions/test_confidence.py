"""How sure labels are: the table that is counted from hand labels, and what is made of it."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from actions.traces import do, labels, say, sh
from foretrace.actions.confidence import (
    BLIND_AGREEMENT,
    COUNTS,
    ConfidenceModel,
)

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "measure_rule_agreement.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """The script that makes the table."""
    spec = importlib.util.spec_from_file_location("measure_rule_agreement", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def own_steps(script: ModuleType) -> Sequence[Any]:
    return script.judge_samples()


@pytest.fixture(scope="module")
def source_steps(script: ModuleType, shared: Path) -> Sequence[Any]:
    return script.judge_sources(shared / "data")


def test_the_table_of_the_samples_is_not_stale(script: ModuleType, own_steps: Sequence[Any]) -> None:
    assert script.count_agreement(own_steps) == COUNTS.samples, "run scripts/measure_rule_agreement.py"


@pytest.mark.slow
def test_the_table_of_the_sources_is_not_stale(script: ModuleType, source_steps: Sequence[Any]) -> None:
    assert script.count_agreement(source_steps) == COUNTS.sources, "run scripts/measure_rule_agreement.py"


@pytest.mark.slow
def test_the_least_sure_steps_hold_more_of_the_errors_than_chance(
    script: ModuleType, own_steps: Sequence[Any], source_steps: Sequence[Any]
) -> None:
    """Each source is judged by a table that was counted without it."""
    steps = [*own_steps, *source_steps]
    judged = script.judge_left_out(steps)
    ranked = sorted(confidence for confidence, _ in judged)
    limit = ranked[len(ranked) // 20]
    chosen = [agrees for confidence, agrees in judged if confidence <= limit]
    errors = sum(not agrees for _, agrees in judged)
    assert errors > 0
    assert (len(chosen) - sum(chosen)) / errors >= 3 * len(chosen) / len(judged)
    constant = sum(agrees for _, agrees in judged) / len(judged)
    assert sum((p - y) ** 2 for p, y in judged) <= sum((constant - y) ** 2 for _, y in judged)


def test_a_rule_is_drawn_towards_its_family_and_that_towards_the_blind_trial() -> None:
    table = {"good.a file_read": (50, 50), "bad.a file_read": (10, 50), "bad.b file_read": (2, 2)}
    model = ConfidenceModel(table, 3)
    assert model.estimate("other.x", "file_read") == pytest.approx(BLIND_AGREEMENT)
    assert model.estimate_family("good") > BLIND_AGREEMENT > model.estimate_family("bad")
    assert model.estimate("bad.a", "file_read") < model.estimate("bad.x", "file_read")
    assert model.estimate("bad.x", "file_read") < model.estimate("bad.b", "file_read") < model.estimate("good.x", None)
    assert ConfidenceModel(table, 30).estimate("bad.b", "file_read") < model.estimate("bad.b", "file_read")


def test_every_label_has_a_confidence() -> None:
    found = labels(sh("git log"), do("mystery"), say("Understood."), say("Done."))
    assert all(0 < label.confidence < 1 and not label.corrected for label in found)
    assert found[0].confidence < found[3].confidence
