"""Messages of the environments to their users: missing extras, and settings written as options."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from foretrace.core.errors import Setting


def missing_library_error(library: str, extra: str, missing: ImportError) -> ImportError:
    """The error to raise if a trainer's library is not installed."""
    how = f'pip install -e ".[{extra}]" in the checkout of foretrace'
    return ImportError(f"{library} is not there ({missing}): {how}", name=missing.name)


def make_option_style(options: Mapping[str, str]) -> Callable[[Setting], str]:
    """A style for `ForetraceError.render`: settings as the options that set them (`--env.sandbox local`). An option
    that includes a value (`--env.min_level 0`) is written as it is; a setting without an option as in Python."""

    def write_option(setting: Setting) -> str:
        option = options.get(setting.name)
        if option is None:
            return str(setting)
        value = str(setting.value).lower() if isinstance(setting.value, bool) else setting.value
        return option if value is None or " " in option else f"{option} {value}"

    return write_option
