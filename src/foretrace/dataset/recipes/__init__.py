"""Recipes: a file for each, named in `core/plugins.py`; what they share beside them."""
