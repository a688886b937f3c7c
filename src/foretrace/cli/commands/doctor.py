"""`foretrace doctor`: what serves here: how well code is isolated and how fast it runs, or what a model can do."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foretrace.cli.options import AllSandboxOptions, ServerOptions, hidden_option, write_flag
from foretrace.cli.output import Output
from foretrace.core.errors import ForetraceError, Setting, UsageError
from foretrace.engines.processes import usable_cores

if TYPE_CHECKING:
    from foretrace.models.base import ChatModel
    from foretrace.sandbox.base import SandboxSettings

_Interpreter = Annotated[
    Path | None, typer.Option("--interpreter", metavar="FILE", help="The Python that runs the code.")
]
_Model = Annotated[
    str | None,
    typer.Option("--model", metavar="KIND:NAME", help="Examine this model instead, and make one episode with it."),
]
_MaxTokens = Annotated[int | None, hidden_option("--max-tokens", "Tokens of one completion at most.", min=1)]


def doctor(
    output: Output,
    *,
    sandbox: AllSandboxOptions,
    interpreter: _Interpreter = None,
    model: _Model = None,
    server: ServerOptions,
    max_tokens: _MaxTokens = None,
) -> None:
    """Say what can be used here, how well it isolates, and how fast it is; with --model, what a model server can do.

    Ends with exit code 1, and one line that says what to do, where no sandbox or no model serves.
    More options for the model server are in docs/cli.md.
    """
    settings = sandbox.make_settings(
        workers=sandbox.workers or usable_cores(), interpreter=None if interpreter is None else str(interpreter)
    )
    chosen = _make_model(model, server, max_tokens)
    with _without_library_warnings():
        if chosen is None:
            _examine_sandbox(output, sandbox.names, settings)
        else:
            _examine_model(output, chosen, sandbox.names, settings, max_tokens)


def _make_model(spec: str | None, server: ServerOptions, max_tokens: int | None) -> ChatModel | None:
    """The model that is to be examined, not asked yet; None where none is named.

    Raises:
        UsageError: no such kind of model, or a setting that does not fit.
    """
    from foretrace.registry import make_model

    if spec is None:
        given = [*server.list_given(), *([] if max_tokens is None else ["max_tokens"])]
        if given:
            raise UsageError(Setting(given[0]), " is for a model server: name one with ", Setting("model"))
        return None
    return make_model(spec, server.make_server())


def _examine_sandbox(output: Output, names: str, settings: SandboxSettings) -> None:
    from foretrace.cli.display.doctor import show_sandbox
    from foretrace.doctor.sandbox import examine_sandbox

    with output.progress(f"testing the sandbox {names}"):
        facts, error = examine_sandbox(names, settings)
    why = None if error is None else error.render(write_flag)
    if not output.write_json({"ok": error is None, "error": why, "sandbox": facts}) and facts is not None:
        show_sandbox(output, facts)
    if error is not None:
        raise error


def _examine_model(
    output: Output, model: ChatModel, names: str, settings: SandboxSettings, max_tokens: int | None
) -> None:
    import asyncio

    import msgspec

    from foretrace.cli.display.doctor import show_model
    from foretrace.core.completion import Sampling
    from foretrace.doctor.model import ModelReport, examine_model
    from foretrace.registry import make_sandbox

    sampling = Sampling() if max_tokens is None else Sampling(max_tokens=max_tokens)
    report = ModelReport(model=model.spec, endpoint=model.endpoint)
    failure: ForetraceError | None = None
    with output.progress(f"asking {model.spec} what it can do") as progress:
        try:
            asyncio.run(examine_model(report, model, make_sandbox(names, settings), sampling, progress))
        except UsageError:
            raise
        except ForetraceError as error:
            failure, report.error = error, error.render(write_flag)
    report.ok = failure is None
    if not output.write_json(msgspec.to_builtins(report)):
        show_model(output, report, sampling.max_tokens)
    if failure is not None:
        raise failure


@contextlib.contextmanager
def _without_library_warnings() -> Generator[None]:
    """Keep the library's own warnings back: the report says all of it."""
    import logging
    import warnings

    log = logging.getLogger("foretrace.sandbox")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(before)
