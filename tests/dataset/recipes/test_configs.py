"""A config says all that is special about it: nothing else in the build or the push knows its name."""

from __future__ import annotations

import ast
from pathlib import Path

import foretrace.dataset
from foretrace.dataset.recipes.base import load_configs, load_recipes

SOURCES = sorted(Path(next(iter(foretrace.dataset.__path__))).rglob("*.py"))


def test_the_name_of_a_config_stands_in_one_file() -> None:
    for config in load_configs().values():
        texts = {path.name: [n.value for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Constant)]
                 for path in SOURCES}  # fmt: skip
        assert len([name for name, found in texts.items() if config.name in found]) == 1, config.name


def test_a_row_that_is_read_back_has_the_salt_that_it_was_made_with() -> None:
    values = {"key": "k", "step": 3, "family": "argument", "pair": "p"}
    paired, unpaired = next(r.configs for r in load_recipes() if any(c.pair_families for c in r.configs))
    assert paired.make_row(values).salt == "argument:p"
    assert [unpaired.make_row(values | {"label": label}).salt for label in (True, False)] == [
        "argument:p+",
        "argument:p-",
    ]
