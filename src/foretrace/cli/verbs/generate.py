"""`foretrace generate`: attempt problems with a model, and add the traces to a traces folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from foretrace.cli.output import Output
from foretrace.cli.server_options import BaseUrl, ContextLength, KeyEnv, ModelOption, Retries, Timeout, more, server_of
from foretrace.core.errors import ForetraceError, UsageError

_TERMINATED = 143
"""Exit code of a run that SIGTERM ended."""


def _folder(name: str | Path) -> Path:
    if not str(name).strip():  # as a path, it would be the current folder
        raise typer.BadParameter("name a folder")
    return Path(name)


_Problems = Annotated[
    str,
    typer.Option("--problems", metavar="SET", help="A set that `problems list` shows, jsonl:FILE, or module:Class."),
]
_Path = Annotated[
    Path | None, typer.Option("--path", metavar="FILE", help="Read the set from this file or folder, not the Hub.")
]
_Protocol = Annotated[
    str, typer.Option("--protocol", metavar="NAME", help="How model and executor talk (docs/protocols.md).")
]
_Model = Annotated[
    str, typer.Option("--model", metavar="KIND:NAME", help="E.g. ollama:qwen3-coder, openai:NAME (docs/models.md).")
]
_Samples = Annotated[int, typer.Option("--samples", metavar="N", min=1, help="Attempts at each problem.")]
_Limit = Annotated[int | None, typer.Option("--limit", metavar="N", min=1, help="Only the first N problems.")]
_Temperature = Annotated[str, typer.Option("--temperature", metavar="T", help="Of the sampling; none sends none.")]
_Keep = Annotated[Literal["all", "success", "ideal"], typer.Option("--keep", help="Which attempts are stored.")]
_Concurrency = Annotated[
    str, typer.Option("--concurrency", metavar="N", help="Attempts in flight; auto finds out what the server can do.")
]
_Out = Annotated[Path, typer.Option("--out", metavar="TRACES", help="Traces folder, made if absent.", parser=_folder)]
_MaxTokens = Annotated[
    int, typer.Option("--max-tokens", metavar="N", min=1, help="Tokens of one completion at most; thinking counts.")
]
_Seed = Annotated[int, more("--seed", "Seed of every attempt's own seed.")]
_MaxTurns = Annotated[int | None, more("--max-turns", "Completions of an attempt at most.", min=1)]
_TopP = Annotated[float, more("--top-p", "Of the sampling.", min=0.0, max=1.0)]
_TopK = Annotated[int | None, more("--top-k", "Of the sampling.", min=1)]
_Feedback = Annotated[Literal["public", "counts"], more("--feedback", "What a model is told of its tests.")]
_Hints = Annotated[bool, more("--hints", "Add hints after failures.")]
_StructureBonus = Annotated[bool, more("--structure-bonus", "Add the structure bonus to the reward.")]
_Sandbox = Annotated[str, more("--sandbox", "Sandboxes in order of preference, e.g. docker,local.")]
_Workers = Annotated[int, more("--workers", "Runs of the sandbox at one time; 0 is one a core.", min=0)]
_Weak = Annotated[bool, more("--allow-weak-isolation", "Accept isolation levels 0 and 1.")]
_Tokens = Annotated[int | None, more("--max-tokens-total", "Tokens of the run at most.", min=1)]
_Time = Annotated[float | None, more("--max-time", "Seconds after which no attempt begins.", min=0.0)]
_Cost = Annotated[float | None, more("--max-cost", "Cost of the run at most; needs a price.", min=0.0)]
_PriceIn = Annotated[float, more("--price-in", "Price of a million prompt tokens.", min=0.0)]
_PriceOut = Annotated[float, more("--price-out", "Price of a million completion tokens.", min=0.0)]


def generate(
    say: Output,
    *,
    problems: _Problems,
    protocol: _Protocol,
    model: _Model,
    out: _Out,
    path: _Path = None,
    base_url: BaseUrl = None,
    samples: _Samples = 1,
    limit: _Limit = None,
    temperature: _Temperature = "0.7",
    keep: _Keep = "all",
    concurrency: _Concurrency = "auto",
    max_tokens: _MaxTokens = 4096,
    seed: _Seed = 0,
    max_turns: _MaxTurns = None,
    top_p: _TopP = 1.0,
    top_k: _TopK = None,
    feedback: _Feedback = "public",
    hints: _Hints = False,
    structure_bonus: _StructureBonus = False,
    sandbox: _Sandbox = "local",
    workers: _Workers = 0,
    allow_weak_isolation: _Weak = False,
    max_tokens_total: _Tokens = None,
    max_time: _Time = None,
    max_cost: _Cost = None,
    price_in: _PriceIn = 0.0,
    price_out: _PriceOut = 0.0,
    api_key_env: KeyEnv = None,
    context_length: ContextLength = None,
    timeout: Timeout = None,
    retries: Retries = None,
    model_option: ModelOption = None,
) -> None:
    """Attempt problems with a model: its code is really run, and every attempt ends as a trace.

    The same command again goes on where an interrupted one stopped; attempts that ended in an error are made again.
    More options (seed, turns, budgets, sandbox, server), for the command line or --config, are in docs/cli.md.
    """
    from foretrace.api import MAX_SESSIONS, TerminatedError, run_generate
    from foretrace.cli.display.generate import Watch, check_report, note_demo, note_rows, show_report
    from foretrace.core.completion import Sampling
    from foretrace.episodes.generate.resume import GenerateSettings, check
    from foretrace.episodes.generate.throttle import Budget
    from foretrace.episodes.settings import EpisodeSettings
    from foretrace.models.registry import resolve_model
    from foretrace.problems.registry import apart, usable_problems
    from foretrace.protocols.registry import make_protocol
    from foretrace.sandbox.base import Settings
    from foretrace.sandbox.registry import make_sandbox

    problems, path = apart(problems, path)
    at_once = _number_of(concurrency)
    settings = GenerateSettings(
        samples=samples,
        sampling=Sampling(top_p=top_p, top_k=top_k, max_tokens=max_tokens, **_heat(temperature)),
        seed=seed,
        episode=EpisodeSettings(max_turns=max_turns, feedback=feedback, hints=hints, structure_bonus=structure_bonus),
        keep=keep,
        concurrency=at_once,
        budget=Budget(tokens=max_tokens_total, seconds=max_time, cost=max_cost, price_in=price_in, price_out=price_out),
    )
    check(settings)
    server = server_of(
        base_url=base_url,
        api_key_env=api_key_env,
        context_length=context_length,
        timeout=timeout,
        retries=retries,
        model_option=model_option,
    )
    talk = make_protocol(protocol)
    box_settings = Settings(
        max_sessions=at_once or MAX_SESSIONS, workers=workers, allow_weak_isolation=allow_weak_isolation
    )
    box = make_sandbox(sandbox, box_settings, option="--sandbox")
    asked = resolve_model(model, server)
    say.kept = f"interrupted; what was finished is kept in {out}, the same command goes on from there"
    with say.progress(f"reading {problems}") as progress:
        given, drops = usable_problems(problems, path, limit)
        note_rows(say, drops, len(given) + len(drops), path or problems)
        note_demo(say, asked, given)
        watch = Watch(say, progress)
        try:
            report = run_generate(given, talk, asked, box, out, settings, watch, failed=watch.end, ends_on_sigterm=True)
        except TerminatedError:
            say.warn(f"foretrace: {say.kept}")
            raise typer.Exit(_TERMINATED) from None
        except ForetraceError:
            if watch.report is not None:
                progress.stop()
                say.note(f"what was finished is kept in {out}; the same command goes on from there")
                show_report(say, watch.report, out, len(drops))
            raise
    show_report(say, report, out, len(drops))
    check_report(report)


def _number_of(concurrency: str) -> int | None:
    if concurrency == "auto":
        return None
    if not concurrency.isascii() or not concurrency.isdigit() or not 1 <= int(concurrency) <= 4096:
        raise UsageError(f"--concurrency {concurrency!r}: choose auto, or 1 to 4096")
    return int(concurrency)


def _heat(temperature: str) -> dict[str, Any]:
    """The temperature as a part of `Sampling`; with `none` the server's own, which for a model in this process is 1."""
    if temperature == "none":
        return {"temperature": 1.0, "extra": {"temperature": None}}
    try:
        value = float(temperature)
    except ValueError:
        value = -1.0
    if not 0.0 <= value < float("inf"):
        raise UsageError(f"--temperature {temperature!r}: choose a number that is not negative, or none")
    return {"temperature": value}
