"""A config says all that is special about it: nothing else in the build or the push knows its name."""

from __future__ import annotations

import pytest

from foretrace.dataset.recipes.base import COMMON_COLUMNS, Config, load_recipes


def test_a_row_that_is_read_back_has_the_salt_that_it_was_made_with() -> None:
    paired, unpaired = next(r.configs for r in load_recipes() if any(c.pair_families for c in r.configs))
    values = dict.fromkeys((*paired.columns, *unpaired.columns))
    values |= {"key": "k", "step": 3, "family": "argument", "pair": "p"}
    assert paired.make_row(values).salt == "argument:p"
    assert [unpaired.make_row(values | {"label": label}).salt for label in (True, False)] == [
        "argument:p+",
        "argument:p-",
    ]


def test_a_row_without_a_column_is_refused_by_name() -> None:
    config = Config(name="hosts", columns={"host": "string", "port": "int", **COMMON_COLUMNS}, about="Hosts.")
    with pytest.raises(ValueError, match="a row of the config hosts has no value for host, port"):
        config.make_row(dict.fromkeys(COMMON_COLUMNS))
