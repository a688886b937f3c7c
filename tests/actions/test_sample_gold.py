"""Hand labels of the shipped samples, held against what `import` and `label` say of them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from foretrace.actions.taxonomy import ActionType
from foretrace.cli.main import main

GOLD = Path(__file__).parent / "gold" / "samples.jsonl"
"""Every step of all chat and toolbench samples and of 16 swe_smith ones, labeled before the code's labels were seen.

One message is left out: "Exit due to cost limit" is not the agent's own.
"""


Row = dict[str, Any]


@pytest.fixture(scope="module")
def gold() -> list[Row]:
    return [json.loads(line) for line in GOLD.read_text("utf-8").splitlines()]


@pytest.fixture(scope="module")
def labels(sample_traces: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int], str | None]:
    """(key, message index) -> action; `None` where it is not a step."""
    out = tmp_path_factory.mktemp("labels") / "labels.parquet"
    assert main(["label", str(sample_traces), "--out", str(out), "--quiet"]) == 0
    return {(row["key"], row["message_index"]): row["action"] for row in pq.read_table(out).to_pylist()}


def misses(steps: Iterable[Row], labels: dict[tuple[str, int], str | None], *, strict: bool) -> list[str]:
    """One line for each step that is labeled otherwise; one without a label is a miss."""
    return [
        f"{labels.get((step['key'], step['message']))}, by hand: {step}"
        for step in steps
        if labels.get((step["key"], step["message"])) not in (step["action"], *(() if strict else step["alt"]))
    ]


@pytest.mark.parametrize(("strict", "floor"), [(True, 0.95), (False, 0.98)], ids=["strict", "lenient"])
def test_labels_agree_with_hand_labels(
    gold: list[Row], labels: dict[tuple[str, int], str | None], strict: bool, floor: float
) -> None:
    wrong = misses(gold, labels, strict=strict)
    assert 1 - len(wrong) / len(gold) >= floor, "\n".join(wrong)


@pytest.mark.parametrize("action", ActionType)
def test_recall_of_an_action(gold: list[Row], labels: dict[tuple[str, int], str | None], action: ActionType) -> None:
    steps = [step for step in gold if step["action"] == action]
    wrong = misses(steps, labels, strict=True)
    assert 1 - len(wrong) / len(steps) >= 0.9, "\n".join(wrong)
