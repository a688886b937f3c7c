"""The entry point: finds and runs the command, and turns every outcome into one line and an exit code."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Collection, Generator, Sequence
from typing import Any

import click

from foretrace.cli.command_table import COMMANDS, PROBLEMS
from foretrace.cli.options import write_flag
from foretrace.cli.output import Output, ReaderGoneError, one_line
from foretrace.core.errors import ForetraceError, ForetraceWarning
from foretrace.core.internal_errors import InternalError, collect_errors, describe_errors
from foretrace.core.version import __version__

INTERRUPTED = 130
_COMPLETE = "_FORETRACE_COMPLETE"
_HELP_FLAGS: dict[str, Any] = {"help_option_names": ["-h", "--help"]}


class Group(click.Group):
    """Lists its commands in the given order, each with the full first line of its help."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self.commands]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.short_help or "") for name, command in self.commands.items()])


_problems_help = "List problem sets, and check them without a model."
app = click.version_option(__version__, message="foretrace %(version)s")(
    Group(
        "foretrace",
        commands={
            **COMMANDS,
            "problems": Group("problems", commands={**PROBLEMS}, help=_problems_help, short_help=_problems_help),
        },
        help="Turn real agent traces into leak-free datasets of tool actions.",
        context_settings=_HELP_FLAGS,
    )
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (default: the process's own) and return its exit code.

    0 done, 1 failed, 2 wrong use, 3 a gate failed, 130 interrupted.
    """
    arguments = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    # Other libraries' progress bars would overwrite our own output.
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    output = Output(own_process=argv is None)
    with collect_errors() as errors:
        code = _run(arguments, output)
    if errors:
        code = _report_contained(output, errors.values(), code)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_stdout()
    return code


def _run(arguments: list[str], output: Output) -> int:
    if _COMPLETE in os.environ:  # a shell asks for completions: click answers and exits
        app(prog_name="foretrace")
    try:
        with _plain_warnings(output), app.make_context("foretrace", arguments, obj=output) as context:
            app.invoke(context)
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        path = context.command_path if context is not None else "foretrace"
        _write_error(f"{error.format_message().rstrip('.')} (see `{path} --help`)")
        return error.exit_code
    except ForetraceError as error:
        return _report_failure(output, error, error.render(write_flag), error.exit_code)
    except ReaderGoneError:
        _drop_stdout()
    except (KeyboardInterrupt, click.Abort) as end:
        _write_error(str(end) or output.interrupt_message)  # the interrupted code may say what was kept
        return INTERRUPTED
    except (Exception, SystemExit) as error:  # SystemExit: a plugin called `sys.exit`
        text = f"unexpected {type(error).__name__}: {error}{_write_hint(output)}"
        return _report_failure(output, error, text, 1)
    return 0


@contextlib.contextmanager
def _plain_warnings(output: Output) -> Generator[None]:
    """Show our own warnings once, as one plain line, and not at all under `--quiet`; others as Python does."""
    shown: set[str] = set()
    usual = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *where: Any) -> None:
        text = str(message)
        if not issubclass(category, ForetraceWarning):
            usual(message, category, *where)
        elif not output.quiet and text not in shown:
            shown.add(text)
            _write_error(f"warning: {text}")

    warnings.showwarning = show
    try:
        yield
    finally:
        warnings.showwarning = usual


def _report_failure(output: Output, error: BaseException, text: str, code: int) -> int:
    if output.debug:
        import traceback

        traceback.print_exception(error)
    _write_error(text)
    return code


def _report_contained(output: Output, errors: Collection[InternalError], code: int) -> int:
    from foretrace.clean.redact import make_redactor

    redactor = make_redactor()
    assert redactor is not None
    for error in errors if output.debug else ():
        print(redactor.redact_text(f"{error}\n{error.traceback}"), file=sys.stderr)
    rest = "" if code else "; the rest is done"
    _write_error(f"{redactor.redact_text(describe_errors(errors))}{rest}{_write_hint(output)}")
    return code or 1


def _write_hint(output: Output) -> str:
    return "" if output.debug else "; run again with --debug to see where"


def _write_error(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        print(f"foretrace: {one_line(text)}", file=sys.stderr, flush=True)


def _drop_stdout() -> None:
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
