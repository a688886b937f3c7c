"""The interface of a recipe, which turns the attempts at one task into rows of one or more configs.

To add one, write a module in this folder whose `PLUGIN` has the members of `Recipe`, and name it in `BUILT_IN` of
`core/plugins.py`. See docs/build.md."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Protocol, TypeAlias

import msgspec

from foretrace.actions.taxonomy import ActionType
from foretrace.core.errors import UsageError
from foretrace.core.message_columns import MessageColumn
from foretrace.core.plugins import make_plugin, plugin_names
from foretrace.core.trace import Trace
from foretrace.dataset.recipes.attempts import TaskAttempts
from foretrace.dataset.settings import BuildSettings

GateVerdict = Literal["pass", "fail", "undecided", "removed"]
"""`removed`: the failing rows are not in the dataset."""
MAX_NAMED_ROWS = 5
"""Most rows that a failed gate lists."""


class Gate(msgspec.Struct, frozen=True, kw_only=True):
    """One check of a built dataset."""

    name: str
    verdict: GateVerdict
    figure: dict[str, Any] = {}
    detail: str = ""
    rows: tuple[str, ...] = ()
    """Rows that fail it: `config/split key step`."""

    def __str__(self) -> str:
        figure = ", ".join(f"{name} {value}" for name, value in self.figure.items())
        rows = f", e.g. {', '.join(self.rows)}" if self.rows else ""
        return f"{self.name} ({'; '.join(text for text in (figure, self.detail) if text)}){rows}"


def make_gate(
    name: str, figure: dict[str, Any], failing: Iterable[str] = (), *, failed: bool | None = None, detail: str = ""
) -> Gate:
    """A gate that fails if rows are failing, or as `failed` says; it names the first of the rows."""
    rows = tuple(sorted(failing)[:MAX_NAMED_ROWS])
    verdict = "fail" if (bool(rows) if failed is None else failed) else "pass"
    return Gate(name=name, verdict=verdict, figure=figure, detail=detail, rows=rows)


ColumnType = Literal["messages", "json_list", "string", "strings", "int", "float", "bool", "action", "actions"]
"""Type of a column: `messages` is a list of {role, content}, `json_list` a list of JSON values (`List(Json())` in
`datasets`), `action` a ClassLabel of the nine actions."""

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
"""Columns of every row: origin, outcome of the attempt, and weight of that outcome. `step` is the message's index."""
_Int32: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
_VALUES: dict[ColumnType, Any] = {
    "messages": list[tuple[str, str]],
    "json_list": list[Any],
    "string": str | None,
    "strings": list[str] | None,
    "int": _Int32 | None,  # pyright: ignore[reportOperatorIssue]
    "float": float | None,
    "bool": bool | None,
    "action": ActionType,
    "actions": list[ActionType],
}
"""The values that a column of each type holds. A message is (role, content)."""


class Row(NamedTuple):
    """One row of one config."""

    config: str
    key: str
    step: int
    salt: str
    """Distinguishes rows of one config at one step."""
    values: dict[str, Any]


class RowGroup(NamedTuple):
    """Rows of one config read back from a file, by column."""

    read: Callable[[str], list[Any]]
    """The values of a column, as the recipe gave them; equal texts of messages are one object."""
    open: Callable[[str], list[MessageColumn]]
    """A column of messages with each distinct text once."""


class RowCheck:
    """An exact gate that a config adds to those of every build.

    One object checks the rows of one shard job, in that job's process. All objects together make the gate.
    """

    columns: ClassVar[tuple[str, ...]] = ()
    """The columns of the config that it reads, besides key, step, group and prompt."""

    def __init__(self, settings: BuildSettings) -> None:
        self.settings = settings

    def add_rows(self, split: str, rows: RowGroup) -> None:
        """Check rows that were read back."""

    def add_prompt(self, trace: Trace, step: int, shown: range) -> None:
        """Check a prompt of some row at `step` of `trace`, which shows these messages of the history."""

    def finish(self) -> None:
        """Drop what `make_gates` does not need, before the object is sent to the main process."""

    @classmethod
    def make_gates(cls, checks: Sequence[Any]) -> list[Gate]:
        """The gates, made from the objects of all jobs."""
        raise NotImplementedError


class RowSelector(Protocol):
    """Chooses the rows of a config that stay: in each shard job, and then among the rows chosen by all jobs."""

    drop_reason: str
    """The reason under which other rows are counted as drops."""

    def add(self, row: Row) -> None:
        """Add a candidate."""
        ...

    def select(self, *, final: bool) -> Iterator[Row]:
        """The rows that stay, in order of rank. With `final=False`, all rows that the final choice may need."""
        ...


@dataclass(frozen=True)
class Config:
    """One dataset of a build."""

    name: str
    columns: dict[str, ColumnType]
    about: str
    """Its purpose, in a sentence for the card."""
    repository: str | None = None
    """Ending of its repository's name on the Hub, e.g. `proposer-sft`. Configs with the same ending share a repository.
    `None`: it is never pushed."""
    salt: Callable[[Mapping[str, Any]], str] | None = None
    """Distinguishes rows of this config at one step, from their values."""
    accounts_for: Literal["assistant_messages", "traces"] | None = None
    """Every step, or every trace, must give one row or one counted drop. The gate `counts` checks it."""
    rows_of: tuple[str, int] | None = None
    """(another config, number): each row of that config gives this many rows here. The gate `counts` checks it."""
    checks: tuple[type[RowCheck], ...] = ()
    pair_families: bool = False
    """Whether rows are pairs, with `chosen`, `rejected`, `family` and `pair`. Then the statistical gates measure each
    family. A family that a blind guesser can solve is removed from all configs of the recipe with a column `family`.
    The card shows how much of each family is easy."""
    mirrored: tuple[str, ...] = ()
    """Families in which the reverse of each pair is in the same group and split. They need no statistical gate: a
    guesser that does not read the prompt is right in exactly half of them. One of `checks` must verify this."""
    selector: Callable[[BuildSettings], RowSelector] | None = None
    """Chooses which of the recipe's rows stay; such a config has only the split `test`. `None` keeps all rows."""
    has_references: bool = False
    """Whether references are scored on its rows. Their figures then go to its repository on the Hub."""

    def __post_init__(self) -> None:
        for column, kind in self.columns.items():
            if kind not in _VALUES:
                known = ", ".join(_VALUES)
                raise UsageError(f"config {self.name}: column {column} has the type {kind!r}; choose one of {known}")

    def make_row(self, values: dict[str, Any]) -> Row:
        """A row with these values, made by a recipe or read back; a `ValueError` if they do not fit the columns."""
        try:
            msgspec.convert(values, _make_row_type(tuple(self.columns.items())))
        except msgspec.ValidationError as error:
            raise ValueError(f"a row of the config {self.name} does not fit its columns: {error}") from None
        return Row(self.name, values["key"], values["step"], self.salt(values) if self.salt else "", values)


@functools.cache
def _make_row_type(columns: tuple[tuple[str, ColumnType], ...]) -> type[msgspec.Struct]:
    fields = [(f"column{at}", _VALUES[kind], msgspec.field(name=name)) for at, (name, kind) in enumerate(columns)]
    return msgspec.defstruct("Values", fields, forbid_unknown_fields=True)


class Recipe(Protocol):
    """Turns traces into rows of one or more configs."""

    configs: tuple[Config, ...]

    def rows(self, task: TaskAttempts) -> Iterator[Row]:
        """Rows of one task. Every choice depends only on (seed, key, step)."""
        ...


def load_recipes(wanted: Sequence[str] = ()) -> list[Recipe]:
    """The recipes of these names (all when empty): foretrace's own in the order of its table, then others by name."""
    usual = {name: place for place, name in enumerate(plugin_names("recipe"))}
    chosen = sorted(wanted or usual, key=lambda name: (usual.get(name, len(usual)), name))
    return [make_plugin("recipe", name, Recipe) for name in chosen]


def load_configs(wanted: Sequence[str] = ()) -> dict[str, Config]:
    return {config.name: config for recipe in load_recipes(wanted) for config in recipe.configs}
