"""A config says all that is special about it: nothing else in the build or the push knows its name."""

from __future__ import annotations

import re
from typing import Any

import pytest

from foretrace.actions.taxonomy import ActionType
from foretrace.core.errors import UsageError
from foretrace.dataset.recipes.base import ColumnType, Config, load_recipes

VALUES: dict[ColumnType, Any] = {
    "messages": [("user", "a")],
    "json_list": [],
    "string": "s",
    "strings": [],
    "int": 3,
    "float": 1,
    "bool": None,
    "action": ActionType.RETRIEVAL,
    "actions": ["retrieval"],
}
HOSTS = Config(name="hosts", columns={"host": "string", "port": "int", "http-log": "messages"}, about="Hosts.")


def test_a_row_that_is_read_back_has_the_salt_that_it_was_made_with() -> None:
    paired, unpaired = next(r.configs for r in load_recipes() if any(c.pair_families for c in r.configs))

    def find_salt(config: Config, **values: Any) -> str:
        row = {name: VALUES[kind] for name, kind in config.columns.items()}
        return config.make_row(row | {"family": "argument", "pair": "p"} | values).salt

    assert find_salt(paired) == "argument:p"
    assert [find_salt(unpaired, label=label) for label in (True, False)] == ["argument:p+", "argument:p-"]


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({"host": 3}, "Expected `str | null`, got `int` - at `$.host`"),
        ({"port": "80"}, "Expected `int | null`, got `str` - at `$.port`"),
        ({"port": 2**31}, "Expected `int` <= 2147483647 - at `$.port`"),
        ({"http-log": [{"role": "user", "content": "a"}]}, "Expected `array`, got `object` - at `$.http-log[0]`"),
        ({"prt": 80}, "Object contains unknown field `prt`"),
        ({"host": ...}, "Object missing required field `host`"),
    ],
)
def test_a_row_that_does_not_fit_the_columns_is_refused(change: dict[str, Any], wrong: str) -> None:
    values = {"host": "h", "port": 80, "http-log": []} | change
    with pytest.raises(ValueError, match=re.escape(f"a row of the config hosts does not fit its columns: {wrong}")):
        HOSTS.make_row({name: value for name, value in values.items() if value is not ...})


def test_an_unknown_type_of_a_column_is_refused() -> None:
    with pytest.raises(UsageError, match="config hosts: column host has the type 'text'; choose one of messages, "):
        Config(name="hosts", columns={"host": "text"}, about="Hosts.")  # pyright: ignore[reportArgumentType]
