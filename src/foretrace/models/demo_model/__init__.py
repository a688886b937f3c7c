"""The embedded demo model: network, sampling and tokenizer in numpy, and its files in transformers' format."""

from __future__ import annotations

import shutil
from importlib import resources
from pathlib import Path

CHECKPOINT = resources.files(__name__) / "checkpoint"
"""Folder of a Qwen3 checkpoint, with its tokenizer, as transformers loads them."""
KNOWN_PROBLEMS = 10
"""The model knows only the first ten problems of the set `builtin`."""


def write_demo_model(folder: Path | str) -> str:
    """Write the demo model in the form that transformers loads, a Qwen3 with its tokenizer, for trying things out
    offline.

    Returns:
        The folder, which is created.
    """
    return str(shutil.copytree(str(CHECKPOINT), folder, dirs_exist_ok=True))
