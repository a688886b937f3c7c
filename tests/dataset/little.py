"""Tiny traces made on the spot, and a look at what a build wrote."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import foretrace
from foretrace.actions.label_steps import collect_evidence
from foretrace.core.store import write_traces
from foretrace.core.trace import Message, Outcome, Provenance, Task, ToolCall, ToolSpec, Trace
from foretrace.dataset.filters.base import FoundTrace, TraceFilter, encode_examined
from foretrace.dataset.trace_filters import examine_trace

RUN_BUILD = Path(__file__).with_name("run_build.py")
"""A script that builds in a process of its own: `run_build.py '{"traces": [..], "out": ..., ...}'`."""
CONFIGS = ("proposer", "verifier", "verifier_unpaired", "eval", "trajectories")


def system(text: str) -> Message:
    return Message(role="system", author="user", content=text)


def user(text: str) -> Message:
    return Message(role="user", author="user", content=text)


def seen(text: str) -> Message:
    return Message(role="tool", author="environment", content=text)


def says(text: str, **more: Any) -> Message:
    return Message(role="assistant", author="model", content=text, **more)


def calls(name: str, arguments: dict[str, Any] | str, text: str = "") -> Message:
    """One call; arguments as a text are taken as they are."""
    given = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return says(text, tool_calls=(ToolCall(name=name, arguments=given),))


def runs(command: str, text: str = "") -> Message:
    return calls("bash", {"command": command}, text)


def trace(
    key: str,
    *messages: Message,
    task: str = "t",
    group: str = "g",
    success: bool | None = True,
    tools: tuple[ToolSpec, ...] = (),
) -> Trace:
    return Trace(
        key=key,
        task=Task(id=task, group=group),
        messages=messages,
        tools=tools,
        outcome=Outcome(success=success),
        provenance=Provenance(origin="imported", source="little", license="MIT", split="train"),
    )


_WORDS = "alpha config parser index cache token stream buffer query schema model route handler logger"


def attempt(key: str, rng: random.Random, *, name: str, **more: Any) -> Trace:
    """Look, read, edit, check, finish: a small coding attempt whose paths and words come from `rng`."""
    words = _WORDS.split()
    one, two = (f"src/{rng.choice(words)}_{rng.choice(words)}.py" for _ in range(2))
    return trace(
        key,
        system("You are a coding agent with a shell."),
        user(f"Fix the {rng.choice(words)} in {name}."),
        runs("ls src", "Let me look."),
        seen(f"{one}\n{two}"),
        runs(f"cat {one}"),
        seen(f"{rng.choice(words)} = {rng.randrange(1000)}"),
        runs(f"cat {two}"),
        seen("x = 1"),
        runs(f"sed -i s/{rng.choice(words)}/{rng.choice(words)}/ {rng.choice([one, two])}"),
        seen(""),
        runs(f"pytest -k {rng.choice(words)}"),
        seen("1 passed"),
        says(f"Fixed {one}."),
        **more,
    )


def corpus(groups: int = 24, seed: int = 0) -> list[Trace]:
    """Three attempts a group (solved, failed, unknown), one task each."""
    traces: list[Trace] = []
    for number in range(groups):
        for place, success in enumerate((True, False, None)):
            rng = random.Random(f"{seed} {number} {place}")
            key = f"little/{number:03d}/{place}"
            name = f"repo-{number:03d}"
            traces.append(attempt(key, rng, name=name, task=f"task-{number}", group=name, success=success))
    return traces


def build(folder: Path, *traces: Trace, **settings: Any) -> dict[str, Any]:
    """Build `folder/d` from these traces, which lie in `folder/t`; its manifest."""
    write_traces(traces, folder / "t")
    settings = {"statistical_gates": False} | settings
    return foretrace.build(folder / "t", out=folder / "d", **settings).manifest


def examine(traces: Iterable[Trace], filters: Sequence[TraceFilter]) -> Iterator[FoundTrace]:
    """The traces as a worker of a build reports them."""
    return (encode_examined(examine_trace(trace, filters, collect_evidence(trace))) for trace in traces)


def tree(folder: Path) -> dict[str, str]:
    """Digest of every file, by its path."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def files(folder: Path, config: str, split: str = "*") -> list[Path]:
    return sorted((folder / config).glob(f"{split}-*.parquet"))


def rows(folder: Path, config: str, split: str = "*") -> Iterator[dict[str, Any]]:
    """Rows as plain pyarrow reads them, JSON values decoded, each with the name of its split."""
    for path in files(folder, config, split):
        for row in pq.read_table(path).to_pylist():
            decoded = {name: [json.loads(text) for text in row[name]] for name in ("messages", "tools") if name in row}
            yield row | decoded | {"split": path.name.split("-")[0]}


def edit(path: Path, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> None:
    """Write a Parquet file again with other rows."""
    table = pq.read_table(path, arrow_extensions_enabled=False)
    pq.write_table(pa.Table.from_pylist(change(table.to_pylist()), schema=table.schema), path)
