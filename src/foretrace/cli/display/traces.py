"""Print the list of a folder's traces, results of exports, and a single trace message by message."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from foretrace.actions.confidence import find_agreement
from foretrace.actions.flags import Flag, find_flag_meaning, flag_trace
from foretrace.actions.label_steps import label_trace
from foretrace.actions.rules import find_rule_meaning
from foretrace.actions.taxonomy import StepLabel
from foretrace.cli.output import Cell, Output, name_folder, one_line
from foretrace.core.errors import count_things
from foretrace.core.files import describe_output
from foretrace.core.trace import Message, ToolCall, Trace
from foretrace.encodings.calls_in_text import remove_calls
from foretrace.report.traces_page import find_start, find_title

if TYPE_CHECKING:
    from foretrace.actions.corrections import Corrections
    from foretrace.clean.scrub import ScrubReport
    from foretrace.exports.export_traces import ExportReport
    from foretrace.report.view import ViewReport

_WIDTH = 180
"""Most characters of a line that are shown."""
_SUCCESS = {True: ("success", "green"), False: ("failed", "red"), None: ("outcome unknown", "yellow")}


_FIRST_WORDS = 60
_MADE_ID = re.compile(r"(?:\w+:)?[0-9a-f]{16}")
"""A task id made from the task's text, which means nothing to a person."""


_TEXT, _ARGUMENT, _OBSERVATION = (6, 2), (12, 4), (6, 4)
"""Number of lines shown from the beginning and from the end of a text."""


def trace_summary(trace: Trace) -> dict[str, Any]:
    origin, outcome = trace.provenance, trace.outcome
    folder = trace.extra.get("cwd")
    group = trace.task.group if trace.task.group != trace.task.id else None
    return {
        "key": trace.key,
        "date": find_start(trace),
        "project": Path(folder).name if isinstance(folder, str) else group,
        "first_words": find_title(trace),
        "task": trace.task.id,
        "model": origin.model,
        "protocol": origin.protocol,
        "seed": origin.seed,
        "sample": origin.sample,
        "steps": sum(1 for _ in trace.steps()),
        "success": outcome.success,
        "reward": outcome.reward,
        "status": outcome.status,
    }


def show_list(output: Output, rows: Sequence[dict[str, Any]], total: int) -> None:
    """Print summaries of traces, out of `total`; columns without any value are left out."""
    if not rows:
        output.print("no traces")
        return
    shown: list[dict[str, Cell]] = []
    for row in rows:
        words = one_line(row["first_words"])
        shown.append(
            {
                **row,
                "date": row["date"] and row["date"][:16].replace("T", " "),
                "first_words": words or None if len(words) <= _FIRST_WORDS else f"{words[: _FIRST_WORDS - 1]}…",
                "task": None if _MADE_ID.fullmatch(row["task"]) else row["task"],
                "success": {True: "yes", False: "no", None: "unknown"}[row["success"]],
                "status": None if row["status"] == "done" else row["status"],
            }
        )
    columns = [name for name in rows[0] if any(row[name] is not None for row in shown)]
    cells = [[row[name] for name in columns] for row in shown]
    output.print_table([name.replace("_", " ") for name in columns], cells, whole=True)
    if total > len(rows):
        output.note(f"{len(rows)} of {total:,} traces, the first by task; --all lists them all")


def show_export(output: Output, report: ExportReport) -> None:
    from foretrace.exports.base import describe_losses

    read = "problems" if report.format == "harbor-tasks" else "traces"
    fields: list[tuple[str, Cell]] = [(read, report.traces), ("written", report.written)]
    if report.format == "inline":
        fields.append(("with tokens", report.with_tokens))
    if report.without_solution:
        fields.append(("without a solution", report.without_solution))
    fields += [(f"dropped, {reason}", count) for reason, count in report.dropped.items()]
    for what, found in (("lost", report.lost), ("for foretrace only", report.kept)):
        fields += [(f"{what}, {unit}", text) for unit, text in describe_losses(found).items()]
    is_folder = Path(report.out).is_dir()
    if is_folder:
        fields.append(("files", report.files))
    where = ("folder" if is_folder else "file", describe_output(report.out, report.replaced))
    output.print_fields([*fields, ("bytes", report.bytes), where])


def show_scrubbed(output: Output, report: ScrubReport) -> None:
    output.print_fields(
        [
            ("traces", report.traces),
            ("written", report.written),
            ("changed", report.changed),
            *((f"  {name}", count) for name, count in report.redacted.items()),
            ("drops", sum(report.drops.values())),
            *((f"  {reason}", count) for reason, count in report.drops.items()),
            ("already there", report.already_there),
            *name_folder(report.out),
        ]
    )


def show_view(output: Output, report: ViewReport) -> None:
    page = Path(report.page)
    files = page.parent.rglob("*") if page.name == "index.html" else [page]
    left_out = {"left out": report.left_out, "not readable": report.unreadable}
    output.print_fields(
        [
            ("rows" if report.kind == "dataset" else report.kind, report.listed),
            *((name, count) for name, count in left_out.items() if count),
            ("bytes", sum(file.stat().st_size for file in files)),
            ("page", report.page),
        ]
    )


def trace_facts(trace: Trace, step: int | None, corrections: Corrections | None = None) -> dict[str, Any]:
    labels = _label(trace, corrections)
    flags = flag_trace(trace)
    if step is None:
        return {"trace": trace, "labels": labels, "flags": flags}
    chosen = next(s for s in trace.steps() if s.index == step)
    return {
        "key": trace.key,
        "step": step,
        "message": chosen.message,
        "observations": chosen.observations,
        "label": next((label for label in labels if label.index == step), None),
        "meanings": {label.rule: find_rule_meaning(label.rule) for label in labels if label.index == step},
        "flags": [flag for flag in flags if flag.index == step],
    }


def _label(trace: Trace, corrections: Corrections | None) -> list[StepLabel]:
    labels = label_trace(trace)
    return labels if corrections is None else corrections.apply(trace, labels)


def show_trace(
    output: Output,
    trace: Trace,
    *,
    step: int | None = None,
    full: bool = False,
    corrections: Corrections | None = None,
) -> None:
    """Print the trace, or one step of it; texts are shortened unless `full`."""
    labels = {label.index: label for label in _label(trace, corrections)}
    printer = _MessagePrinter(output, full, flag_trace(trace), explain=step is not None)
    if step is not None:
        chosen = next(s for s in trace.steps() if s.index == step)
        output.print((trace.key, "bold"))
        printer.step(chosen.message, step, labels.get(step))
        for message in chosen.observations:
            printer.message(message, "  < ", _OBSERVATION)
        return
    _show_header(output, trace)
    for index, message in enumerate(trace.messages):
        if message.role == "tool":
            printer.message(message, "  < ", _OBSERVATION)
            continue
        output.print()
        if message.role == "assistant":
            printer.step(message, index, labels.get(index))
        else:
            who = message.role if message.author == "user" else f"{message.role}, {message.author}"
            output.print((f"[{index}] {who}", "dim"))
            printer.message(message, "  ", _TEXT)


def _show_header(output: Output, trace: Trace) -> None:
    origin, outcome, parent = trace.provenance, trace.outcome, trace.parent
    ending = [
        outcome.status,
        outcome.exit_reason,
        None if outcome.reward is None else f"reward {outcome.reward:g}",
        "its ending was rewritten by the source" if outcome.fabricated else None,
        f"the answer was flagged: {', '.join(outcome.flags)}" if outcome.flags else None,
        outcome.error and f"{outcome.error.kind}: {outcome.error.message}",
    ]
    where = origin.source + (f"@{origin.revision}" if origin.revision else "")
    where += f"/{origin.split}" if origin.split else ""
    row = None if origin.raw_row is None else f"row {origin.raw_row}"
    place = " ".join(filter(None, (origin.raw_file, row)))
    author = [origin.agent, origin.model and f"model {origin.model}", origin.protocol and f"protocol {origin.protocol}"]
    sampling = {**origin.sampling, "seed": origin.seed, "sample": origin.sample}
    given = [f"{name} {_as_text(value)}" for name, value in sampling.items() if value not in (None, {}, [], "")]
    name, style = _SUCCESS[outcome.success]
    steps = sum(1 for _ in trace.steps())
    lines: dict[str, list[str | None]] = {
        "source": [where, place, f"license {origin.license or 'not known'}"],
        "agent": author,
        "sampling": [*given],
        "parent": [parent and parent.key, parent and parent.call_id and f"call {parent.call_id}"],
    }
    output.print((one_line(trace.key), "bold"))
    output.print(("task     ", "dim"), one_line(f"{trace.task.id} (group {trace.task.group})"))
    output.print(("outcome  ", "dim"), (name, style), one_line(f", {', '.join(filter(None, ending))}"))
    for title, parts in lines.items():
        if any(parts):
            output.print((f"{title:<9}", "dim"), one_line(", ".join(filter(None, parts))))
    counted = (steps, "step"), (len(trace.messages), "message"), (len(trace.tools), "tool")
    size = ", ".join(count_things(*each) for each in counted) + f"; id {trace.id}"
    output.print(("size     ", "dim"), size)
    output.print(("         ", "dim"), ("the number of a step is the index of its message", "dim"))


class _MessagePrinter:
    """Prints messages. Texts are shortened unless `full`; with `explain`, the meaning of rules is printed."""

    def __init__(self, output: Output, full: bool, flags: Sequence[Flag], *, explain: bool) -> None:
        self._output, self._full, self._flags, self._explain = output, full, flags, explain

    def step(self, message: Message, index: int, label: StepLabel | None) -> None:
        title = (str(label.action), "bold cyan") if label and label.action else ("not a step", "dim")
        rule = f"  {label.rule}, {label.effect}, state {label.state_version}" if label else ""
        failed = "  failed" if label and label.failed else ""
        untrained = "  not trained on" if message.train is False else ""
        self._output.print((f"[{index}] ", "bold"), title, (rule, "dim"), (failed, "red"), (untrained, "yellow"))
        for flag in self._flags:
            if flag.index == index:
                kind = ("  cheat ", "red") if flag.is_cheat else ("  mark ", "yellow")
                meaning = f": {find_flag_meaning(flag.rule)}" if self._explain else ""
                self._output.print(kind, f"{flag.rule}{meaning}", (f"  {one_line(flag.evidence)[:_WIDTH]}", "dim"))
        if label is not None and self._explain:
            self._output.print(("  rule: ", "dim"), find_rule_meaning(label.rule))
            if not label.corrected:
                self._output.print(("  confidence: ", "dim"), f"{label.confidence:.3f}; {_count_agreement(label)}")
        if message.reasoning:
            self._block(message.reasoning, "  (thinks) ", _TEXT, "dim")
        thought = remove_calls(message)
        if thought.strip():
            self._block(thought, "  ", _TEXT)
        self._parts(message)
        for call in message.tool_calls:
            self._call(call)

    def message(self, message: Message, indent: str, excerpt: tuple[int, int]) -> None:
        self._block(message.content or "(empty)", indent, excerpt, "red" if message.is_error else "")
        self._parts(message)

    def _call(self, call: ToolCall) -> None:
        extra = f"  (repaired: {', '.join(call.repairs)})" if call.repairs else ""
        error = f"  unreadable, never executed: {call.error}" if call.error else ""
        self._output.print(
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
            text, title = _as_text(value), f"      {one_line(str(name))}:"
            if "\n" in text.strip("\n"):
                self._output.print((title, "dim"))
                self._block(text, "        | ", _ARGUMENT)
            else:
                self._output.print((f"{title} ", "dim"), self._shorten(text.strip("\n")))

    def _parts(self, message: Message) -> None:
        for part in message.parts:
            place = one_line(part.ref or part.sha256 or "")[:120]
            self._output.print((f"  ({part.type} {part.media_type} {place})", "dim"))

    def _block(self, text: str, indent: str, excerpt: tuple[int, int], style: str = "") -> None:
        lines, (head, tail) = text.strip("\n").split("\n"), excerpt
        left = len(lines) - head - tail
        if not self._full and left > 1:
            lines[head : head + left] = [f"... {left} lines ..."]
        for number, line in enumerate(lines):
            begin = indent if number == 0 or "|" in indent else " " * len(indent)
            is_gap = not self._full and left > 1 and number == head
            self._output.print((begin, "dim"), (self._shorten(line), "dim" if is_gap else style))

    def _shorten(self, line: str) -> str:
        notice = f" ... {len(line) - _WIDTH} characters more"
        return line if self._full or len(line) <= _WIDTH + len(notice) else f"{line[:_WIDTH]}{notice}"


def _count_agreement(label: StepLabel) -> str:
    agreed, seen = find_agreement(label.rule, label.action)
    if not seen:
        return "no hand-labeled step has this rule and action"
    return f"{agreed} of {seen} hand-labeled steps with this rule and action agree"


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
