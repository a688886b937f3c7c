"""A command's options, made from the signature and docstring of its function; and how settings are written."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from foretrace.cli.output import Output
from foretrace.core.errors import Setting
from foretrace.core.places import check_place

if TYPE_CHECKING:
    from foretrace.models.base import Server
    from foretrace.sandbox.base import SandboxSettings

FLAGS = {
    "columns": "--map",
    "api_key": "--api-key-env",
    "timeout_s": "--timeout",
    "options": "--model-option",
    "names": "--sandbox",
    "every": "--all",
    "open_page": "--open",
}
"""Settings whose option has a different name."""


def write_flag(setting: Setting) -> str:
    """A setting as written on the command line: `--sandbox local`, `--allow-weak-isolation`."""
    name, value = setting
    flag = FLAGS.get(name, f"--{name.replace('_', '-')}")
    if value is None or value is True:
        return flag
    if isinstance(value, dict):
        return " ".join(f"{flag} {key}={each}" for key, each in value.items())
    return f"--no-{flag.removeprefix('--')}" if value is False else f"{flag} {value}"


class Place(click.ParamType):  # pyright: ignore[reportMissingTypeArgument]  # generic in new versions
    """A path of a file or folder; an address too, if it may be in an object store."""

    name = "path"

    def __init__(self, *, may_be_in_store: bool = False) -> None:
        self.may_be_in_store = may_be_in_store

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Refuse an empty name, which would mean the current folder."""
        if not str(value).strip():
            self.fail("name a file or a folder", param, ctx)
        check_place(value, may_be_in_store=self.may_be_in_store)
        return Path(value)


def _parse_shares(text: str) -> Sequence[float]:
    try:
        train, validation, test = (float(part) for part in text.split("/"))
    except ValueError:
        raise click.BadParameter(f"{text!r}: write three shares, e.g. 0.8/0.1/0.1") from None
    return train, validation, test


def _parse_concurrency(text: str) -> int | None:
    if text == "auto":
        return None
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 4096:
        raise click.BadParameter(f"{text!r}: choose auto, or 1 to 4096")
    return int(text)


def _parse_temperature(text: str | float) -> float | None:
    if text == "none":
        return None
    try:
        return float(text)
    except ValueError:
        raise click.BadParameter(f"{text!r}: choose a number that is not negative, or none") from None


def _parse_names(texts: Sequence[str]) -> tuple[str, ...]:
    """The names given by a repeatable option with comma-separated lists. An empty list gives an empty name, which the
    settings refuse."""
    lists = ([name.strip() for name in text.split(",") if name.strip()] for text in texts)
    return tuple(name for names in lists for name in names or [""])


def _parse_columns(texts: Sequence[str]) -> dict[str, str]:
    from foretrace.core.pairs import parse_pairs

    return parse_pairs("columns", list(texts), form="FIELD=COLUMN", example="messages=turns")


def _parse_weights(texts: Sequence[str]) -> dict[str, float] | None:
    from foretrace.core.pairs import parse_pairs

    pairs = [pair for text in texts for pair in text.split(",")]
    given = parse_pairs("weights", pairs, form="OUTCOME=WEIGHT", example="success=1,failed=0.2")
    try:
        return {name: float(weight) for name, weight in given.items()} or None
    except ValueError:
        raise click.BadParameter(f"{','.join(pairs)!r}: write numbers, e.g. success=1,failed=0.2") from None


_OF_TEXT: dict[tuple[str, str], Callable[[Any], Any]] = {
    ("assume_times", "str | Mapping"): str,
    ("split", "Sequence[float]"): _parse_shares,
    ("concurrency", "int | None"): _parse_concurrency,
    ("temperature", "float | None"): _parse_temperature,
}
"""Functions that parse a parameter's text, by its name and how its type begins."""
_OF_TEXTS: dict[str, Callable[[Sequence[str]], Any]] = {
    "license_allow": _parse_names,
    "license_deny": _parse_names,
    "decontaminate": _parse_names,
    "columns": _parse_columns,
    "weights": _parse_weights,
}
"""Functions that parse all texts of a repeatable option, by parameter."""


_LOWEST = {
    1: "memory_mb limit shards lowest samples max_tokens context_length max_turns top_k max_tokens_total",
    0: "wall_s cpu_s workers eval_size pairs step retries min_level timeout top_p max_time max_cost price_in price_out",
}
_RANGES: dict[str, tuple[int, int | None]] = {
    **{name: (lowest, None) for lowest, names in _LOWEST.items() for name in names.split()},
    "top_p": (0, 1),
    "min_level": (0, 4),
}
"""The lowest and the highest value, by parameter."""


def make_server(
    *,
    base_url: str | None = None,
    api_key_env: str | None = None,
    context_length: int | None = None,
    timeout: float | None = None,
    retries: int | None = None,
    model_option: Sequence[str] = (),
) -> Server | None:
    """The server described by the options; None if no option is given.

    Args:
        base_url: Where the model server is.
        api_key_env: Environment variable with the key of the server.
        context_length: Tokens of context to ask the server for.
        timeout: Longest silence of the server, seconds.
        retries: How often a request is tried again.
        model_option: NAME=VALUE of the model's kind; may be repeated.
    """
    from foretrace.core.pairs import parse_pairs
    from foretrace.models.address import read_key
    from foretrace.models.base import Server

    given: dict[str, Any] = {
        "base_url": base_url,
        "api_key": None if api_key_env is None else read_key(api_key_env),
        "context_length": context_length,
        "timeout_s": timeout,
        "retries": retries,
        "options": parse_pairs("options", list(model_option), example="think=false") or None,
    }
    given = {name: value for name, value in given.items() if value is not None}
    return Server(**given) if given else None


def make_sandbox_settings(
    *,
    workers: int = 0,
    preload: str = "none",
    min_level: int = 2,
    allow_weak_isolation: bool = False,
    forms: str = "values,calls,together",
    wall_s: float = 5.0,
    cpu_s: float = 2.0,
    memory_mb: int = 512,
) -> SandboxSettings:
    """The settings of the sandbox that runs code.

    Args:
        workers: Runs of code at one time; 0 means one per core.
        preload: Import beforehand: none, numpy, science, or a+b.
        min_level: Lowest isolation level to accept, 0 to 4.
        allow_weak_isolation: Accept levels 0 and 1.
        forms: Forms of judging that may decide, e.g. values,calls.
        wall_s: Seconds of one run, or of all tests of an answer together.
        cpu_s: Seconds of processor time of one run.
        memory_mb: MiB of memory of one run; with preload 1024 by default.
    """
    from foretrace.sandbox.base import Limits, SandboxSettings

    return SandboxSettings(
        workers=workers,
        preload=preload,
        min_level=min_level,
        allow_weak_isolation=allow_weak_isolation,
        forms=tuple(forms.split(",")),
        limits=Limits(wall_s=wall_s, cpu_s=cpu_s, memory_mb=memory_mb),
    )


_GROUPS: dict[str, Callable[..., Any]] = {"server": make_server, "sandbox_settings": make_sandbox_settings}
"""Parameters whose value is made by a function from several options."""


def _note_debug(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if isinstance(ctx.obj, Output):
        ctx.obj.debug = ctx.obj.debug or value


def _read_config(ctx: click.Context, _: click.Parameter, path: Path | None) -> None:
    """Take the file's settings as defaults, written as on the command line."""
    import tomllib

    if path is None:
        return
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise click.BadParameter(f"{path}: cannot read: {error.strerror or error}") from None
    except ValueError as error:
        raise click.BadParameter(f"{path}: is not TOML: {error}") from None
    options = [p for p in ctx.command.get_params(ctx) if isinstance(p, click.Option)]
    keys = {flag.removeprefix("--"): option for option in options for flag in (*option.opts, *option.secondary_opts)}
    keys = {key: option for key, option in keys.items() if key not in ("config", "help", "h", "-h", "-q")}
    settings: dict[str, Any] = {}
    for name, value in table.items():
        key = name.replace("_", "-")
        if (option := keys.get(key)) is None:
            raise click.BadParameter(f"{path}: unknown key {name!r}; keys are {', '.join(sorted(keys))}")
        if f"--{key}" in option.secondary_opts:
            value = not value
        values = [f"{k}={v}" for k, v in value.items()] if isinstance(value, dict) else value
        if not option.multiple and isinstance(values, list):
            raise click.BadParameter(f"{path}: {name} takes one value")
        texts = [str(each) for each in values] if isinstance(values, list) else [str(values)]
        settings[option.name or key] = texts if option.multiple else texts[0]
    ctx.default_map = {**(ctx.default_map or {}), **settings}


def _common_options() -> list[click.Parameter]:
    hidden: dict[str, Any] = {"expose_value": False, "is_eager": True}
    return [
        click.Option(
            ["--config"],
            type=Place(),
            metavar="FILE.toml",
            callback=_read_config,
            help="Options from a TOML file, under the same names; the command line wins.",
            **hidden,
        ),
        click.Option(["--json"], is_flag=True, help="Write one JSON object to stdout."),
        click.Option(["--quiet", "-q"], is_flag=True, help="Show no progress and no notes."),
        click.Option(["--debug"], is_flag=True, callback=_note_debug, help="Show tracebacks.", **hidden),
    ]


class Command(click.Command):
    """A command that calls a function: `function(output, ...)`.

    Its options are the function's parameters, followed by those of the function `like`, which are passed as
    `**settings`. Types and defaults come from the signatures, and help texts from the docstrings. Options are made when
    they are first needed.

    Args:
        like: `module:function`.
        without: Parameters of `like` that are not options.
        shown: Options that `--help` lists; all if empty.
        in_stores: Paths that may be addresses in an object store.
    """

    def __init__(
        self,
        name: str,
        function: Callable[..., None],
        *,
        like: str | None = None,
        without: str = "",
        shown: str = "",
        in_stores: str = "",
    ) -> None:
        text = inspect.getdoc(function) or ""
        about = text.partition("\nArgs:\n")[0].strip()
        super().__init__(name, help=about, short_help=about.split("\n")[0])
        self.function, self.like = function, like
        self.without, self.shown, self.in_stores = without.split(), shown.split(), in_stores.split()
        self.about: dict[str, str] = {}
        self.own: list[click.Parameter] = []
        self.groups: dict[str, list[str]] = {}

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        if not self.params:
            functions = [self.function]
            if self.like is not None:
                module, _, name = self.like.partition(":")
                functions.append(getattr(importlib.import_module(module), name))
            for function in [*_GROUPS.values(), *reversed(functions)]:
                self.about |= _read_args(function)
            for function in functions:
                self._collect(function)
            self.own.sort(key=lambda each: isinstance(each, click.Option))
            self.params = [*self.own, *_common_options()]
        return super().get_params(ctx)

    def _collect(self, function: Callable[..., Any]) -> list[str]:
        """Make options for the parameters that have none yet; returns the names of all parameters."""
        names: list[str] = []
        for name, parameter in inspect.signature(function).parameters.items():
            if name in ("output", "progress", *self.without) or parameter.kind is parameter.VAR_KEYWORD:
                continue
            names.append(name)
            if name in _GROUPS:
                self.groups[name] = self._collect(_GROUPS[name])
            elif name not in [each.name for each in self.own]:
                self.own.append(self._make(parameter))
        return names

    def _make(self, parameter: inspect.Parameter) -> click.Parameter:
        name, kind, default = parameter.name, str(parameter.annotation), parameter.default
        required = default is parameter.empty
        several = _find_parser(name, kind) is None and re.search(r"\b(?:Sequence|Mapping|list)\b", kind) is not None
        given: dict[str, Any] = {"type": self._find_type(name, kind), "required": required}
        if not required and not several:
            given["default"] = "/".join(map(str, default)) if isinstance(default, tuple) else default
        if parameter.kind is not parameter.KEYWORD_ONLY:
            return click.Argument([name], nargs=-1 if several else 1, **given)
        given |= {"help": self.about.get(name), "hidden": bool(self.shown) and name not in self.shown}
        flag = write_flag(Setting(name))
        if kind == "bool":
            flags = f"{flag}/{write_flag(Setting(name, False))}" if default is True else flag
            del given["type"]
            return click.Option([flags, name], is_flag=True, **given)
        shown = given.get("default") not in (None, "")
        return click.Option([flag, name], multiple=several, show_default=shown, **given)

    def _find_type(self, name: str, kind: str) -> Any:
        if choices := re.findall(r"'([^']+)'", kind):
            return click.Choice(choices)
        if parser := _find_parser(name, kind):
            parsed = click.types.FuncParamType(parser)
            parsed.name = name
            return parsed
        if "Path" in kind:
            return Place(may_be_in_store=name in self.in_stores)
        number = {"int": click.IntRange, "float": click.FloatRange}.get(kind.removesuffix(" | None"))
        if number is None:
            return click.STRING
        if name not in _RANGES:
            return click.INT if number is click.IntRange else click.FLOAT
        ranged = number(*_RANGES[name])
        ranged.name = "integer" if number is click.IntRange else "float"
        return ranged

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the arguments with their help before the options."""
        arguments = [each for each in self.get_params(ctx) if isinstance(each, click.Argument)]
        metavars = [each.make_metavar(ctx).removesuffix("...") for each in arguments]
        rows = [(name, self.about.get(each.name or "", "")) for name, each in zip(metavars, arguments, strict=True)]
        if rows:
            with formatter.section("Arguments"):
                formatter.write_dl(rows)
        super().format_options(ctx, formatter)

    def invoke(self, ctx: click.Context) -> None:
        values = ctx.params
        output = ctx.ensure_object(Output)
        output.json, output.quiet = values.pop("json"), values.pop("quiet")
        for parameter in self.own:
            if parameter.name in _OF_TEXTS:
                values[parameter.name] = _OF_TEXTS[parameter.name](values[parameter.name])
        for name, options in self.groups.items():
            values[name] = _GROUPS[name](**{option: values.pop(option) for option in options})
        self.function(output, **values)


def _find_parser(name: str, kind: str) -> Callable[[Any], Any] | None:
    return next((parse for (own, start), parse in _OF_TEXT.items() if own == name and kind.startswith(start)), None)


def _read_args(function: Callable[..., Any]) -> dict[str, str]:
    text = inspect.getdoc(function) or ""
    section = re.search(r"^Args:\n((?: .*\n?)+)", text, re.MULTILINE)
    found = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", section[1], re.MULTILINE) if section else []
    return {name: " ".join(about.split()) for name, about in found}
