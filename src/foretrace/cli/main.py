"""The entry point: finds the command, runs it, and turns every ending into one line and one exit code."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Callable, Collection, Generator, Sequence
from typing import Annotated, Any

import typer

from foretrace.cli.commands import (
    build,
    ceiling,
    demo,
    doctor,
    effects,
    export,
    generate,
    import_,
    label,
    predict,
    problems,
    push,
    replay,
    schema,
    score,
    scrub,
    show,
    sources,
    verify,
    view,
)
from foretrace.cli.common_options import Invocation, with_common_options
from foretrace.cli.options import write_flag
from foretrace.cli.output import ReaderGoneError, one_line
from foretrace.core.errors import ForetraceError, ForetraceWarning
from foretrace.core.internal_errors import InternalError, collect_errors, describe_errors

INTERRUPTED = 130
_CLICK_ERROR: Any = typer.BadParameter.__mro__[2]
"""click's base of all errors of use, of which typer shows only `BadParameter` under a name of its own."""
_HELP_FLAGS: dict[str, Any] = {"help_option_names": ["-h", "--help"]}

app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, context_settings=_HELP_FLAGS)
_problems = typer.Typer(
    help=problems.HELP, rich_markup_mode=None, invoke_without_command=True, callback=problems.show_help
)

_IN_STORES = {"import": ("out",), "label": ("traces", "out", "review"), "build": ("out",)}
"""By command, the parameters that may be the address of an object store."""


def _add(parent: typer.Typer, name: str, function: Callable[..., None]) -> None:
    # As the short help, the first line of the help is wrapped and not cut in the list of commands.
    short = (function.__doc__ or "").strip().split("\n")[0]
    parent.command(name, short_help=short)(with_common_options(function, _IN_STORES.get(name, ())))


for _name, _function in {
    "demo": demo.demo,
    "import": import_.import_,
    "generate": generate.generate,
    "scrub": scrub.scrub,
    "label": label.label,
    "show": show.show,
    "view": view.view,
    "export": export.export,
    "ceiling": ceiling.ceiling,
    "effects": effects.effects,
    "build": build.build,
    "predict": predict.predict,
    "verify": verify.verify,
    "score": score.score,
    "replay": replay.replay,
    "push": push.push,
    "sources": sources.sources,
    "doctor": doctor.doctor,
    "schema": schema.schema,
}.items():
    _add(app, _name, _function)
for _name, _function in problems.COMMANDS.items():
    _add(_problems, _name, _function)
app.add_typer(_problems, name="problems", short_help=problems.HELP)


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
    invocation = Invocation(own_process=argv is None)
    with collect_errors() as errors:
        code = _run(arguments, invocation)
    if errors:
        code = _report_contained(invocation, errors.values(), code)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_stdout()
    return code


def _run(arguments: list[str], invocation: Invocation) -> int:
    command: Any = typer.main.get_command(app)
    if "_FORETRACE_COMPLETE" in os.environ:  # a shell asks for completions: click answers, and ends the process
        command(prog_name="foretrace")
    try:
        with (
            _plain_warnings(invocation),
            command.make_context("foretrace", arguments, obj=invocation) as context,
        ):
            command.invoke(context)
    except typer.Exit as end:
        return end.exit_code
    except _CLICK_ERROR as error:
        return _report_wrong_use(error)
    except ForetraceError as error:
        return _report_failure(invocation, error, error.render(write_flag), error.exit_code)
    except ReaderGoneError:
        _drop_stdout()
    except (KeyboardInterrupt, typer.Abort) as end:
        _write_error(str(end) or invocation.output.interrupt_message)  # who was interrupted may know what is kept
        return INTERRUPTED
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        hint = "" if invocation.debug else "; run again with --debug to see where"
        return _report_failure(invocation, error, f"unexpected {text}{hint}", 1)
    return 0


@contextlib.contextmanager
def _plain_warnings(invocation: Invocation) -> Generator[None]:
    """Show our own warnings as one plain line each, once, and not at all under `--quiet`; others as Python does."""
    shown: set[str] = set()
    usual = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *where: Any) -> None:
        text = str(message)
        if not issubclass(category, ForetraceWarning):
            usual(message, category, *where)
        elif not invocation.output.quiet and text not in shown:
            shown.add(text)
            _write_error(f"warning: {text}")

    warnings.showwarning = show
    try:
        yield
    finally:
        warnings.showwarning = usual


def _report_wrong_use(error: Any) -> int:
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "foretrace"
    message = error.format_message().replace("Value error, ", "")  # a mark of the library behind typer
    _write_error(f"{message} (see `{path} --help`)")
    return int(error.exit_code)


def _report_failure(invocation: Invocation, error: Exception, text: str, code: int) -> int:
    if invocation.debug:
        import traceback

        traceback.print_exception(error)
    _write_error(text)
    return code


def _report_contained(invocation: Invocation, errors: Collection[InternalError], code: int) -> int:
    from foretrace.clean.redact import make_redactor

    redactor = make_redactor()
    assert redactor is not None
    for error in errors if invocation.debug else ():
        print(redactor.redact_text(f"{error}\n{error.traceback}"), file=sys.stderr)
    rest = "" if code else "; the rest is done"
    hint = "" if invocation.debug else "; run again with --debug to see where"
    _write_error(f"{redactor.redact_text(describe_errors(errors))}{rest}{hint}")
    return code or 1


def _write_error(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        print(f"foretrace: {one_line(text)}", file=sys.stderr, flush=True)


def _drop_stdout() -> None:
    """Keep Python from complaining at exit that the reader of stdout is gone."""
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
