"""How a model and an executor talk: pure text, each file in this folder one protocol."""
