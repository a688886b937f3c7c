"""Recipes: one file each, picked up by folder."""

from __future__ import annotations

from collections.abc import Sequence

from foretrace.core.plugins import names, resolve
from foretrace.dataset.recipes.base import Recipe

_ORDER = ("proposer", "verifier", "eval", "trajectories")


def load(wanted: Sequence[str] = ()) -> list[Recipe]:
    """The recipes of these names (all when empty), in their usual order."""
    chosen = list(wanted) or names("recipe")
    chosen.sort(key=lambda name: (_ORDER.index(name) if name in _ORDER else len(_ORDER), name))
    found = [resolve("recipe", name) for name in chosen]
    return [recipe() if isinstance(recipe, type) else recipe for recipe in found]
