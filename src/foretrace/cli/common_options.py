"""From a function to a command: --config, --json, --quiet and --debug are added, records of options taken apart."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Collection
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer

from foretrace.cli.output import Output
from foretrace.core.places import check_place


class Invocation:
    """What `main` must know of a run when it failed."""

    def __init__(self, *, own_process: bool) -> None:
        self.debug = False
        self.own_process = own_process
        """Whether this process is the command's alone."""
        self.output = Output()


def _note_debug(ctx: typer.Context, value: bool) -> bool:
    if isinstance(ctx.obj, Invocation):
        ctx.obj.debug = ctx.obj.debug or value
    return value


def _read_config(ctx: typer.Context, value: Path | None) -> Path | None:
    if value is not None:
        ctx.default_map = {**(ctx.default_map or {}), **_config_settings(ctx, value)}
    return value


def _config_settings(ctx: typer.Context, path: Path) -> dict[str, Any]:
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
    options = {p.name: p for p in parameters if p.param_type_name == "option" and p.name not in ("config", "help")}
    keys = {flag.removeprefix("--"): name for name, p in options.items() for flag in p.opts if flag.startswith("--")}
    settings: dict[str, Any] = {}
    for key, value in table.items():
        name = keys.get(key.replace("_", "-"))
        if name is None:
            raise typer.BadParameter(f"{path}: unknown key {key!r}; keys are {', '.join(sorted(keys))}")
        repeated = bool(getattr(options[name], "multiple", False))
        settings[name] = _as_typed_text(path, key, value, repeated=repeated)
    return settings


def _as_typed_text(path: Path, key: str, value: Any, *, repeated: bool) -> Any:
    """The value as a user would type it; a list of such texts for an option that may be repeated."""
    if repeated and isinstance(value, dict):
        return [f"{k}={v}" for k, v in value.items()]
    if repeated and isinstance(value, list):
        return [str(v) for v in value]
    if isinstance(value, (dict, list)):
        raise typer.BadParameter(f"{path}: {key} takes one value")
    return [str(value)] if repeated else str(value)


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
    "quiet": (Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress and no notes.")], False),
    "debug": (
        Annotated[bool, typer.Option("--debug", help="Show tracebacks.", is_eager=True, callback=_note_debug)],
        False,
    ),
}
"""By parameter: its type and option, and its default."""


HIDDEN = "hidden"
"""Mark of a record whose options are left out of `--help`: `Annotated[SandboxOptions, HIDDEN]`."""


def with_common_options(function: Callable[..., None], in_stores: Collection[str] = ()) -> Callable[..., None]:
    """Turn `function(output, **own options)` into what typer calls: the common options added, `output` made.

    A parameter whose type is a dataclass stands for the options that are its fields, and gets a record of them. Paths
    are local, but for the parameters of `in_stores`, which may lie in an object store.
    """
    hints = get_type_hints(function, include_extras=True)
    parameters = [_keyword("ctx", typer.Context)]
    records: dict[str, tuple[type[Any], list[str]]] = {}
    for own in list(inspect.signature(function).parameters.values())[1:]:
        record, *marks = get_args(hints[own.name]) if get_origin(hints[own.name]) is Annotated else [hints[own.name]]
        if is_dataclass(record) and isinstance(record, type):
            options = _list_options(record, hidden=HIDDEN in marks)
            records[own.name] = record, [option.name for option in options]
            parameters += options
        else:
            parameters.append(_keyword(own.name, hints[own.name], own.default))
    parameters += [_keyword(name, *common) for name, common in _COMMON.items()]

    def run(**given: Any) -> None:
        invocation = given.pop("ctx").obj
        common = {name: given.pop(name) for name in _COMMON}
        output = Output(json=common["json"], quiet=common["quiet"])
        if isinstance(invocation, Invocation):
            invocation.output = output
            output.own_process = invocation.own_process
        for name, value in given.items():
            for place in value if isinstance(value, list) else [value]:
                if isinstance(place, Path):
                    check_place(place, may_be_in_store=name in in_stores)
        made = {name: record(**{n: given.pop(n) for n in options}) for name, (record, options) in records.items()}
        function(output, **given, **made)

    run.__name__, run.__doc__, run.__module__ = function.__name__, function.__doc__, function.__module__
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run


def _keyword(name: str, annotation: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def _list_options(record: type[Any], *, hidden: bool) -> list[inspect.Parameter]:
    """The fields of a record of options as parameters."""
    hints = get_type_hints(record, include_extras=True)
    parameters: list[inspect.Parameter] = []
    for field in fields(record):
        kind, option = get_args(hints[field.name])
        if hidden:
            option = copy.copy(option)
            option.hidden = True
        parameters.append(_keyword(field.name, Annotated[kind, option], field.default))
    return parameters
