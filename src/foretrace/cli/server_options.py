"""The options of a model server, which `generate` and `doctor --model` share; most are left out of `--help`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foretrace.core.errors import UsageError

if TYPE_CHECKING:
    from foretrace.models.base import Server


def more(flag: str, about: str, **settings: Any) -> Any:
    """An option that is left out of `--help`; docs/cli.md lists it."""
    return typer.Option(flag, help=about, hidden=True, **settings)


BaseUrl = Annotated[str | None, typer.Option("--base-url", metavar="URL", help="Where the model server is.")]
KeyEnv = Annotated[str | None, more("--api-key-env", "Environment variable with the key of --base-url.")]
ContextLength = Annotated[int | None, more("--context-length", "Tokens of context to ask the server for.", min=1)]
Timeout = Annotated[float | None, more("--timeout", "Longest silence of the server, seconds.", min=0.1)]
Retries = Annotated[int | None, more("--retries", "How often a request is tried again.", min=0)]
ModelOption = Annotated[list[str] | None, more("--model-option", "NAME=VALUE of the model's kind; may be repeated.")]


def server_of(
    *,
    base_url: str | None,
    api_key_env: str | None,
    context_length: int | None,
    timeout: float | None,
    retries: int | None,
    model_option: list[str] | None,
) -> Server:
    """The server that the options name; what is null is as in `Server`.

    Raises:
        UsageError: no such environment variable, or an option without a value.
    """
    from foretrace.models.base import Server

    given: dict[str, Any] = {
        "base_url": base_url,
        "api_key": _key_in(api_key_env),
        "context_length": context_length,
        "timeout_s": timeout,
        "retries": retries,
        "options": _pairs(model_option or []),
    }
    return Server(**{name: value for name, value in given.items() if value is not None})


def _key_in(variable: str | None) -> str | None:
    if variable is None:
        return None
    if not os.environ.get(variable):
        raise UsageError(f"--api-key-env {variable}: there is no such environment variable, or it is empty")
    return os.environ[variable]


def _pairs(given: list[str]) -> dict[str, str]:
    pairs = [pair.partition("=") for pair in given]
    for name, equals, _ in pairs:
        if not (name and equals):
            raise UsageError(f"--model-option {name!r}: write NAME=VALUE, e.g. think=false")
    return {name: value for name, _, value in pairs}
