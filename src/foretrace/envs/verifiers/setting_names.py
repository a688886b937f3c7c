"""What `vf-eval` calls the settings that messages name as options of `foretrace`."""

from __future__ import annotations

import re

from foretrace.core.errors import ForetraceError
from foretrace.models.server_errors import PlacedError

_HARNESS = "--env.agent.harness"
NAMES = {
    "--allow-weak-isolation": f"{_HARNESS}.allow-weak-isolation",
    "--api-key-env": "--client.api-key-var",
    "--base-url": "--client.base-url",
    "--concurrency": "-c",
    "--max-tokens": "--sampling.max-tokens",
    "--max-turns": f"{_HARNESS}.max-turns",
    "--path": "--env.taskset.path",
    "--sandbox": f"{_HARNESS}.sandbox",
    "--temperature": "--sampling.temperature",
    "--timeout": f"{_HARNESS}.timeout",
    "--top-p": "--sampling.top-p",
}
_ANY = re.compile(rf"(?<![\w.-])(?:{'|'.join(NAMES)})(?![\w.-])")


def renamed(text: str) -> str:
    """The text with the settings as `vf-eval` takes them."""
    return _ANY.sub(lambda found: NAMES[found[0]], text)


def rename(error: Exception) -> None:
    """Let an error of ours name the settings as `vf-eval` takes them; others are left as they are."""
    if isinstance(error, ForetraceError):
        error.args = (renamed(str(error)),)
    if isinstance(error, PlacedError):
        error.placeless = renamed(error.placeless)
