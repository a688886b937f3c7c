"""One trace as a person reads it: header, then message by message, with each step's label and rule."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from foretrace.actions.label_steps import label_trace
from foretrace.actions.taxonomy import StepLabel
from foretrace.cli.output import Output, one_line
from foretrace.core.trace import Message, Provenance, ToolCall, Trace
from foretrace.encodings.calls_in_text import remove_calls

_WIDTH = 180
"""Characters of a line that are shown."""
_SUCCESS = {True: ("success", "green"), False: ("failed", "red"), None: ("outcome unknown", "yellow")}


class _Cut(msgspec.Struct, frozen=True):
    """How many lines of a text are shown: from its beginning and from its end."""

    head: int
    tail: int


_TEXT, _ARGUMENT, _OBSERVATION = _Cut(6, 2), _Cut(12, 4), _Cut(6, 4)


def trace_facts(trace: Trace, step: int | None) -> dict[str, Any]:
    """The trace and its labels (or those of one step) as one JSON object."""
    labels = label_trace(trace)
    if step is None:
        return {"trace": trace, "labels": labels}
    found = next(s for s in trace.steps() if s.index == step)
    return {
        "key": trace.key,
        "step": step,
        "message": found.message,
        "observations": found.observations,
        "label": next((label for label in labels if label.index == step), None),
    }


def show_trace(say: Output, trace: Trace, *, step: int | None = None, full: bool = False) -> None:
    """Print the trace, or one step of it; texts are shortened unless `full`."""
    labels = {label.index: label for label in label_trace(trace)}
    page = _Page(say, full)
    if step is not None:
        found = next(s for s in trace.steps() if s.index == step)
        say.line((trace.key, "bold"))
        page.step(found.message, step, labels.get(step))
        for message in found.observations:
            page.observation(message)
        return
    _header(say, trace)
    for index, message in enumerate(trace.messages):
        if message.role == "assistant":
            say.line()
            page.step(message, index, labels.get(index))
        elif message.role == "tool":
            page.observation(message)
        else:
            say.line()
            page.said(message, index)


def _header(say: Output, trace: Trace) -> None:
    origin, outcome = trace.provenance, trace.outcome
    name, style = _SUCCESS[outcome.success]
    say.line((one_line(trace.key), "bold"))
    ending = [outcome.status]
    if outcome.exit_reason:
        ending.append(outcome.exit_reason)
    if outcome.reward is not None:
        ending.append(f"reward {outcome.reward:g}")
    if outcome.fabricated:
        ending.append("its ending was rewritten by the source")
    if outcome.error is not None:
        ending.append(f"{outcome.error.kind}: {outcome.error.message}")
    say.line(("task     ", "dim"), one_line(f"{trace.task.id} (group {trace.task.group})"))
    say.line(("outcome  ", "dim"), (name, style), one_line(f", {', '.join(ending)}"))
    say.line(("source   ", "dim"), one_line(_source(origin)))
    for name, parts in (("agent", _author(origin)), ("sampling", _sampling(origin))):
        if parts:
            say.line((f"{name:<9}", "dim"), one_line(", ".join(parts)))
    steps = sum(1 for _ in trace.steps())
    say.line(
        ("size     ", "dim"), f"{steps} steps, {len(trace.messages)} messages, {len(trace.tools)} tools; id {trace.id}"
    )
    say.line(("         ", "dim"), ("the number of a step is the index of its message", "dim"))


def _source(origin: Provenance) -> str:
    """Where a trace comes from, as far as it is known."""
    where = origin.source + (f"@{origin.revision}" if origin.revision else "")
    where += f"/{origin.split}" if origin.split else ""
    row = "" if origin.raw_row is None else f"row {origin.raw_row}"
    place = " ".join(part for part in (origin.raw_file, row) if part)
    return ", ".join(part for part in (where, place, f"license {origin.license or 'not known'}") if part)


def _author(origin: Provenance) -> list[str]:
    given = {"model": origin.model, "protocol": origin.protocol}
    return [*([origin.agent] if origin.agent else []), *(f"{name} {value}" for name, value in given.items() if value)]


def _sampling(origin: Provenance) -> list[str]:
    """How a generated trace was sampled: names and values."""
    given = {**origin.sampling, "seed": origin.seed, "sample": origin.sample}
    return [
        f"{name} {_as_text(value)}" for name, value in given.items() if value is not None and value not in ({}, [], "")
    ]


class _Page:
    """Prints messages."""

    def __init__(self, say: Output, full: bool) -> None:
        self._say = say
        self._full = full

    def step(self, message: Message, index: int, label: StepLabel | None) -> None:
        """One assistant message: label, thought, calls."""
        title = (str(label.action), "bold cyan") if label and label.action else ("not a step", "dim")
        rule = f"  {label.rule}, {label.effect}, state {label.state_version}" if label else ""
        failed = "  failed" if label and label.failed else ""
        untrained = "  not trained on" if message.train is False else ""
        self._say.line((f"[{index}] ", "bold"), title, (rule, "dim"), (failed, "red"), (untrained, "yellow"))
        if message.reasoning:
            self._block(message.reasoning, "  (thinks) ", _TEXT, "dim")
        thought = remove_calls(message)
        if thought.strip():
            self._block(thought, "  ", _TEXT)
        self._parts(message)
        for call in message.tool_calls:
            self._call(call)

    def observation(self, message: Message) -> None:
        """One answer of the environment."""
        style = "red" if message.is_error else ""
        self._block(message.content or "(empty)", "  < ", _OBSERVATION, style)
        self._parts(message)

    def said(self, message: Message, index: int) -> None:
        """One message of the system or the user."""
        who = message.role if message.author in ("user", "environment") else f"{message.role}, {message.author}"
        self._say.line((f"[{index}] {who}", "dim"))
        self._block(message.content or "(empty)", "  ", _TEXT)
        self._parts(message)

    def _call(self, call: ToolCall) -> None:
        extra = f"  (repaired: {', '.join(call.repairs)})" if call.repairs else ""
        error = f"  unreadable, never executed: {call.error}" if call.error else ""
        self._say.line(
            ("  > ", "green"),
            (one_line(call.name) or "(no name)", "green bold"),
            (one_line(extra), "dim"),
            (one_line(error), "red"),
        )
        try:
            arguments: Any = msgspec.json.decode(call.arguments)
        except (msgspec.DecodeError, RecursionError):
            arguments = call.arguments
        if not isinstance(arguments, dict):
            if arguments not in ("", None):
                self._block(_as_text(arguments), "      ", _ARGUMENT)
            return
        for name, value in arguments.items():
            text = _as_text(value)
            if "\n" in text.strip("\n"):
                self._say.line((f"      {one_line(str(name))}:", "dim"))
                self._block(text, "        | ", _ARGUMENT)
            else:
                self._say.line((f"      {one_line(str(name))}: ", "dim"), self._cut(text.strip("\n")))

    def _parts(self, message: Message) -> None:
        for part in message.parts:
            self._say.line(
                (f"  ({part.type} {part.media_type} {one_line(part.ref or part.sha256 or '')[:120]})", "dim")
            )

    def _block(self, text: str, indent: str, cut: _Cut, style: str = "") -> None:
        lines = text.strip("\n").split("\n")
        left = len(lines) - cut.head - cut.tail
        if self._full or left <= 1:
            shown: list[str | None] = [*lines]
        else:
            shown = [*lines[: cut.head], None, *lines[len(lines) - cut.tail :]]
        for number, line in enumerate(shown):
            begin = indent if number == 0 or "|" in indent else " " * len(indent)
            if line is None:
                self._say.line((begin, "dim"), (f"... {left} lines ...", "dim"))
            else:
                self._say.line((begin, "dim"), (self._cut(line), style))

    def _cut(self, line: str) -> str:
        if self._full or len(line) <= _WIDTH:
            return line
        notice = f" ... {len(line) - _WIDTH} characters more"
        return f"{line[:_WIDTH]}{notice}" if len(line) > _WIDTH + len(notice) else line


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
