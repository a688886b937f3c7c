"""`foretrace problems`: which problem sets there are, and proof without a model that one is sound."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foretrace.cli.output import Output

if TYPE_CHECKING:
    from collections.abc import Callable

    from foretrace.episodes.validate import ValidationReport
    from foretrace.sandbox.base import Settings

HELP = "List problem sets, and prove them without a model."
_NAMED = 5
"""Problems that the last line of a failed check names."""


def show_help(ctx: typer.Context) -> None:
    """List problem sets, and prove them without a model."""
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


def list_(say: Output) -> None:
    """List the problem sets that `check` can read."""
    import sys

    from foretrace.core.plugins import names, resolve

    rows: list[dict[str, Any]] = []
    for name in names("problems"):
        plugin = resolve("problems", name)
        hub = plugin.hub
        where = f"{hub.repo} ({hub.split})" if hub else "comes with foretrace" if hasattr(plugin, "count") else None
        about = (sys.modules[plugin.__module__].__doc__ or "").strip().split("\n")[0]
        count = getattr(plugin, "count", None)
        rows.append({"name": name, "about": about, "problems": count, "from": where, "license": plugin.license})
    if say.emit({"sets": rows}):
        return
    for row in rows:
        say.line((row["name"], "bold"), f"  {row['about']}")
        count = f"{row['problems']:,} problems; " if row["problems"] else ""
        license = row["license"] or "that of the rows"
        say.line((f"    {count}{row['from'] or 'local files only'}; license {license}", "dim"))
    say.line()
    say.line("your own: jsonl:FILE, or module:Class (docs/problems.md)")


def check(
    say: Output,
    name: Annotated[
        str, typer.Argument(metavar="SET", help="One that `problems list` shows, jsonl:FILE, or module:Class.")
    ],
    *,
    path: Annotated[
        Path | None, typer.Option("--path", metavar="FILE", help="Read this file or folder, not the Hub.")
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", metavar="N", min=1, help="Only the first N problems.")] = None,
    sandbox: Annotated[
        str, typer.Option("--sandbox", metavar="NAME,...", help="What runs the code: the first of these that starts.")
    ] = "local",
    preload: Annotated[
        str, typer.Option("--preload", metavar="SET", help="Import beforehand: none, numpy, science, or a+b.")
    ] = "none",
    min_level: Annotated[
        int, typer.Option("--min-level", metavar="N", min=0, max=4, help="Isolation that must be had.")
    ] = 2,
    allow_weak_isolation: Annotated[
        bool, typer.Option("--allow-weak-isolation", help="Accept levels 0 and 1.")
    ] = False,
    workers: Annotated[
        int, typer.Option("--workers", metavar="N", min=0, help="Runs at one time; 0 is one a core.")
    ] = 0,
) -> None:
    """Prove a problem set without a model.

    Every reference solution must pass, and an answer that does nothing must fail.
    """
    import msgspec

    from foretrace.core.errors import ProblemError
    from foretrace.problems.registry import apart
    from foretrace.sandbox.base import Settings

    name, path = apart(name, path)
    say.kept = "interrupted"
    settings = Settings(
        workers=workers, preload=preload, min_level=min_level, allow_weak_isolation=allow_weak_isolation
    )
    with say.progress(f"checking {name}") as progress:
        isolation, found = _run(name, path, limit, sandbox, settings, lambda done: progress(f"checking {name}", done))
    if not found.problems and not found.findings:
        raise ProblemError(f"{path or name}: there is no problem in it")
    facts = {"set": name, "path": None if path is None else str(path), **msgspec.to_builtins(found)}
    facts |= {"sound": found.sound, "isolation": isolation}
    if not say.emit(facts):
        _show(say, found, isolation)
    if not found.sound:
        raise ProblemError(f"{name}: {_verdict(found)}")


def _run(
    name: str, path: Path | None, limit: int | None, sandbox: str, settings: Settings, progress: Callable[[int], None]
) -> tuple[Any, ValidationReport]:
    """How well the code was isolated, and what was found."""
    import asyncio
    import os

    import msgspec

    from foretrace.episodes.validate import ValidationIssue
    from foretrace.episodes.validate import validate_problems as prove
    from foretrace.problems.base import split
    from foretrace.problems.registry import problem_set
    from foretrace.sandbox.registry import make_sandbox

    problems, drops = split(problem_set(name)().load(path), limit)
    bad = [
        ValidationIssue(problem=drop.at.removeprefix(f"{path} "), fault="bad_row", detail=drop.reason) for drop in drops
    ]
    at_once = settings.workers or len(
        os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    )
    runner = make_sandbox(sandbox, settings)

    async def run() -> tuple[Any, ValidationReport]:
        async with runner:
            isolation = await runner.start()
            return isolation, await prove(problems, runner, workers=at_once, progress=progress)

    isolation, found = asyncio.run(run())
    return msgspec.to_builtins(isolation), msgspec.structs.replace(found, findings=(*bad, *found.findings))


def _show(say: Output, found: ValidationReport, isolation: dict[str, Any]) -> None:
    with_reference = found.problems - found.without_reference
    say.facts(
        [
            ("problems", found.problems),
            ("references passed", f"{found.references_passed:,} of {with_reference:,}"),
            ("empty answers passed", found.empty_passed),
            ("without a reference", found.without_reference),
            ("public tests", f"{found.public:,}, at {found.with_public:,} problems"),
            ("hidden tests", found.hidden),
            ("forms of judging", ", ".join(f"{form} {count:,}" for form, count in found.forms.items()) or None),
            ("isolation", f"level {isolation['level']} ({isolation.get('sandbox', '')})"),
            *((f"not {name}", why) for name, why in isolation.get("refused", {}).items()),
            ("seconds", f"{found.seconds:.1f}"),
        ]
    )
    if found.findings:
        say.line()
        say.table(
            ("problem", "fault", "tests", "detail"), [(f.problem, f.fault, f.tests, f.detail) for f in found.findings]
        )


def _verdict(found: ValidationReport) -> str:
    """One line that names what is wrong, and where."""
    words = {
        "bad_row": "left out",
        "reference_failed": "the reference fails for",
        "empty_passed": "an answer that does nothing passes for",
        "unusable": "the tests cannot be judged for",
        "lost": "the sandbox lost the run for",
    }
    parts: list[str] = []
    for fault, said in words.items():
        named = list(dict.fromkeys(f.problem for f in found.findings if f.fault == fault))
        if named:
            more = f" and {len(named) - _NAMED:,} more" if len(named) > _NAMED else ""
            parts.append(f"{said} {len(named):,}: {', '.join(named[:_NAMED])}{more}")
    return "; ".join(parts)


VERBS = {"list": list_, "check": check}
"""Sub-verbs by name."""
