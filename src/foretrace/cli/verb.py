"""What all verbs share: --config, --json, --quiet and --debug, added to the options that a verb has of its own."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from foretrace.cli.output import Output


class Session:
    """What `main` must know of the run when it failed."""

    def __init__(self) -> None:
        self.debug = False
        self.own_process = False
        self.output = Output()


def _note_debug(ctx: typer.Context, value: bool) -> bool:
    if isinstance(ctx.obj, Session):
        ctx.obj.debug = ctx.obj.debug or value
    return value


def _read_config(ctx: typer.Context, value: Path | None) -> Path | None:
    if value is not None:
        ctx.default_map = {**(ctx.default_map or {}), **_settings(ctx, value)}
    return value


def _settings(ctx: typer.Context, path: Path) -> dict[str, Any]:
    """The file's settings by parameter name, as the texts that the command line would hold."""
    import tomllib

    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise typer.BadParameter(f"{path}: cannot read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise typer.BadParameter(f"{path}: is no TOML: it is not in UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise typer.BadParameter(f"{path}: is no TOML: {error}") from None
    parameters: list[Any] = ctx.command.params
    names = {p.name: p for p in parameters if p.param_type_name == "option" and p.name not in ("config", "help")}
    spoken = {opt.removeprefix("--"): name for name, p in names.items() for opt in p.opts if opt.startswith("--")}
    found: dict[str, Any] = {}
    for key, given in table.items():
        name = spoken.get(key.replace("_", "-"))
        if name is None:
            raise typer.BadParameter(f"{path}: unknown key {key!r}; keys are {', '.join(sorted(spoken))}")
        found[name] = _as_typed(path, key, given, many=bool(getattr(names[name], "multiple", False)))
    return found


def _as_typed(path: Path, key: str, given: Any, *, many: bool) -> Any:
    if many and isinstance(given, dict):
        return [f"{k}={v}" for k, v in given.items()]
    if many and isinstance(given, list):
        return [str(v) for v in given]
    if isinstance(given, (dict, list)):
        raise typer.BadParameter(f"{path}: {key} takes one value")
    return [str(given)] if many else str(given)


_COMMON: dict[str, tuple[Any, Any]] = {
    "config": (
        Annotated[
            Path | None,
            typer.Option(
                "--config",
                metavar="FILE.toml",
                help="Options from a TOML file, under the same names; the command line wins.",
                is_eager=True,
                callback=_read_config,
            ),
        ],
        None,
    ),
    "json": (Annotated[bool, typer.Option("--json", help="Write one JSON object to stdout.")], False),
    "quiet": (Annotated[bool, typer.Option("--quiet", "-q", help="Say no progress and no notes.")], False),
    "debug": (
        Annotated[bool, typer.Option("--debug", help="Show tracebacks.", is_eager=True, callback=_note_debug)],
        False,
    ),
}

Workers = Annotated[int, typer.Option("--workers", metavar="N", min=1, help="Processes that work at once.")]
"""`--workers`, of the verbs that can use it."""


def verb(function: Callable[..., None]) -> Callable[..., None]:
    """Turn `function(say, **own options)` into what typer calls: the common options added, `say` made."""
    hints = get_type_hints(function, include_extras=True)
    own = list(inspect.signature(function).parameters.values())[1:]
    parameters = [
        inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context),
        *(p.replace(annotation=hints[p.name], kind=inspect.Parameter.KEYWORD_ONLY) for p in own),
    ]
    for name, (annotation, default) in _COMMON.items():
        parameters.append(
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
        )

    def run(**given: Any) -> None:
        session = given.pop("ctx").obj
        common = {name: given.pop(name) for name in _COMMON}
        say = Output(json=common["json"], quiet=common["quiet"])
        if isinstance(session, Session):
            session.output = say
            say.own_process = session.own_process
        function(say, **given)

    run.__name__, run.__doc__, run.__module__ = function.__name__, function.__doc__, function.__module__
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run
