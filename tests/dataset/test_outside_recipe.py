"""A recipe from outside: its selector, its families and its columns are its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dataset.little import corpus, rows, tree
from foretrace.api.datasets import build
from foretrace.core.errors import ForetraceWarning
from foretrace.core.store import write_traces
from foretrace.dataset import plan
from foretrace.dataset.recipes.attempts import TaskAttempts
from foretrace.dataset.recipes.base import COMMON_COLUMNS, Config, Row
from foretrace.dataset.settings import BuildSettings


class FirstRows:
    """Keeps the rows that come first."""

    drop_reason = "not_first"

    def __init__(self, settings: BuildSettings) -> None:
        self._rows: list[Row] = []

    def add(self, row: Row) -> None:
        self._rows.append(row)

    def select(self, *, final: bool) -> Iterator[Row]:
        yield from self._rows[:5]


FIRST = Config("first", {"prompt": "messages", **COMMON_COLUMNS}, "The first steps.", selector=FirstRows)
PAIR_COLUMNS = dict.fromkeys(("prompt", "family", "strength"), "string")
PAIRS = Config("pairs", {**PAIR_COLUMNS, **COMMON_COLUMNS}, "All steps.", pair_families=True)  # type: ignore[arg-type]


class Outside:
    configs = (FIRST, PAIRS)

    def rows(self, task: TaskAttempts) -> Iterator[Row]:
        for target in (target for attempt in task.attempts for target in attempt.targets):
            values = target.attempt.make_common_values(target.index)
            if task.split == "test":
                yield FIRST.make_row({"prompt": target.prompt, **values})
            yield PAIRS.make_row({"prompt": "as text", "family": "my family", "strength": "very strong", **values})


def test_rows_do_not_depend_on_which_process_makes_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings: dict[str, Any] = {"split": (0.2, 0.2, 0.6), "statistical_gates": False}
    settings["recipes"] = [f"{__name__}:Outside"]
    monkeypatch.setattr(plan, "MESSAGES_PER_JOB", 100)
    write_traces(corpus(24), tmp_path / "t")
    manifest = build(tmp_path / "t", out=tmp_path / "one", **settings).manifest
    build(tmp_path / "t", out=tmp_path / "other", workers=2, **settings)
    assert tree(tmp_path / "one") == tree(tmp_path / "other")
    assert len(list(rows(tmp_path / "one", "first"))) == 5
    pairs = len(list(rows(tmp_path / "one", "pairs")))
    assert (manifest["families"], manifest["strengths"]) == ({"my family": pairs}, {"my family very strong": pairs})


class Undeclared(Outside):
    configs = (FIRST,)


def test_a_row_of_a_config_that_the_recipe_does_not_name_is_refused(tmp_path: Path) -> None:
    write_traces(corpus(2), tmp_path / "t")
    with pytest.warns(ForetraceWarning, match="a row of the config pairs, which the recipe does not name in `configs`"):
        build(tmp_path / "t", out=tmp_path / "d", recipes=[f"{__name__}:Undeclared"])
