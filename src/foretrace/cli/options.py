"""Options that several commands share, and how a setting is written as an option."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from foretrace.core.errors import Setting

if TYPE_CHECKING:
    from foretrace.engines.engine import Engine
    from foretrace.models.base import Server
    from foretrace.sandbox.base import SandboxSettings


FLAGS = {
    "columns": "--map",
    "api_key": "--api-key-env",
    "timeout_s": "--timeout",
    "options": "--model-option",
    "format": "--format",
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


def parse_folder(name: str | Path) -> Path:
    """A folder's name; an empty one would be the current folder."""
    return _parse_name(name, "folder")


def parse_file(name: str | Path) -> Path:
    """A file's name; an empty one would be the current folder."""
    return _parse_name(name, "file")


def _parse_name(name: str | Path, kind: str) -> Path:
    if not str(name).strip():
        raise typer.BadParameter(f"name a {kind}")
    return Path(name)


def out_option(metavar: str, about: str, *, parser: Callable[[str | Path], Path] = parse_folder) -> Any:
    """The option `--out`: a folder, or with `parse_file` a file."""
    return typer.Option("--out", metavar=metavar, help=about, parser=parser)


AssumeTimes = Annotated[
    str | None,
    typer.Option(
        "--assume-times",
        metavar="TABLE",
        help="Times for steps that have none: tracelab (published medians), model=6,tool=0.5 (seconds) or a TOML file.",
    ),
]
NoRedact = Annotated[
    bool, typer.Option("--no-redact", help="Leave secrets and user names in the traces; manifest and card say so.")
]
RedactEmails = Annotated[bool, typer.Option("--redact-emails", help="Take e-mail addresses out too.")]
RedactAddresses = Annotated[bool, typer.Option("--redact-addresses", help="Take IP addresses out too.")]


def corrections_option() -> Any:
    """The option `--corrections`: a file."""
    return typer.Option(
        "--corrections", metavar="FILE", parser=parse_file, help="A person's actions, which win: an edited --review."
    )


Workers = Annotated[int, typer.Option("--workers", metavar="N", min=1, help="Processes that work at once.")]


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """Where the work of a command is done."""

    engine: Annotated[
        Literal["processes", "ray"], typer.Option("--engine", help="Work in processes of this machine, or on Ray.")
    ] = "processes"
    ray_address: Annotated[
        str | None,
        typer.Option("--ray-address", metavar="ADDR", help="Ray cluster: auto or HOST:PORT (default: RAY_ADDRESS)."),
    ] = None

    def make_engine(self, workers: int | None, *, processes: int) -> Engine:
        """The engine that the options name.

        Args:
            workers: As `--workers` says.
            processes: Workers where it says nothing, and the engine is this machine.
        """
        from foretrace.api.engines import make_engine

        return make_engine(self.engine, workers, self.ray_address, processes=processes)

    def connect(self) -> AbstractContextManager[object]:
        """A connection to Ray that all pools of the block share: for a command that opens several, or that would find
        out late that there is no cluster."""
        if self.engine != "ray":
            return nullcontext()
        from foretrace.engines.ray_tasks import connect

        return connect(self.ray_address)


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """The options of a model server; what is `None` is as in `Server`."""

    base_url: Annotated[str | None, typer.Option("--base-url", metavar="URL", help="Where the model server is.")] = None
    api_key_env: Annotated[
        str | None, hidden_option("--api-key-env", "Environment variable with the key of --base-url.")
    ] = None
    context_length: Annotated[
        int | None, hidden_option("--context-length", "Tokens of context to ask the server for.", min=1)
    ] = None
    timeout: Annotated[float | None, hidden_option("--timeout", "Longest silence of the server, seconds.", min=0.1)] = (
        None
    )
    retries: Annotated[int | None, hidden_option("--retries", "How often a request is tried again.", min=0)] = None
    model_option: Annotated[
        list[str] | None, hidden_option("--model-option", "NAME=VALUE of the model's kind; may be repeated.")
    ] = None

    def list_given(self) -> list[str]:
        """Names of the options that were given."""
        return [field.name for field in fields(self) if getattr(self, field.name) is not None]

    def make_server(self) -> Server:
        """The server that the options name.

        Raises:
            UsageError: no such environment variable, or an option without a value.
        """
        from foretrace.core.pairs import parse_pairs
        from foretrace.models.address import read_key
        from foretrace.models.base import Server

        given: dict[str, Any] = {
            "base_url": self.base_url,
            "api_key": None if self.api_key_env is None else read_key(self.api_key_env),
            "context_length": self.context_length,
            "timeout_s": self.timeout,
            "retries": self.retries,
            "options": parse_pairs("options", self.model_option or [], example="think=false"),
        }
        return Server(**{name: value for name, value in given.items() if value is not None})


@dataclass(frozen=True, kw_only=True)
class SandboxOptions:
    """The options of the sandbox that runs code."""

    names: Annotated[
        str, typer.Option("--sandbox", metavar="NAMES", help="In order of preference, e.g. docker,local.")
    ] = "local"
    workers: Annotated[
        int, typer.Option("--workers", metavar="N", min=0, help="Runs at one time; 0 is one a core.")
    ] = 0
    allow_weak_isolation: Annotated[bool, typer.Option("--allow-weak-isolation", help="Accept levels 0 and 1.")] = False
    forms: Annotated[
        str, typer.Option("--forms", metavar="NAMES", help="Forms of judging that may decide, e.g. values,calls.")
    ] = "values,calls,together"

    def make_settings(self, **others: Any) -> SandboxSettings:
        """The settings that the options make; `others` are those that no option sets, or with another value."""
        from foretrace.sandbox.base import SandboxSettings

        own = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "names"}
        own["forms"] = tuple(self.forms.split(","))
        return SandboxSettings(**own | others)


@dataclass(frozen=True, kw_only=True)
class AllSandboxOptions(SandboxOptions):
    """All options of a sandbox, for the commands that are about one."""

    preload: Annotated[
        str, typer.Option("--preload", metavar="SET", help="Import beforehand: none, numpy, science, or a+b.")
    ] = "none"
    min_level: Annotated[
        int, typer.Option("--min-level", metavar="N", min=0, max=4, help="Isolation that must be had.")
    ] = 2
