"""A config says all that is special about it: nothing else in the build or the push knows its name."""

from __future__ import annotations

from foretrace.dataset.recipes.base import load_recipes


def test_a_row_that_is_read_back_has_the_salt_that_it_was_made_with() -> None:
    values = {"key": "k", "step": 3, "family": "argument", "pair": "p"}
    paired, unpaired = next(r.configs for r in load_recipes() if any(c.pair_families for c in r.configs))
    assert paired.make_row(values).salt == "argument:p"
    assert [unpaired.make_row(values | {"label": label}).salt for label in (True, False)] == [
        "argument:p+",
        "argument:p-",
    ]
