"""Other constants for asserts that an object decides: if it accepts those too, it is not believed."""

from __future__ import annotations

import ast
import random
from typing import Any

from foretrace.sandbox.inside.roles.decoys import NoDecoyError, vary

RANDOM = random.SystemRandom()
_ROWS = 8
_LITERALS = (int, float, str, bool)


def make_line_up(real: list[Any], tolerances: set[int]) -> tuple[list[list[Any]], int] | None:
    """Rows of constants similar to those of a check, and the index of the true row; None if no others are found."""
    rows = [real]
    places = [n for n in range(len(real)) if n not in tolerances]
    for turn in range(40):
        place = places[turn % len(places)]
        value = real[place]
        try:
            other = vary(value, RANDOM)
        except NoDecoyError:
            continue
        row = [*real[:place], other, *real[place + 1 :]]
        if all(repr(row) != repr(made) for made in rows):
            rows.append(row)
        if len(rows) > _ROWS:
            break
    RANDOM.shuffle(rows)
    return (rows, next(n for n, row in enumerate(rows) if row is real)) if len(rows) > 1 else None


def find_variants(leaves: list[ast.expr]) -> tuple[list[str], int]:
    """Source of several variants of one leaf, each with another constant, and the number of the leaf."""
    for place in sorted(range(len(leaves)), key=lambda n: (not isinstance(leaves[n], ast.Call), -n)):
        nodes = list(ast.walk(leaves[place]))
        if any(isinstance(n, (ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr)) for n in nodes):
            continue
        made: list[str] = []
        count = sum(isinstance(n, ast.Constant) and type(n.value) in _LITERALS for n in nodes)
        for which in list(range(min(count, 6))) * (4 if count < 3 else 2):
            tree = ast.parse(ast.unparse(leaves[place]), mode="eval")
            found = [n for n in ast.walk(tree) if isinstance(n, ast.Constant) and type(n.value) in _LITERALS]
            value: Any = found[which].value
            near = type(value) is int and len(made) < count  # an adjacent number is most likely to change the result
            found[which].value = value + RANDOM.choice([-1, 1]) if near else vary(value, RANDOM)
            if (other := ast.unparse(tree)) not in (*made, ast.unparse(leaves[place])):
                made.append(other)
        if made:
            return made, place
    return [], 0
