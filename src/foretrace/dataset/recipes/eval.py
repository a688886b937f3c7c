"""`eval`: held-out steps of test groups, with the gold action, call and the next few action types.

Every step of a test group is a candidate. Two slices are kept: a natural one, and one with equal classes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from foretrace.dataset.parquet import find_rank
from foretrace.dataset.recipes.attempts import TaskAttempts
from foretrace.dataset.recipes.base import COMMON_COLUMNS, Config, Row
from foretrace.dataset.recipes.proposer import iterate_steps, make_values
from foretrace.dataset.settings import BuildSettings

MAX_NEXT_ACTIONS = 5
"""Number of next action types in a row, including its own."""
_COMMON_SHARE = 0.1
"""A class with at least this share of the rows of the most frequent one counts when the balanced slice sets the size of
its classes."""


class EvalSlices:
    """Keeps the rows with the smallest ranks: a natural slice, and one with equal classes. Those of several shard jobs
    merge by adding the rows that each selects to another one: the smallest overall are among the smallest of each."""

    drop_reason = "in_no_slice"

    def __init__(self, settings: BuildSettings) -> None:
        self._seed = settings.seed
        self._natural = _SmallestRanks(settings.eval_size)
        self._classes: dict[str, _SmallestRanks] = defaultdict(lambda: _SmallestRanks(settings.eval_size // 9))

    def add(self, row: Row) -> None:
        """Add a candidate."""
        rank = find_rank(self._seed, row)
        self._natural.add(rank, row)
        self._classes[str(row.values["action"])].add(rank, row)

    def select(self, *, final: bool) -> Iterator[Row]:
        """Rows in the order of their rank, with `natural` and `balanced` set.

        With `final`, these are the rows of the two slices; without it, all rows that a merge may need. In the balanced
        slice, all classes that are at least `_COMMON_SHARE` as frequent as the most frequent one have the same number
        of rows. Rarer classes keep all of theirs.
        """
        natural = self._natural.take()
        classes = [rows.take() for rows in self._classes.values()]
        sizes = [len(rows) for rows in classes]
        common = min((size for size in sizes if size >= _COMMON_SHARE * max(sizes)), default=0)
        balanced = {rank for rows in classes for rank in list(rows)[:common]}
        candidates = {rank: row for rows in (natural, *classes) for rank, row in rows.items()}
        for rank, row in sorted(candidates.items()):
            if not final or rank in natural or rank in balanced:
                yield row._replace(values=row.values | {"natural": rank in natural, "balanced": rank in balanced})


class _SmallestRanks:
    """The rows with the smallest ranks. Others are dropped from time to time."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._rows: dict[str, Row] = {}

    def add(self, rank: str, row: Row) -> None:
        self._rows[rank] = row
        if len(self._rows) > 2 * self._size + 64:
            self._rows = self.take()

    def take(self) -> dict[str, Row]:
        return {rank: self._rows[rank] for rank in sorted(self._rows)[: self._size]}


CONFIG = Config(
    name="eval",
    columns={
        "prompt": "messages",
        "completion": "messages",
        "action": "action",
        "tool": "string",
        "arguments": "string",
        "next_actions": "actions",
        "effect": "string",
        "rule": "string",
        "state_version": "int",
        "natural": "bool",
        "balanced": "bool",
        **COMMON_COLUMNS,
    },
    about="Held-out steps with gold action and call; `natural` and `balanced` mark the two slices.",
    repository="eval",
    selector=EvalSlices,
    has_references=True,
)


class Eval:
    """A row for each step of a test group, unless a sibling did the same at the same prompt."""

    configs = (CONFIG,)

    def rows(self, task: TaskAttempts) -> Iterator[Row]:
        for target in iterate_steps(task) if task.split == "test" else ():
            calls = target.message.tool_calls
            labels = target.attempt.labels
            following = [str(each.action) for each in labels if each.action is not None and each.index >= target.index]
            values = {
                "arguments": calls[0].arguments if calls else "{}",
                "next_actions": following[:MAX_NEXT_ACTIONS],
                "natural": False,
                "balanced": False,
            }
            yield CONFIG.make_row(make_values(target) | values)


PLUGIN = Eval()
