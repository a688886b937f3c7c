"""The embedded demo model: network, sampling and tokenizer in numpy, and its files in transformers' format."""

from importlib import resources

CHECKPOINT = resources.files(__name__) / "checkpoint"
"""Folder of a Qwen3 checkpoint, with its tokenizer, as transformers loads them."""
KNOWN_PROBLEMS = 10
"""The model knows only the first ten problems of the set `builtin`."""
