"""Recipes: one file each, in the order in which `core/plugins.py` lists them."""

from __future__ import annotations

from collections.abc import Sequence

from foretrace.core.plugins import load_plugin, plugin_names
from foretrace.dataset.recipes.base import Config, Recipe


def load_recipes(wanted: Sequence[str] = ()) -> list[Recipe]:
    """The recipes of these names (all when empty), in their usual order; those of others stand last, by name."""
    usual = {name: place for place, name in enumerate(plugin_names("recipe"))}
    chosen = sorted(wanted or usual, key=lambda name: (usual.get(name, len(usual)), name))
    found = [load_plugin("recipe", name) for name in chosen]
    return [recipe() if isinstance(recipe, type) else recipe for recipe in found]


def load_configs(wanted: Sequence[str] = ()) -> dict[str, Config]:
    """The configs of these recipes, by name."""
    return {config.name: config for recipe in load_recipes(wanted) for config in recipe.configs}
