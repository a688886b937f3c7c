"""Hand labels of the shipped samples, held against what `import` and `label` say of them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest

from foretrace.actions.taxonomy import ActionType
from foretrace.cli.main import main

GOLD = Path(__file__).parent / "gold" / "samples.jsonl"
"""Every step of all chat and toolbench samples and of 16 swe_smith ones, labeled before the code's labels were seen.

One message is left out: "Exit due to cost limit" is not the agent's own.
"""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the gold file: an assistant message of a sample, and what a reader says that it does."""

    source: str
    file: str
    key: str
    message: int
    """Position in the trace, and in the row too."""
    action: ActionType
    alt: tuple[ActionType, ...]
    """Labels that the rubric accepts as well."""
    reason: str

    @property
    def place(self) -> tuple[str, int]:
        return self.key, self.message


@pytest.fixture(scope="module")
def gold() -> list[Step]:
    return [msgspec.json.decode(line, type=Step) for line in GOLD.read_text("utf-8").splitlines()]


@pytest.fixture(scope="module")
def labels(sample_traces: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int], str | None]:
    """(key, message index) -> action; `None` where it is not a step."""
    out = tmp_path_factory.mktemp("labels") / "labels.parquet"
    assert main(["label", str(sample_traces), "--out", str(out), "--quiet"]) == 0
    return {(row["key"], row["message_index"]): row["action"] for row in pq.read_table(out).to_pylist()}


def misses(steps: Iterable[Step], labels: dict[tuple[str, int], str | None], *, strict: bool) -> list[str]:
    """One line for each step that is labeled otherwise; one without a label is a miss."""
    return [
        f"{step.file} {step.key} [{step.message}]: {labels.get(step.place)}, by hand {step.action}: {step.reason}"
        for step in steps
        if labels.get(step.place) not in (step.action, *(() if strict else step.alt))
    ]


@pytest.mark.parametrize(("strict", "floor"), [(True, 0.95), (False, 0.98)], ids=["strict", "lenient"])
def test_labels_agree_with_hand_labels(
    gold: list[Step], labels: dict[tuple[str, int], str | None], strict: bool, floor: float
) -> None:
    wrong = misses(gold, labels, strict=strict)
    assert 1 - len(wrong) / len(gold) >= floor, "\n".join(wrong)


@pytest.mark.parametrize("action", ActionType)
def test_recall_of_an_action(gold: list[Step], labels: dict[tuple[str, int], str | None], action: ActionType) -> None:
    steps = [step for step in gold if step.action == action]
    wrong = misses(steps, labels, strict=True)
    assert 1 - len(wrong) / len(steps) >= 0.9, "\n".join(wrong)
