"""Recipes by name, and the configs that they make."""

from __future__ import annotations

from collections.abc import Sequence

from foretrace.core.plugins import make_plugin, plugin_names
from foretrace.dataset.recipes.base import Config, Recipe


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
