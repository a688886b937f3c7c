"""ToolBench conversations: the rows of one query are prefixes of its branches, and the longest row of each branch is
kept."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from typing import Any

import msgspec

from foretrace.core.digest import digest
from foretrace.core.python_source import PARSE_ERRORS, parse_quietly
from foretrace.core.trace import Message, Outcome, Task, ToolSpec, Trace
from foretrace.encodings.json_calls import REACT
from foretrace.rows.base import Drop, Hub, RawRow, RowRef
from foretrace.rows.head import FileHead
from foretrace.sources.base import RowError, make_origin
from foretrace.sources.openai_messages import read_tool_specs
from foretrace.sources.row_turns import decode_turns, get_path

RETRY = "This is not the first time you try this task"
"""Begins the turn that the search injects before a retried step; later rows of a branch do not keep it."""
_STEP = re.compile(r"^Step \d+: ?(.*)$", re.DOTALL)
_APIS = "Specifically, you have access to the following APIs:"
_ROLES = {"system": "system", "user": "user", "assistant": "assistant", "function": "tool"}

Turn = tuple[str, str]


class ToolBench:
    """Branches of one query are siblings; a prefix that several branches share is trained only once."""

    name = "toolbench"
    license = "Apache-2.0"
    hub = Hub("tuandunghcmut/toolbench-v1", "train", "default")

    def __init__(self) -> None:
        self._inner: set[int] = set()
        """Last digests of rows that are prefixes of longer rows."""
        self._chosen_row: dict[int, int] = {}
        """Last digest -> digest of all turns of the row that is kept, for rows that only differ in retry turns."""
        self._owner: dict[int, int] = {}
        """Digest of a prefix shared by several branches -> last digest of the branch in which it is trained."""

    def recognize(self, head: FileHead) -> str | None:
        """By the step in a row's id."""
        for row in head.rows:
            if isinstance(row.get("id"), str) and _STEP.match(row["id"]) and "conversations" in row:
                return f"conversations, and an id that begins with {row['id'].partition(':')[0]}:"
        return None

    def scan(self, rows: Iterable[RawRow]) -> None:
        """Find the rows that are prefixes of others, and choose one branch in which each shared prefix is trained: one
        that ended in an answer, if there is one. The order of the rows does not matter."""
        before: dict[int, int] = {}
        ends: dict[int, tuple[int, int]] = {}
        for _, row in rows:
            try:
                if isinstance(row, Drop):
                    continue
                turns, _ = _read_turns(row), _read_query(row)
            except RowError:
                continue
            chain = _digest_prefixes(turns)
            for last, link in zip((0, *chain), chain, strict=False):
                before[link] = last
            rank, whole = _rank_branch(turns), _digest_turns(turns)
            if chain[-1] in ends and ends[chain[-1]] != (rank, whole):
                self._chosen_row[chain[-1]] = whole = min(whole, ends[chain[-1]][1])
            ends[chain[-1]] = (rank, whole)
        inner = set(before.values())
        self._inner = inner.intersection(ends)
        first: dict[int, int] = {}
        for end in sorted(ends.keys() - inner, key=lambda e: (ends[e][0], e)):
            link = end
            while link:
                if first.setdefault(link, end) != end:
                    self._owner[link] = first[link]
                link = before[link]

    def to_trace(self, row: dict[str, Any], at: RowRef) -> Trace | Drop:
        turns, query = _read_turns(row), _read_query(row)
        chain = _digest_prefixes(turns)
        if chain[-1] in self._inner:
            return Drop("prefix_row", "a longer row of the same branch is kept")
        if self._chosen_row.get(chain[-1], whole := _digest_turns(turns)) != whole:
            return Drop("repeated_row", "another row with the same steps is kept")
        messages = self._make_messages(turns, chain)
        task_id = f"toolbench:{digest(query)}"
        return Trace(
            key=f"{self.name}@{at.revision or 'local'}/{at.split or 'train'}:{digest(query)}-{whole:016x}",
            task=Task(id=task_id, group=task_id, kind="tool_use", statement=query),
            tools=_read_apis(turns[0][1]) if turns[0][0] == "system" else (),
            messages=messages,
            outcome=_find_outcome(messages),
            provenance=make_origin(
                self, at, split=at.split or "train", raw_id=row["id"], agent="ToolBench DFSDT", protocol="react"
            ),
            extra={k: v for k, v in row.items() if k not in ("id", "conversations") and v is not None},
        )

    def _make_messages(self, turns: list[Turn], chain: list[int]) -> tuple[Message, ...]:
        messages: list[Message] = []
        links = iter(chain)
        for index, (role, text) in enumerate(turns):
            retry = _is_retry(role, text)
            shared = not retry and self._owner.get(next(links), chain[-1]) != chain[-1]
            messages.append(_make_message(role, text, index, retry, shared))
        return tuple(messages)


def _read_query(row: dict[str, Any]) -> str:
    match = _STEP.match(row["id"]) if isinstance(row.get("id"), str) else None
    if match is None:
        raise RowError("missing_column", "id is not 'Step N: query'")
    return match.group(1).strip()


def _read_turns(row: dict[str, Any]) -> list[Turn]:
    """The turns of a row, whose conversation is two parallel lists or a list of pairs."""
    turns = decode_turns(get_path(row, "conversations"), "conversations")
    pairs = [(turn.get("from"), turn.get("value")) for turn in turns]
    for index, (role, text) in enumerate(pairs):
        if role not in _ROLES:
            raise RowError("unknown_role", f"turn {index} is from {role!r}")
        if text is not None and not isinstance(text, str):
            raise RowError("wrong_column_type", f"turn {index} has a value that is not text")
    if all(role != "assistant" for role, _ in pairs):
        raise RowError("empty_trace", "no assistant turn")
    return [(str(role), text or "") for role, text in pairs]


def _digest_prefixes(turns: list[Turn]) -> list[int]:
    """Digest of each prefix of the conversation, without retry turns."""
    chain: list[int] = []
    last = ""
    for role, text in turns:
        if not _is_retry(role, text):
            last = digest(last, role, text)
            chain.append(int(last, 16))
    return chain


def _digest_turns(turns: list[Turn]) -> int:
    return int(digest(*(part for turn in turns for part in turn)), 16)


def _rank_branch(turns: list[Turn]) -> int:
    """0 for a branch that ends in an answer, else 1."""
    last = next(text for role, text in reversed(turns) if role == "assistant")
    if "give_answer" not in last:
        return 1
    return 0 if _find_outcome((_make_message("assistant", last, 0, retry=False, shared=False),)).success else 1


def _is_retry(role: str, text: str) -> bool:
    return role == "user" and text.lstrip().startswith(RETRY)


def _make_message(role: str, text: str, index: int, retry: bool, shared: bool) -> Message:
    if role == "assistant":
        message = Message(
            role="assistant",
            author="model",
            tool_calls=tuple(REACT.parse(text)),
            train=False if shared else None,
            extra={"shared_with_sibling": True} if shared else {},
        )
    elif role == "function":
        failed = not text.startswith('{"error": ""') if text.startswith('{"error": "') else None
        message = Message(role="tool", author="environment", is_error=failed, raw_role=role)
    else:
        own = "system" if role == "system" else "user"
        message = Message(role=own, author="environment" if retry else "user")
    return msgspec.structs.replace(message, content=text, turn=index, raw_index=index)


def _find_outcome(messages: tuple[Message, ...]) -> Outcome:
    last = next((m for m in reversed(messages) if m.role == "assistant"), None)
    call = last.tool_calls[-1] if last is not None and last.tool_calls else None
    if call is None or call.name != "Finish":
        return Outcome(status="limit", success=None, exit_reason="no_finish")
    if call.error:
        return Outcome(status="limit", success=None, exit_reason="unreadable_finish")
    arguments: Any = msgspec.json.decode(call.arguments)
    answered = isinstance(arguments, dict) and arguments.get("return_type") == "give_answer"
    return Outcome(success=answered, exit_reason=str(arguments.get("return_type") or "Finish"))


def _read_apis(system: str) -> tuple[ToolSpec, ...]:
    """The API list at the end of the system prompt: a Python literal, not JSON."""
    _, found, listed = system.partition(_APIS)
    if not found:
        return ()
    try:
        return read_tool_specs(ast.literal_eval(parse_quietly(listed.strip(), "eval")))
    except PARSE_ERRORS:
        return ()


PLUGIN = ToolBench
