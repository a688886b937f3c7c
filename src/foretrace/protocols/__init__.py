"""How a model and an executor talk: pure text. `core/plugins.py` lists the protocols."""
