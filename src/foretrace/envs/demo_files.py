"""The demo model as files for other libraries."""

from __future__ import annotations

import shutil
from pathlib import Path

from foretrace.models.demo_model import CHECKPOINT


def write_demo_model(folder: Path | str) -> str:
    """Write the demo model in the form that transformers loads, a Qwen3 with its tokenizer, for trying things out
    offline. It knows ten problems by heart.

    Returns:
        The folder, which is created.
    """
    return str(shutil.copytree(str(CHECKPOINT), folder, dirs_exist_ok=True))
