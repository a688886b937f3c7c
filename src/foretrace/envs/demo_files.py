"""The demo model as files that other libraries load."""

from __future__ import annotations

import shutil
from pathlib import Path

from foretrace.models.demo_model import CHECKPOINT


def write_demo_model(folder: Path | str) -> str:
    """Write the demo model as transformers loads it, a Qwen3 with its tokenizer, for a first try without a network; it
    has ten problems by heart.

    Returns:
        The folder, which is made.
    """
    return str(shutil.copytree(str(CHECKPOINT), folder, dirs_exist_ok=True))
