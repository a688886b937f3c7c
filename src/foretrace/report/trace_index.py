"""The list of traces in a page, in columns with one row per trace; repeated texts are stored once."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from foretrace.actions.flags import Flag
from foretrace.actions.taxonomy import ActionType, StepLabel
from foretrace.core.trace import Message, Trace
from foretrace.evaluation.step_times import StepTimes

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
"""The mark of a Markdown heading."""
_HEADLINE_END = re.compile(r"\n\s*\n|\n(?=#|\*\*|[-=]{3}|[-*] )")
"""The end of a marked task's headline: an empty line, or Markdown marks."""
_REDACTED = ("<SECRET:", "redacted-user-", "[REDACTED")
"""Beginnings of placeholders for secrets."""


class TraceIndex:
    """Collects traces, and makes the columns of the list."""

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []
        self._texts: dict[str, dict[str, int]] = {}
        """Kind -> text -> its number."""

    def __len__(self) -> int:
        return len(self._rows)

    def add(
        self,
        trace: Trace,
        labels: Sequence[StepLabel],
        flags: Sequence[Flag],
        times: Sequence[StepTimes],
        *,
        run: int,
        chunk: int,
        place: int,
    ) -> None:
        """Add a trace.

        Args:
            run: Number of its traces folder.
            chunk: Number of the piece that holds its messages.
            place: Its position in that piece.
        """
        origin, outcome = trace.provenance, trace.outcome
        calls = [call for message in trace.messages for call in message.tool_calls]
        actions = Counter(str(label.action) for label in labels if label.action is not None)
        usages = [m.sampled.usage for m in trace.messages if m.sampled is not None and m.sampled.usage is not None]
        properties = _find_properties(trace, labels, times)
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
            "flags": list(dict.fromkeys([*_name_flags(flags), *properties])),
            "parent": [trace.parent.key, trace.parent.call_id] if trace.parent else None,
            "run": run,
            "chunk": chunk,
            "place": place,
        }
        for name, kind in _TEXT_COLUMNS.items():
            numbers, value = self._texts.setdefault(kind, {}), row[name]
            if isinstance(value, str):
                row[name] = numbers.setdefault(value, len(numbers))
            else:
                row[name] = [numbers.setdefault(text, len(numbers)) for text in value]
        self._rows.append(row)

    def leave_out(self, first: int) -> int:
        """Note that the piece that begins with row `first` did not fit; returns the number of its traces."""
        for row in self._rows[first:]:
            row["chunk"] = -1
        return len(self._rows) - first

    def make_chunks(self) -> list[dict[str, list[Any]]]:
        """The columns of every `ROWS_PER_CHUNK` traces."""
        parts = [self._rows[at : at + ROWS_PER_CHUNK] for at in range(0, len(self._rows), ROWS_PER_CHUNK)]
        return [{name: [row[name] for row in rows] for name in rows[0]} for rows in parts]

    def list_texts(self) -> dict[str, list[str]]:
        """Kind -> texts, in the order of their numbers."""
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
    """Sum of the known values; `None` if there are none."""
    known = [value for value in seconds if value is not None]
    return round(sum(known), 3) if known else None


def _name_flags(flags: Sequence[Flag]) -> list[str]:
    """The flags by which the list can be filtered: each rule, and whether there is any cheat."""
    names = [f"{'cheat' if flag.is_cheat else 'mark'}: {flag.rule}" for flag in flags]
    return [*(["cheat"] if any(flag.is_cheat for flag in flags) else []), *names]


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
        "redacted": any(mark in text for m in messages for text in _list_texts(m) for mark in _REDACTED),
        "times known": any(step.unknown is None for step in times),
        "no agent message": not labels,
    }
    return [name for name, holds in properties.items() if holds]


def _list_texts(message: Message) -> list[str]:
    return [message.content, message.reasoning or "", *(call.arguments for call in message.tool_calls)]
