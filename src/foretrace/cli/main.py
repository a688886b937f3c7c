"""The entry point: finds the verb, runs it, and turns every ending into one line and one exit code."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from foretrace.cli.output import ReaderGoneError, one_line
from foretrace.cli.verb import Session, verb
from foretrace.cli.verbs import (
    build,
    demo,
    doctor,
    export,
    generate,
    import_,
    label,
    problems,
    push,
    schema,
    score,
    show,
    sources,
)
from foretrace.core.errors import ForetraceError

INTERRUPTED = 130
_USAGE_ERROR: Any = typer.BadParameter.__mro__[1]
_CLICK_ERROR: Any = typer.BadParameter.__mro__[2]
"""typer shows neither of the bases of its errors under a name of its own."""

_WORDINGS = [
    (re.compile(pattern), plain)
    for pattern, plain in {
        r"Value error, ": "",
        r"Input should be greater than or equal to (\S+)": r"choose \1 or more",
        r"Input should be less than or equal to (\S+)": r"choose \1 or less",
        r"Input should be a valid integer, unable to parse string as an integer": "is no whole number",
        r"Input should be a valid number, unable to parse string as a number": "is no number",
    }.items()
]
"""How the library behind typer says what is wrong with a value, and how we say it."""

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
for _name, _function in {
    "demo": demo.demo,
    "import": import_.import_,
    "generate": generate.generate,
    "label": label.label,
    "show": show.show,
    "export": export.export,
    "build": build.build,
    "score": score.score,
    "push": push.push,
    "sources": sources.sources,
    "doctor": doctor.doctor,
    "schema": schema.schema,
}.items():
    app.command(_name)(verb(_function))
_problems = typer.Typer(
    help=problems.HELP, rich_markup_mode=None, invoke_without_command=True, callback=problems.show_help
)
for _name, _function in problems.VERBS.items():
    _problems.command(_name)(verb(_function))
app.add_typer(_problems, name="problems")


def _version(value: bool) -> None:
    if value:
        from foretrace.core.version import __version__

        typer.echo(f"foretrace {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_version, help="Show the version and exit.")
    ] = False,
) -> None:
    """Turn real agent traces into leak-free datasets of tool actions."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (default: the process's own) and return its exit code.

    0 done, 1 failed, 2 wrong use, 3 a gate failed, 130 interrupted.
    """
    arguments = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    # Bars of other libraries would be drawn over our own lines.
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    session = Session()
    session.own_process = argv is None
    code = _run(arguments, session)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _forget_stdout()
    return code


def _run(arguments: list[str], session: Session) -> int:
    command: Any = typer.main.get_command(app)
    try:
        with command.make_context("foretrace", arguments, obj=session) as context:
            command.invoke(context)
    except typer.Exit as end:
        return end.exit_code
    except _CLICK_ERROR as error:
        return _wrong_use(error)
    except ForetraceError as error:
        return _failed(session, error, str(error), error.exit_code)
    except ReaderGoneError:
        _forget_stdout()
    except (KeyboardInterrupt, typer.Abort):
        _say(session.output.kept or "interrupted")
        return INTERRUPTED
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        hint = "" if session.debug else "; run again with --debug to see where"
        return _failed(session, error, f"unexpected {text}{hint}", 1)
    return 0


def _wrong_use(error: Any) -> int:
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "foretrace"
    said = error.format_message()
    for wording, plain in _WORDINGS:
        said = wording.sub(plain, said)
    _say(f"{said} (see `{path} --help`)")
    return int(error.exit_code)


def _failed(session: Session, error: Exception, text: str, code: int) -> int:
    if session.debug:
        import traceback

        traceback.print_exception(error)
    _say(text)
    return code


def _say(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        print(f"foretrace: {one_line(text)}", file=sys.stderr, flush=True)


def _forget_stdout() -> None:
    """Keep Python from complaining at exit that the reader of stdout is gone."""
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
