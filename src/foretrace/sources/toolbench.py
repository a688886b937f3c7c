"""ToolBench conversations: rows are growing prefixes of one query, of which the longest per branch is kept."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from typing import Any

import msgspec

from foretrace.core.digest import digest
from foretrace.core.trace import Message, Outcome, Provenance, Task, ToolSpec, Trace
from foretrace.encodings.react import PLUGIN as REACT
from foretrace.sources._openai import tool_specs
from foretrace.sources.base import Drop, Hub, RawRow, RowError, RowRef

RETRY = "This is not the first time you try this task"
"""Begins the turn that the search injects before a retried step; later rows of a branch do not keep it."""
_STEP = re.compile(r"^Step (\d+): ?(.*)$", re.DOTALL)
_APIS = "Specifically, you have access to the following APIs:"
_ROLES = {"system": "system", "user": "user", "assistant": "assistant", "function": "tool"}

Turn = tuple[str, str]


class ToolBench:
    """Branches of one query are siblings; what a later branch shares with an earlier one is not trained twice."""

    name = "toolbench"
    licence = "Apache-2.0"
    hub = Hub("tuandunghcmut/toolbench-v1", "train", "default")

    def __init__(self, keep_prefix_rows: bool = False) -> None:
        self.keep_prefix_rows = keep_prefix_rows
        self._inner: set[str] = set()
        """Digests of all beginnings of a conversation that a longer row goes on from."""
        self._first: dict[str, int] = {}
        """Row of the kept conversation in which a beginning stands first."""

    def look(self, rows: Iterable[RawRow]) -> None:
        """Learn which rows are beginnings of others, whatever the order of the rows."""
        if self.keep_prefix_rows:
            return
        ends: dict[str, tuple[int, list[str]]] = {}
        for at, row in rows:
            if isinstance(row, Drop):
                continue
            try:
                chain = _chain(_turns(row))
            except RowError:
                continue
            self._inner.update(chain[:-1])
            ends.setdefault(chain[-1], (at.row, chain))
        for row_number, chain in ends.values():
            if chain[-1] not in self._inner:
                for link in chain:
                    self._first.setdefault(link, row_number)

    def to_trace(self, row: dict[str, Any], at: RowRef) -> Trace | Drop:
        """One row is one branch of the search for one query."""
        turns = _turns(row)
        match = _STEP.match(row["id"]) if isinstance(row.get("id"), str) else None
        if match is None:
            raise RowError("missing_column", "id is not 'Step N: query'")
        chain = _chain(turns)
        if chain[-1] in self._inner:
            return Drop("prefix_row", "a longer row of the same branch is kept")
        if self._first.get(chain[-1], at.row) != at.row:
            return Drop("repeated_row", "the same conversation stands in an earlier row")
        if not any(role == "assistant" for role, _ in turns):
            return Drop("empty_trace", "no assistant turn")
        query = match.group(2).strip()
        messages = self._messages(turns, chain, at.row)
        task_id = f"toolbench:{digest(query)}"
        branch = digest(*(part for turn in turns for part in turn), size=6)
        return Trace(
            key=f"{self.name}@{at.revision or 'local'}/{at.split or 'train'}:{digest(query)}-{branch}",
            task=Task(id=task_id, group=task_id, kind="tool_use", statement=query),
            tools=_apis(turns[0][1]) if turns[0][0] == "system" else (),
            messages=messages,
            outcome=_outcome(messages),
            provenance=Provenance(
                origin="imported",
                source=self.name,
                revision=at.revision,
                split=at.split or "train",
                raw_file=at.file,
                raw_row=at.row,
                raw_id=row["id"],
                licence=self.licence,
                agent="ToolBench DFSDT",
                protocol="react",
            ),
            extra={k: v for k, v in row.items() if k not in ("id", "conversations") and v is not None},
        )

    def _messages(self, turns: list[Turn], chain: list[str], row: int) -> tuple[Message, ...]:
        messages: list[Message] = []
        links = iter(chain)
        for index, (role, text) in enumerate(turns):
            retry = _is_retry(role, text)
            shared = not retry and self._first.get(next(links), row) != row
            messages.append(_message(role, text, index, retry, shared))
        return tuple(messages)


def _turns(row: dict[str, Any]) -> list[Turn]:
    """Turns of a row, whose conversation is two parallel lists or a list of pairs."""
    value = row.get("conversations")
    if "conversations" not in row:
        raise RowError("missing_column", "conversations")
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value)
        except (msgspec.DecodeError, RecursionError, UnicodeEncodeError) as error:
            raise RowError("bad_json", f"conversations: {error}") from None
    if isinstance(value, dict):
        roles, texts = value.get("from"), value.get("value")
        if not isinstance(roles, list) or not isinstance(texts, list) or len(roles) != len(texts):
            raise RowError("wrong_column_type", "conversations.from and .value are no lists of one length")
        pairs = list(zip(roles, texts, strict=True))
    elif isinstance(value, list):
        pairs = [(t.get("from"), t.get("value")) if isinstance(t, dict) else (None, None) for t in value]
    else:
        raise RowError("null_messages" if value is None else "wrong_column_type", "conversations")
    if not pairs:
        raise RowError("empty_trace", "conversations is empty")
    for index, (role, text) in enumerate(pairs):
        if role not in _ROLES:
            raise RowError("unknown_role", f"turn {index} is from {role!r}")
        if text is not None and not isinstance(text, str):
            raise RowError("wrong_column_type", f"turn {index} has a value that is no text")
    return [(role, text or "") for role, text in pairs]


def _chain(turns: list[Turn]) -> list[str]:
    """Digest of each beginning of the conversation, retry turns left out."""
    chain: list[str] = []
    last = ""
    for role, text in turns:
        if not _is_retry(role, text):
            last = digest(last, role, text)
            chain.append(last)
    if not chain:
        raise RowError("empty_trace", "only retry turns")
    return chain


def _is_retry(role: str, text: str) -> bool:
    return role == "user" and text.lstrip().startswith(RETRY)


def _message(role: str, text: str, index: int, retry: bool, shared: bool) -> Message:
    if role == "assistant":
        return Message(
            role="assistant",
            author="model",
            content=text,
            tool_calls=tuple(REACT.parse(text)),
            turn=index,
            raw_index=index,
            train=False if shared else None,
            extra={"shared_with_sibling": True} if shared else {},
        )
    if role == "function":
        return Message(
            role="tool",
            author="environment",
            content=text,
            is_error=_is_error(text),
            turn=index,
            raw_role=role,
            raw_index=index,
        )
    return Message(
        role="system" if role == "system" else "user",
        author="environment" if retry else "user",
        content=text,
        turn=index,
        raw_index=index,
    )


def _is_error(text: str) -> bool | None:
    if not text.startswith('{"error": "'):
        return None
    return not text.startswith('{"error": ""')


def _outcome(messages: tuple[Message, ...]) -> Outcome:
    last = next((m for m in reversed(messages) if m.role == "assistant"), None)
    call = last.tool_calls[-1] if last is not None and last.tool_calls else None
    if call is None or call.name != "Finish":
        return Outcome(status="limit", success=None, exit_reason="no_finish")
    arguments: Any = msgspec.json.decode(call.arguments)
    answered = isinstance(arguments, dict) and arguments.get("return_type") == "give_answer"
    return Outcome(success=answered, exit_reason=str(arguments.get("return_type") or "Finish"))


def _apis(system: str) -> tuple[ToolSpec, ...]:
    """The API list at the end of the system text: a Python literal, not JSON."""
    _, found, listed = system.partition(_APIS)
    if not found:
        return ()
    try:
        return tool_specs(ast.literal_eval(listed.strip()))
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return ()


PLUGIN = ToolBench
