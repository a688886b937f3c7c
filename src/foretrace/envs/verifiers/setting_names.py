"""What `vf-eval` calls the settings that error messages speak of."""

from __future__ import annotations

import copy
from typing import TypeVar

from foretrace.core.errors import ForetraceError
from foretrace.envs.messages import make_option_style
from foretrace.episodes.rollout import make_failure_message

_Error = TypeVar("_Error", bound=ForetraceError)

_HARNESS = "--env.agent.harness"
OPTIONS = {
    "allow_weak_isolation": f"{_HARNESS}.allow-weak-isolation",
    "api_key_env": "--client.api-key-var",
    "base_url": "--client.base-url",
    "concurrency": "-c",
    "feedback": f"{_HARNESS}.feedback",
    "hints": f"{_HARNESS}.hints",
    "level": f"{_HARNESS}.level",
    "max_tokens": "--sampling.max-tokens",
    "max_turns": f"{_HARNESS}.max-turns",
    "path": "--env.taskset.path",
    "problems": "--env.taskset.problems",
    "protocol": f"{_HARNESS}.protocol",
    "retries": f"{_HARNESS}.retries",
    "runtime": "--env.agent.runtime.type",
    "sandbox": f"{_HARNESS}.sandbox",
    "temperature": "--sampling.temperature",
    "timeout": f"{_HARNESS}.timeout",
    "timeout_s": f"{_HARNESS}.timeout",
    "top_p": "--sampling.top-p",
    "workers": f"{_HARNESS}.workers",
}
"""Name of a setting in Python -> the option of `vf-eval` that sets it."""
_write_option = make_option_style(OPTIONS)


def render_error(error: ForetraceError) -> str:
    """The message of an error, with settings as options of `vf-eval`."""
    return error.render(_write_option)


def describe_failure(error: Exception) -> str:
    """What a report says of any failure, with settings as options of `vf-eval`."""
    return make_failure_message(error, _write_option)


def rewrite_error(error: _Error) -> _Error:
    """A copy of an error, with its traceback, whose `str` names the options of `vf-eval`: the library prints and
    records that text."""
    copied = copy.copy(error)
    copied.args = (render_error(error),)
    return copied.with_traceback(error.__traceback__)
