"""How a model and an executor talk to each other, as pure text. `core/plugins.py` lists the protocols."""
