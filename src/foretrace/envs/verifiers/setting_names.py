"""The names of `vf-eval`'s options for the settings in error messages."""

from __future__ import annotations

import copy

from foretrace.core.errors import ForetraceError
from foretrace.envs.messages import make_option_style
from foretrace.episodes.rollout import make_failure_message

_FIELDS = "allow_weak_isolation feedback hints level max_turns protocol retries sandbox timeout workers"
OPTIONS = {name: f"--env.agent.harness.{name.replace('_', '-')}" for name in _FIELDS.split()} | {
    "api_key_env": "--client.api-key-var",
    "base_url": "--client.base-url",
    "concurrency": "-c",
    "max_tokens": "--sampling.max-tokens",
    "path": "--env.taskset.path",
    "problems": "--env.taskset.problems",
    "runtime": "--env.agent.runtime.type",
    "temperature": "--sampling.temperature",
    "timeout_s": "--env.agent.harness.timeout",
    "top_p": "--sampling.top-p",
}
"""Name of a setting in Python -> the option of `vf-eval` that sets it."""
_write_option = make_option_style(OPTIONS)


def render_error(error: ForetraceError) -> str:
    """The message of an error, with settings as options of `vf-eval`."""
    return error.render(_write_option)


def describe_failure(error: Exception) -> str:
    """Describe any failure for a report, with settings as options of `vf-eval`."""
    return make_failure_message(error, _write_option)


def rewrite_error(error: ForetraceError) -> ForetraceError:
    """A copy of an error, with its traceback, whose `str` names options of `vf-eval`: the library prints this text."""
    copied = copy.copy(error)
    copied.args = (render_error(error),)
    return copied.with_traceback(error.__traceback__)
