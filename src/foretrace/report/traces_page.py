"""The page of one traces folder, or of two side by side: a list of traces in columns, their records with what is
derived from them (labels, times, token logprobs), and means by turn."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from foretrace.actions.flags import Flag, find_flag_meaning, flag_trace
from foretrace.actions.label_steps import collect_evidence
from foretrace.actions.taxonomy import ActionType, Effect, StepLabel
from foretrace.core.errors import Setting, UsageError, find_first_line
from foretrace.core.internal_errors import contain_errors
from foretrace.core.progress import ProgressFunc
from foretrace.core.store import TraceStore, unpack_record
from foretrace.core.token_arrays import pack
from foretrace.core.trace import Sampled, Trace, encode_trace
from foretrace.core.version import __version__
from foretrace.episodes.speculation_report import Launch, read_launches
from foretrace.evaluation.savings import GUESS_S
from foretrace.evaluation.step_times import StepTimes, find_step_effect, time_steps
from foretrace.report.page import Page, PageCounts, PagePieces

_ROW_BYTES = 500
"""Approximate size of a trace's line in the list."""
_SHOWN_UNREADABLE = 50
_LOWEST_LOGPROB = -20.0
_MAX_TURNS = 40
_SHOWN_TOKENS = 2_000
"""Most tokens of a message whose ids and logprobs are in the page."""
ROWS_PER_CHUNK = 5_000
_TEXT_COLUMNS = {
    **{name: name for name in ("task", "source", "agent", "model", "protocol", "status", "error")},
    "rules": "rule",
    "effects": "effect",
    "tools": "tool",
    "flags": "flag",
}
"""Columns of repeated texts -> kind of text: rows have a list of texts in the last four, and one text in the others."""
_TITLE_CHARACTERS = 110
_SEARCHED_CHARACTERS = 3_000
_MARKED_TASK = re.compile(r"<(pr_description|issue_description|issue|problem_statement|task|user_query)>\s*(?=\S)")
"""The beginning of the task in a message that says other things first, such as where the files are."""
_NAMED_TASK = re.compile(r"(?:^|\n)(?:ISSUE|TASK|PROBLEM):[ \t]*\n\s*(?=\S)")
"""The same, after a line with a title; the task's first line is its headline."""
_HEADING_MARK = re.compile(r"^#{1,6}\s+(?=\S)")
_HEADLINE_END = re.compile(r"\n\s*\n|\n(?=#|\*\*|[-=]{3}|[-*] )")
"""The end of a marked task's headline: an empty line, or Markdown marks."""
_REDACTED = ("<SECRET:", "redacted-user-", "[REDACTED")


def write_traces_page(page: Page, stores: Sequence[TraceStore], progress: ProgressFunc) -> PageCounts:
    index = _TraceIndex()
    total = sum(len(store.read_columns("key")) for store in stores)
    if _ROW_BYTES * total > page.limit:
        raise UsageError(f"{total:,} traces are too many for one file; write a folder with ", Setting("out", "view"))
    pieces = PagePieces(page, "traces")
    turns: list[list[list[list[float]]]] = [[] for _ in stores]
    unreadable: list[tuple[str, str]] = []
    for run, store in enumerate(stores):
        launches = read_launches(store.folder)
        for done, (key, record, packed) in enumerate(store.read_records(), len(index) + len(unreadable) + 1):
            progress(f"reading {store.folder}", done, total)
            try:
                trace = unpack_record(record, packed)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                unreadable.append((key, find_first_line(error)))
                continue
            with contain_errors("page", key) as found:
                evidence, times = collect_evidence(trace), time_steps(trace)
                labels, flags = [each.label for each in evidence], flag_trace(trace, evidence)
                facts = describe_trace(trace, labels, flags, times, launches.get(key, ()))
                place = {"run": run, "chunk": pieces.number, "place": pieces.place}
                row = index.add(trace, labels, flags, times, place)
                _add_turns(turns[run], trace, times)
                pieces.add(facts, row)
            if found.text:
                unreadable.append((key, found.text))
    left_out = pieces.finish()
    for row in left_out:
        row["chunk"] = -1
    chunks = index.make_chunks()
    for number, chunk in enumerate(chunks):
        page.put(f"index-{number}", chunk)
    facts = {
        "kind": "traces",
        "version": __version__,
        "folders": name_folders([store.folder for store in stores]),
        "actions": [str(action) for action in ActionType],
        "turns": [[_describe_turn(*turn) for turn in of] for of in turns],
        "unreadable": unreadable[:_SHOWN_UNREADABLE],
        "unreadable_count": len(unreadable),
        "left_out": len(left_out),
        "traces": len(index),
        "chunks": len(chunks),
        "texts": index.list_texts(),
    }
    page.put("meta", facts)
    return PageCounts(len(index), len(left_out), unreadable=len(unreadable))


def name_folders(folders: Sequence[Path]) -> list[str]:
    """Short names of folders: the last part, preceded by the parent's name if two are equal."""
    names = [folder.resolve().name for folder in folders]
    if len(set(names)) < len(names):
        names = [f"{folder.resolve().parent.name}/{name}" for folder, name in zip(folders, names, strict=True)]
    return names


def describe_trace(
    trace: Trace,
    labels: Sequence[StepLabel],
    flags: Sequence[Flag],
    times: Sequence[StepTimes],
    launches: Sequence[Launch] = (),
) -> dict[str, Any]:
    """The record without its token arrays, with derived data."""
    bare, _ = pack(trace)
    return {
        "trace": msgspec.Raw(encode_trace(bare)),
        "labels": [
            [x.index, x.action and str(x.action), x.rule, str(x.effect), x.state_version, x.failed] for x in labels
        ],
        "flags": [[x.index, x.rule, x.is_cheat, find_flag_meaning(x.rule), x.evidence] for x in flags],
        "times": _describe_times(labels, times),
        "early": [[x.step, x.tool, x.after_s, x.seconds, x.used, x.saved_s] for x in launches],
        "tokens": [
            [index, *_describe_tokens(m.sampled)]
            for index, m in enumerate(trace.messages)
            if m.sampled is not None and (m.sampled.token_ids or m.sampled.logprobs)
        ],
    }


def _describe_tokens(sampled: Sampled) -> list[Any]:
    logprobs = [
        round(max(value, _LOWEST_LOGPROB), 2) if value == value else _LOWEST_LOGPROB for value in sampled.logprobs
    ]
    return [
        len(sampled.token_ids),
        round(sum(logprobs) / len(logprobs), 4) if logprobs else None,
        len(sampled.prompt_token_ids or ()),
        sampled.token_ids[:_SHOWN_TOKENS],
        logprobs[:_SHOWN_TOKENS],
    ]


def _describe_times(labels: Sequence[StepLabel], times: Sequence[StepTimes]) -> list[list[Any]]:
    """For each step: first message, seconds of model and tools, seconds that a perfect prefetch hides, why unknown."""
    by_index = {label.index: label for label in labels}
    rows: list[list[Any]] = []
    for step in times:
        hidden = 0.0
        if step.unknown is None and step.calls and find_step_effect(step, by_index) is Effect.PURE_READ:
            hidden = max(0.0, min((step.model_s or 0.0) - GUESS_S, step.tool_s or 0.0))
        rows.append([step.indexes[0], _round(step.model_s), _round(step.tool_s), _round(hidden), step.unknown])
    return rows


def _add_turns(turns: list[list[list[float]]], trace: Trace, times: Sequence[StepTimes]) -> None:
    """Add a trace to the count and the sum, by turn, of attempts, tokens written, model seconds and tool seconds."""
    for turn, step in enumerate(times[:_MAX_TURNS]):
        if turn == len(turns):
            turns.append([[0, 0] for _ in range(4)])
        usages = [s.usage for s in (trace.messages[i].sampled for i in step.indexes) if s is not None]
        tokens = sum(u.completion_tokens or 0 for u in usages if u is not None)
        for sums, value in zip(turns[turn], (1, tokens, step.model_s, step.tool_s), strict=True):
            sums[0] += bool(value)
            sums[1] += value or 0


def _describe_turn(attempts: list[float], *sums: list[float]) -> list[float | None]:
    return [attempts[0], *(round(total / known, 4) if known else None for known, total in sums)]


def _round(seconds: float | None) -> float | None:
    return None if seconds is None or not math.isfinite(seconds) else round(seconds, 4)


class _TraceIndex:
    """Collects traces, and makes the columns of the list."""

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []
        self._texts: dict[str, dict[str, int]] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def add(
        self,
        trace: Trace,
        labels: Sequence[StepLabel],
        flags: Sequence[Flag],
        times: Sequence[StepTimes],
        place: dict[str, int],
    ) -> dict[str, Any]:
        """Add a trace; returns its row. `place` says which traces folder, piece and position in it hold its
        messages."""
        origin, outcome = trace.provenance, trace.outcome
        calls = [call for message in trace.messages for call in message.tool_calls]
        actions = Counter(str(label.action) for label in labels if label.action is not None)
        usages = [m.sampled.usage for m in trace.messages if m.sampled is not None and m.sampled.usage is not None]
        flagged = [f"{'cheat' if flag.is_cheat else 'mark'}: {flag.rule}" for flag in flags]
        if any(flag.is_cheat for flag in flags):
            flagged.insert(0, "cheat")
        row: dict[str, Any] = {
            "key": trace.key,
            "title": find_title(trace),
            "task": trace.task.id,
            "source": origin.source,
            "agent": origin.agent or "",
            "model": origin.model or "",
            "protocol": origin.protocol or "",
            "status": outcome.status,
            "error": outcome.error.kind if outcome.error else "",
            "success": {True: 1, False: 0, None: 2}[outcome.success],
            "reward": outcome.reward,
            "tests": [outcome.tests.passed, outcome.tests.total] if outcome.tests else None,
            "recovered": outcome.metrics.get("recovered"),
            "had_errors": outcome.metrics.get("had_errors"),
            "tokens": sum(u.completion_tokens or 0 for u in usages) if usages else None,
            "steps": sum(actions.values()),
            "messages": len(trace.messages),
            "model_s": _add_known(step.model_s for step in times),
            "tool_s": _add_known(step.tool_s or None for step in times),
            "started": find_start(trace),
            "actions": [actions[name] for name in ActionType],
            "rules": list(dict.fromkeys(label.rule for label in labels)),
            "effects": list(dict.fromkeys(str(label.effect) for label in labels if label.action)),
            "tools": list(dict.fromkeys(call.name or "(no name)" for call in calls)),
            "flags": list(dict.fromkeys([*flagged, *_find_properties(trace, labels, times)])),
            "parent": [trace.parent.key, trace.parent.call_id] if trace.parent else None,
            **place,
        }
        for name, kind in _TEXT_COLUMNS.items():
            numbers, value = self._texts.setdefault(kind, {}), row[name]
            if isinstance(value, str):
                row[name] = numbers.setdefault(value, len(numbers))
            else:
                row[name] = [numbers.setdefault(text, len(numbers)) for text in value]
        self._rows.append(row)
        return row

    def make_chunks(self) -> list[dict[str, list[Any]]]:
        parts = [self._rows[at : at + ROWS_PER_CHUNK] for at in range(0, len(self._rows), ROWS_PER_CHUNK)]
        return [{name: [row[name] for row in rows] for name in rows[0]} for rows in parts]

    def list_texts(self) -> dict[str, list[str]]:
        return {kind: list(numbers) for kind, numbers in self._texts.items()}


def find_title(trace: Trace) -> str:
    """The first words of the task, or else of the first user message or any message."""
    texts = [m.content for m in sorted(trace.messages, key=lambda m: m.role != "user") if m.content.strip()]
    text = trace.task.statement or next(iter(texts), "")
    begins = text[:_SEARCHED_CHARACTERS]
    if marked := _MARKED_TASK.search(begins):
        text = text[marked.end() : marked.end() + _TITLE_CHARACTERS * 4].split(f"</{marked[1]}>")[0]
        text = _HEADLINE_END.split(_HEADING_MARK.sub("", text.strip(), 1), 1)[0]
    elif named := _NAMED_TASK.search(begins):
        text = text[named.end() : named.end() + _TITLE_CHARACTERS * 4].split("\n", 1)[0]
    words = " ".join(text[: _TITLE_CHARACTERS * 4].split())
    title = words if len(words) <= _TITLE_CHARACTERS else words[:_TITLE_CHARACTERS].rsplit(" ", 1)[0] + " …"
    return title.encode("utf-8", "replace").decode()


def find_start(trace: Trace) -> str | None:
    """When the trace began (ISO 8601, to the second), or else when it was created."""
    return next((m.started[:19] for m in trace.messages if m.started), trace.provenance.created_at)


def _add_known(seconds: Any) -> float | None:
    known = [value for value in seconds if value is not None]
    return round(sum(known), 3) if known else None


def _find_properties(trace: Trace, labels: Sequence[StepLabel], times: Sequence[StepTimes]) -> list[str]:
    messages, calls = trace.messages, [call for m in trace.messages for call in m.tool_calls]
    properties = {
        "ending rewritten by source": trace.outcome.fabricated,
        "call not readable": any(call.error for call in calls),
        "call repaired": any(call.repairs for call in calls),
        "step failed": any(label.failed for label in labels),
        "started by another trace": trace.parent is not None,
        "images or files": any(m.parts for m in messages),
        "text injected in a turn": any(m.injected for m in messages),
        "not trained on, in part": any(m.train is False and m.role == "assistant" for m in messages),
        "token ids": any(m.sampled is not None and m.sampled.token_ids for m in messages),
        "redacted": any(
            mark in text
            for m in messages
            for text in (m.content, m.reasoning or "", *(c.arguments for c in m.tool_calls))
            for mark in _REDACTED
        ),
        "times known": any(step.unknown is None for step in times),
        "no agent message": not labels,
    }
    return [name for name, holds in properties.items() if holds]
