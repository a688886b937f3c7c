"""Small invented rows in every supported raw format, for the demo and the tests."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

_FILES = {
    "swe_smith:tool": "swe_smith_tool.jsonl",
    "swe_smith:xml": "swe_smith_xml.jsonl",
    "swe_smith:ticks": "swe_smith_ticks.jsonl",
    "toolbench": "toolbench.jsonl",
    "chat": "chat.jsonl",
}


def sample_files() -> dict[str, Path]:
    """Where the sample file of each source lies."""
    folder = Path(str(resources.files(__name__)))
    return {name: folder / file for name, file in _FILES.items()}
