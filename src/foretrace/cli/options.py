"""Options that several commands share, and how a setting is written as an option."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foretrace.core.errors import Setting, UsageError

if TYPE_CHECKING:
    from foretrace.models.base import Server


FLAGS = {
    "columns": "--map",
    "api_key": "--api-key-env",
    "timeout_s": "--timeout",
    "options": "--model-option",
    "format": "--format",
    "tokens": "--max-tokens-total",
    "seconds": "--max-time",
    "cost": "--max-cost",
}
"""Settings whose option has another name than theirs."""


def write_flag(setting: Setting) -> str:
    """A setting as the command line has it: `--sandbox local`, `--allow-weak-isolation`."""
    name, value = setting
    flag = FLAGS.get(name, f"--{name.replace('_', '-')}")
    if value is None or value is True:
        return flag
    if isinstance(value, dict):
        return " ".join(f"{flag} {key}={each}" for key, each in value.items())
    return f"--no-{flag.removeprefix('--')}" if value is False else f"{flag} {value}"


def hidden_option(flag: str, about: str, **settings: Any) -> Any:
    """An option that is left out of `--help`; docs/cli.md lists it."""
    return typer.Option(flag, help=about, hidden=True, **settings)


Workers = Annotated[int, typer.Option("--workers", metavar="N", min=1, help="Processes that work at once.")]

BaseUrl = Annotated[str | None, typer.Option("--base-url", metavar="URL", help="Where the model server is.")]
ApiKeyEnv = Annotated[str | None, hidden_option("--api-key-env", "Environment variable with the key of --base-url.")]
ContextLength = Annotated[
    int | None, hidden_option("--context-length", "Tokens of context to ask the server for.", min=1)
]
Timeout = Annotated[float | None, hidden_option("--timeout", "Longest silence of the server, seconds.", min=0.1)]
Retries = Annotated[int | None, hidden_option("--retries", "How often a request is tried again.", min=0)]
ModelOption = Annotated[
    list[str] | None, hidden_option("--model-option", "NAME=VALUE of the model's kind; may be repeated.")
]

SandboxNames = Annotated[
    str, typer.Option("--sandbox", metavar="NAMES", help="In order of preference, e.g. docker,local.")
]
Preload = Annotated[
    str, typer.Option("--preload", metavar="SET", help="Import beforehand: none, numpy, science, or a+b.")
]
MinLevel = Annotated[int, typer.Option("--min-level", metavar="N", min=0, max=4, help="Isolation that must be had.")]
AllowWeakIsolation = Annotated[bool, typer.Option("--allow-weak-isolation", help="Accept levels 0 and 1.")]
SandboxWorkers = Annotated[
    int, typer.Option("--workers", metavar="N", min=0, help="Runs at one time; 0 is one a core.")
]


def make_server(
    *,
    base_url: str | None,
    api_key_env: str | None,
    context_length: int | None,
    timeout: float | None,
    retries: int | None,
    model_option: list[str] | None,
) -> Server:
    """The server that the options name; what is None is as in `Server`.

    Raises:
        UsageError: no such environment variable, or an option without a value.
    """
    from foretrace.models.base import Server

    given: dict[str, Any] = {
        "base_url": base_url,
        "api_key": _read_key(api_key_env),
        "context_length": context_length,
        "timeout_s": timeout,
        "retries": retries,
        "options": parse_pairs("options", model_option or [], example={"think": "false"}),
    }
    return Server(**{name: value for name, value in given.items() if value is not None})


def _read_key(variable: str | None) -> str | None:
    if variable is None:
        return None
    if not os.environ.get(variable):
        raise UsageError(Setting("api_key_env", variable), ": there is no such environment variable, or it is empty")
    return os.environ[variable]


def parse_pairs(setting: str, pairs: list[str], *, form: str = "NAME=VALUE", example: dict[str, str]) -> dict[str, str]:
    """`NAME=VALUE` of the repeated option of a setting as a table; `form` and `example` are how an error says it.

    Raises:
        UsageError: a pair without its name, its `=` or its value, or a name given twice.
    """
    table: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not (name and equals and value):
            raise UsageError(Setting(setting, repr(pair)), f": write {form}, e.g. ", Setting(setting, example))
        if name in table:
            raise UsageError(Setting(setting), f" names {name!r} twice")
        table[name] = value
    return table


def parse_folder(name: str | Path) -> Path:
    """A folder's name; an empty one would be the current folder."""
    if not str(name).strip():
        raise typer.BadParameter("name a folder")
    return Path(name)
