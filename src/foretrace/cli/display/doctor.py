"""What `foretrace doctor` prints of a sandbox, and of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from foretrace.cli.output import Cell, Output

if TYPE_CHECKING:
    from foretrace.doctor.model import ModelReport

_LEVELS = {
    4: "elsewhere: a container or another machine",
    3: "jail, namespaces, Landlock, system call filter, limits",
    2: "Landlock, system call filter, limits",
    1: "system call filter, limits: weak",
    0: "limits only: weak",
}
_CAPABILITY_WORDS = {"reasoning_apart": "thinking apart"}
"""Capabilities that are not called by their field's name."""
_LOGPROBS = {
    "token": "ids and logprobs of the sampled tokens (token-exact)",
    "text": "logprobs of pieces of text, without ids (text-exact)",
    "none": "none",
}


def show_sandbox(output: Output, facts: dict[str, Any]) -> None:
    """Print what was found of a sandbox: level, limits, speed, each guard, and what to do where one is off."""
    limits = facts["limits"]
    memory = f"{limits['memory_mb']:,} MiB" if limits["memory_mb"] else "an unknown amount"
    rows: list[tuple[str, Cell]] = [
        ("sandbox", facts["name"]),
        ("isolation", f"level {facts['level']} ({_LEVELS.get(facts['level'], 'unknown')})"),
        *((f"not {name}", why) for name, why in facts["refused"].items()),
        ("missing", ", ".join(facts["missing"]) or "nothing"),
        ("python", f"{facts['python'] or 'unknown'} on {facts['machine'] or 'unknown'}"),
        ("preloaded", facts["preload"]),
        ("workers", facts["workers"]),
        (
            "limits of a run",
            f"{limits['wall_s']:g} s, {limits['cpu_s']:g} s of CPU, {memory} of memory, "
            f"{limits['processes']} processes, output {limits['output_mb']} MiB, "
            f"files of {limits['file_mb']} MiB in {limits['scratch_mb']} MiB of scratch",
        ),
        ("judging", _describe_judging(facts["judged"])),
        ("speed", f"{facts['runs_per_s']:,.0f} runs/s; one alone takes {facts['ms_per_run']:.1f} ms"),
    ]
    output.print_fields(rows)
    output.print()
    guards: list[dict[str, Any]] = facts["guards"]
    output.print_table(
        ("guard", "level", "on", "observed"), [(g["name"], g["level"], g["on"], g["reason"]) for g in guards]
    )
    remedies: dict[str, list[str]] = {}
    for guard in guards:
        if not guard["on"] and guard["remedy"]:
            remedies.setdefault(guard["remedy"], []).append(guard["name"])
    for remedy, names in remedies.items():
        output.print()
        output.print((f"{', '.join(names)}: ", "bold"), remedy)


def _describe_judging(judged: dict[str, bool]) -> str:
    wrong = [kind for kind, as_it_should in judged.items() if not as_it_should]
    if wrong:
        return f"WRONG for {', '.join(wrong)}: please report this"
    return f"right and wrong answers are told apart: {', '.join(judged)}"


def show_model(output: Output, report: ModelReport, max_tokens: int) -> None:
    """Print what was found of a model, as far as it went; `max_tokens` is the limit of its replies."""
    notes: list[tuple[str, Cell]] = list(report.notes.items())
    output.print_fields([("model", report.model), ("endpoint", report.endpoint or "in this process"), *notes])
    if report.capabilities is not None:
        output.print()
        output.print_table(
            ("the server can do", "", "why not"), [_capability_row(n, c) for n, c in report.capabilities.items()]
        )
    if report.protocols is not None:
        output.print()
        output.print_table(
            ("protocol", "offered", "why not"), [(n, p["offered"], p["reason"]) for n, p in report.protocols.items()]
        )
    if report.episode is not None and report.sandbox is not None:
        output.print()
        output.print_fields(_episode_fields(report.episode, report.sandbox, max_tokens))


def _capability_row(name: str, found: dict[str, Any]) -> tuple[Cell, ...]:
    tokens = found.get("tokens")
    yes: Cell = found["yes"] if tokens is None else f"{tokens:,} tokens"
    return (_CAPABILITY_WORDS.get(name, name.replace("_", " ")), yes, found["reason"])


def _episode_fields(episode: dict[str, Any], sandbox: dict[str, Any], max_tokens: int) -> list[tuple[str, Cell]]:
    tests, speed = episode["tests"], episode["tokens_per_s"]
    read, written = episode["prompt_tokens"], episode["completion_tokens"]
    counted = [f"{count:,} {way}" for count, way in ((read, "in"), (written, "out")) if count is not None]
    cut = episode["cut_off"]
    replies = "reply" if cut == 1 else "replies"
    at_the_limit = f"{cut:,} {replies} at {max_tokens:,} tokens: give more with --max-tokens"
    return [
        ("problem", episode["problem"]),
        ("protocol", episode["protocol"]),
        ("sandbox", f"{sandbox['name']}, isolation level {sandbox['level']}"),
        *((f"not {name}", why) for name, why in sandbox["refused"].items()),
        ("ended", episode["status"]),
        ("turns", episode["turns"]),
        ("tests", None if tests is None else f"{tests['passed']:,} of {tests['total']:,} passed"),
        ("reward", episode["reward"]),
        ("tokens", ", ".join(counted) or "not counted by the server"),
        ("tokens/s", None if speed is None else f"{speed:,.1f}"),
        ("seconds", f"{episode['model_s']:.2f} of the model, {episode['sandbox_s']:.2f} of the sandbox"),
        ("logprobs", _LOGPROBS[episode["logprobs"]]),
        *([("cut off", at_the_limit)] if cut else []),
    ]
