"""What the environments tell their users: which extra is missing, and a setting as the option they know it by."""

from __future__ import annotations

from collections.abc import Mapping

from foretrace.core.errors import ForetraceError, Setting


def missing_library_error(library: str, extra: str, missing: ImportError) -> ImportError:
    """What to raise where a trainer's library is not installed."""
    return ImportError(f'{library} is not there ({missing}): pip install "foretrace[{extra}]"', name=missing.name)


def write_options(error: ForetraceError, options: Mapping[str, str]) -> str:
    """The message of an error, each setting as an option with its value (`--env.sandbox local`).

    Args:
        options: name of a setting -> the option that sets it. One that has its value already (`--env.min_level 0`) is
            written as it is; a setting without one is written as in Python.
    """

    def style(setting: Setting) -> str:
        option = options.get(setting.name)
        if option is None:
            return str(setting)
        value = str(setting.value).lower() if isinstance(setting.value, bool) else setting.value
        return option if value is None or " " in option else f"{option} {value}"

    return error.render(style)
