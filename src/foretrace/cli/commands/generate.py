"""`foretrace generate`: attempt problems with a model, and add the traces to a traces folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from foretrace.cli.common_options import HIDDEN
from foretrace.cli.options import EngineOptions, SandboxOptions, ServerOptions, hidden_option, out_option
from foretrace.cli.output import Output
from foretrace.core.errors import ForetraceError
from foretrace.engines.processes import Processes

if TYPE_CHECKING:
    from foretrace.episodes.generate.engine import GenerateReport

if TYPE_CHECKING:
    from foretrace.problems.base import UnusableRow

_TERMINATED = 143
"""Exit code of a run that SIGTERM ended."""


def _parse_concurrency(text: str) -> int | None:
    """Attempts in flight; `None` for `auto`."""
    if text == "auto":
        return None
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 4096:
        raise typer.BadParameter(f"{text!r}: choose auto, or 1 to 4096")
    return int(text)


def _parse_temperature(text: str | float) -> float | None:
    """A temperature; `None` for `none`."""
    if text == "none":
        return None
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value < float("inf"):
        raise typer.BadParameter(f"{text!r}: choose a number that is not negative, or none")
    return value


_Problems = Annotated[
    str,
    typer.Option("--problems", metavar="SET", help="A set that `problems list` shows, jsonl:FILE, or module:Class."),
]
_Path = Annotated[
    Path | None, typer.Option("--path", metavar="FILE", help="Read the set from this file or folder, not the Hub.")
]
_Protocol = Annotated[
    str,
    typer.Option(
        "--protocol", metavar="NAME", help="Format in which the model runs code, e.g. tools (docs/protocols.md)."
    ),
]
_Model = Annotated[
    str, typer.Option("--model", metavar="KIND:NAME", help="E.g. ollama:qwen3-coder, openai:NAME (docs/models.md).")
]
_Samples = Annotated[int, typer.Option("--samples", metavar="N", min=1, help="Attempts at each problem.")]
_Limit = Annotated[int | None, typer.Option("--limit", metavar="N", min=1, help="Only the first N problems.")]
_Temperature = Annotated[
    float | None,
    typer.Option(
        "--temperature",
        metavar="T",
        help="Sampling temperature; `none` lets the server choose.",
        parser=_parse_temperature,
    ),
]
_Keep = Annotated[
    Literal["all", "success", "ideal"],
    typer.Option("--keep", help="Attempts to store; ideal: solved as the protocol wants it."),
]
_Concurrency = Annotated[
    int | None,
    typer.Option(
        "--concurrency",
        metavar="N",
        help="Attempts at one time; auto, the default, finds out what the server can do.",
        parser=_parse_concurrency,
    ),
]
_Out = Annotated[Path, out_option("TRACES", "Traces folder, made if absent.")]
_MaxTokens = Annotated[
    int, typer.Option("--max-tokens", metavar="N", min=1, help="Tokens of one completion at most; thinking counts.")
]
_Seed = Annotated[int, hidden_option("--seed", "Seed of every attempt's own seed.")]
_MaxTurns = Annotated[int | None, hidden_option("--max-turns", "Completions of an attempt at most.", min=1)]
_TopP = Annotated[float, hidden_option("--top-p", "Of the sampling.", min=0.0, max=1.0)]
_TopK = Annotated[int | None, hidden_option("--top-k", "Of the sampling.", min=1)]
_Feedback = Annotated[Literal["public", "counts"], hidden_option("--feedback", "What a model is told of its tests.")]
_Hints = Annotated[bool, hidden_option("--hints", "Add hints after failures.")]
_StructureBonus = Annotated[bool, hidden_option("--structure-bonus", "Add the structure bonus to the reward.")]
_Flagged = Annotated[
    Literal["zero", "report"],
    hidden_option("--flagged", "The reward of code that cheats its tests: as if none had passed, or as any other."),
]
_Tokens = Annotated[int | None, hidden_option("--max-tokens-total", "Tokens of the run at most.", min=1)]
_Time = Annotated[float | None, hidden_option("--max-time", "Seconds after which no attempt begins.", min=0.0)]
_Cost = Annotated[float | None, hidden_option("--max-cost", "Cost of the run at most; needs a price.", min=0.0)]
_PriceIn = Annotated[float, hidden_option("--price-in", "Price of a million prompt tokens.", min=0.0)]
_PriceOut = Annotated[float, hidden_option("--price-out", "Price of a million completion tokens.", min=0.0)]
_NoRedact = Annotated[bool, hidden_option("--no-redact", "Leave secrets and user names in the traces.")]
_RedactEmails = Annotated[bool, hidden_option("--redact-emails", "Take e-mail addresses out too.")]
_RedactAddresses = Annotated[bool, hidden_option("--redact-addresses", "Take IP addresses out too.")]


def generate(
    output: Output,
    *,
    problems: _Problems,
    protocol: _Protocol,
    model: _Model,
    out: _Out,
    path: _Path = None,
    server: ServerOptions,
    samples: _Samples = 1,
    limit: _Limit = None,
    temperature: _Temperature = 0.7,
    keep: _Keep = "all",
    concurrency: _Concurrency = None,
    max_tokens: _MaxTokens = 4096,
    seed: _Seed = 0,
    max_turns: _MaxTurns = None,
    top_p: _TopP = 1.0,
    top_k: _TopK = None,
    feedback: _Feedback = "public",
    hints: _Hints = False,
    structure_bonus: _StructureBonus = False,
    flagged: _Flagged = "zero",
    sandbox: Annotated[SandboxOptions, HIDDEN],
    engine: Annotated[EngineOptions, HIDDEN],
    max_tokens_total: _Tokens = None,
    max_time: _Time = None,
    max_cost: _Cost = None,
    price_in: _PriceIn = 0.0,
    price_out: _PriceOut = 0.0,
    no_redact: _NoRedact = False,
    redact_emails: _RedactEmails = False,
    redact_addresses: _RedactAddresses = False,
) -> None:
    """Attempt problems with a model: its code is really run, and every attempt ends as a trace.

    The same command again goes on where an interrupted one stopped; attempts that ended in an error are made again.
    More options (seed, turns, budgets, sandbox, server), for the command line or --config, are in docs/cli.md.
    """
    given = locals()
    from foretrace.api.generation import (
        MAX_SESSIONS,
        TerminatedError,
        make_cluster_runner,
        make_generate_settings,
        run_generate,
    )
    from foretrace.cli.display.generate import (
        StatusDisplay,
        note_dropped_problems,
        note_unknown_to_demo,
        show_report,
    )
    from foretrace.registry import load_problems, make_model, make_protocol, make_sandbox, split_problem_spec

    problems, path = split_problem_spec(problems, path)
    settings = make_generate_settings({**given, "redact": not no_redact})
    made_server = server.make_server()
    made_protocol = make_protocol(protocol)
    sandbox_settings = sandbox.make_settings(max_sessions=concurrency or MAX_SESSIONS)
    made_sandbox = make_sandbox(sandbox.names, sandbox_settings)
    made_model = make_model(model, made_server)
    where = engine.make_engine(sandbox.workers or None, processes=1)
    runner = None
    if not isinstance(where, Processes):
        runner = make_cluster_runner(where, settings, model, made_server, protocol, sandbox.names, sandbox_settings)
    output.interrupt_message = f"interrupted; what was finished is kept in {out}, the same command goes on from there"
    with output.progress(f"reading {problems}") as progress:
        drops: list[UnusableRow] = []
        usable = load_problems(problems, path, limit, on_unusable=drops.append)
        note_dropped_problems(output, drops, len(usable) + len(drops), path or problems)
        note_unknown_to_demo(output, made_model, usable)
        display = StatusDisplay(output, progress)
        try:
            report = run_generate(
                usable,
                made_protocol,
                made_model,
                made_sandbox,
                out,
                settings,
                display,
                runner=runner,
                on_failure=display.on_failure,
                ends_on_sigterm=True,
            )
        except TerminatedError:
            output.warn(f"foretrace: {output.interrupt_message}")
            raise typer.Exit(_TERMINATED) from None
        except ForetraceError:
            if display.failure_report is not None:
                progress.stop()
                output.note(f"what was finished is kept in {out}; the same command goes on from there")
                show_report(output, display.failure_report, out, len(drops))
            raise
    show_report(output, report, out, len(drops))
    _check_report(report)


def _check_report(report: GenerateReport) -> None:
    """Refuse to call a run done in which every attempt ended in an error."""
    counts = report.counts
    if counts.done and not counts.judged:
        kind, message = next(iter(counts.examples.items()))
        raise ForetraceError(f"all {counts.done:,} attempts ended in an error, e.g. {kind}: {message}")
