"""Recipes: one file each, listed in `core/plugins.py`, and the files they share."""
