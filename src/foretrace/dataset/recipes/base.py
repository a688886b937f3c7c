"""The contract of a recipe: the attempts at one task in, rows of one or more configs out.

To add one, write a module in this folder whose `PLUGIN` has the members of `Recipe`, and name it in `BUILT_IN` of
`core/plugins.py`. A config is one dataset of the build. It says all that is special about it: its columns, where it
goes on the Hub, which gates it adds, and what is done with its rows in the end. See docs/build.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import msgspec

from foretrace.core.message_columns import ChatText
from foretrace.core.plugins import make_plugin, plugin_names
from foretrace.core.trace import Trace
from foretrace.dataset.recipes.attempts import TaskAttempts
from foretrace.dataset.settings import BuildSettings

GateVerdict = Literal["pass", "fail", "undecided", "removed"]
"""`removed`: the rows that failed are not in the dataset."""
MAX_NAMED_ROWS = 5
"""Rows that a failed gate names at most."""


class Gate(msgspec.Struct, frozen=True, kw_only=True):
    """One check of a built dataset."""

    name: str
    verdict: GateVerdict
    figure: dict[str, Any] = {}
    detail: str = ""
    rows: tuple[str, ...] = ()
    """Rows that break it: `config/split key step`."""

    def __str__(self) -> str:
        figure = ", ".join(f"{name} {value}" for name, value in self.figure.items())
        rows = f", e.g. {', '.join(self.rows)}" if self.rows else ""
        return f"{self.name} ({'; '.join(text for text in (figure, self.detail) if text)}){rows}"


ColumnType = Literal["messages", "json_list", "string", "strings", "int", "float", "bool", "action", "actions"]
"""Type of a column: `messages` is a list of {role, content}, `json_list` a list of any JSON values (`List(Json())` for
`datasets`), `action` a ClassLabel of the nine."""

COMMON_COLUMNS: dict[str, ColumnType] = {
    "key": "string",
    "step": "int",
    "task": "string",
    "group": "string",
    "source": "string",
    "license": "string",
    "success": "bool",
    "reward": "float",
    "flags": "strings",
    "weight": "float",
}
"""Columns that every row carries: where it comes from, how the attempt ended, and the weight of that outcome. `step` is
the index of the assistant message."""


class Row(NamedTuple):
    """One row of one config."""

    config: str
    key: str
    step: int
    salt: str
    """Tells rows of one config at one step apart."""
    values: dict[str, Any]


class RowGroup(NamedTuple):
    """Some rows of one config, read back from a file, by column."""

    values: dict[str, list[Any]]
    """Plain columns."""
    messages: Mapping[str, list[list[ChatText]]]
    """Message columns, each made when it is first asked for; equal texts are one object."""
    digest_prompts: Callable[[str], list[bytes]]
    """Digests of the prompts in a message column (see `prompt_digests`), without making its messages."""


class RowCheck:
    """An exact gate that a config adds to those of every build.

    One object looks at the rows of one shard job, in that job's process; all objects together make the gate.
    """

    columns: ClassVar[tuple[str, ...]] = ()
    """What it reads of the config's columns, besides key, step, group and prompt."""

    def __init__(self, settings: BuildSettings) -> None:
        self.settings = settings

    def add_rows(self, split: str, rows: RowGroup) -> None:
        """Look at rows that were read back."""

    def add_prompt(self, trace: Trace, step: int, first_shown: int) -> None:
        """Look at a prompt of some row at `step` of `trace`, which shows the history from message `first_shown` on."""

    def finish(self) -> None:
        """Forget what `make_gates` does not need: the object is sent to the main process next."""

    @classmethod
    def make_gates(cls, checks: Sequence[Any]) -> list[Gate]:
        """The gates, from the objects of all jobs."""
        raise NotImplementedError


class RowSelector(Protocol):
    """Chooses the rows of a config that stay: in each shard job, and then among what all jobs chose."""

    drop_reason: str
    """The reason under which rows that do not stay are counted as drops."""

    def add(self, row: Row) -> None:
        """Take a candidate. In the end its `values` lack the columns that hold messages."""
        ...

    def select(self, *, final: bool) -> Iterator[Row]:
        """The rows that stay, in the order of their rank. With `final=False`: all rows that the final choice may
        still need."""
        ...


def _make_no_salt(values: Mapping[str, Any]) -> str:
    return ""


@dataclass(frozen=True)
class Config:
    """One dataset of a build."""

    name: str
    columns: dict[str, ColumnType]
    about: str
    """What it is for, in a sentence of the card."""
    repository: str | None = None
    """How the name of its repository on the Hub ends, e.g. `proposer-sft`. Configs with the same ending share a
    repository. `None`: it is never pushed."""
    salt: Callable[[Mapping[str, Any]], str] = _make_no_salt
    """What tells rows of this config at one step apart, from their values."""
    accounts_for: Literal["steps", "traces"] | None = None
    """Every step, or every trace, must give one row or one counted drop; the gate `counts` checks it."""
    rows_of: tuple[str, int] | None = None
    """(another config, number): each row of that config makes so many rows here; the gate `counts` checks it."""
    checks: tuple[type[RowCheck], ...] = ()
    """Gates of its own."""
    pair_families: bool = False
    """Whether rows are pairs, with `chosen`, `rejected`, `family` and `pair`. Then the statistical gates measure each
    family, and a family that a blind guesser sees through is removed from all configs of the recipe that have a column
    `family`; and how much of each family is easy stands in the card."""
    mirrored: tuple[str, ...] = ()
    """Families in which the reverse of each pair is a pair of the same group and split. No statistical gate measures
    them: a guesser that does not read the prompt is right in exactly half of them. One of `checks` must prove it on the
    rows."""
    selector: Callable[[BuildSettings], RowSelector] | None = None
    """Chooses which of the recipe's rows stay; such a config has only the split `test`. `None`: all rows stay."""
    has_references: bool = False
    """Whether references are scored on its rows: their figures then go to its repository on the Hub."""

    def make_row(self, values: dict[str, Any]) -> Row:
        """A row of these values, made by a recipe or read back."""
        return Row(self.name, values["key"], values["step"], self.salt(values), values)


class Recipe(Protocol):
    """Traces to rows of one or more configs."""

    configs: tuple[Config, ...]

    def rows(self, task: TaskAttempts) -> Iterator[Row]:
        """Rows of one task. Every choice derives from (seed, key, step)."""
        ...


def load_recipes(wanted: Sequence[str] = ()) -> list[Recipe]:
    """The recipes of these names (all when empty): those of foretrace in the order of its table, then others by
    name.

    Raises:
        UsageError: no such recipe, or an object that is none.
    """
    usual = {name: place for place, name in enumerate(plugin_names("recipe"))}
    chosen = sorted(wanted or usual, key=lambda name: (usual.get(name, len(usual)), name))
    return [make_plugin("recipe", name, Recipe) for name in chosen]


def load_configs(wanted: Sequence[str] = ()) -> dict[str, Config]:
    """The configs of these recipes, by name."""
    return {config.name: config for recipe in load_recipes(wanted) for config in recipe.configs}
