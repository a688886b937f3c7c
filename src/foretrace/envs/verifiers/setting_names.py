"""What `vf-eval` calls the settings that messages name as options of `foretrace`."""

from __future__ import annotations

import re

from foretrace.core.errors import ForetraceError, Setting
from foretrace.models.server_errors import ServerError, public_message

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
        error.args = (renamed(error.render(_style)),)
    if isinstance(error, ServerError):
        error.public_parts = (renamed(public_message(error, _style)),)


def _style(setting: Setting) -> str:
    name = NAMES.get(f"--{setting.name.replace('_', '-')}", setting.name)
    return name if setting.value is None else f"{name} {setting.value}"
