"""Rows that hold a conversation, in any of many forms: OpenAI chat, ShareGPT, Anthropic blocks, Responses items,
transcripts, web steps. Task, outcome and tools by their usual columns, or by `columns`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from foretrace.core.digest import digest
from foretrace.core.errors import Setting, UsageError
from foretrace.core.trace import Outcome, Task, Trace
from foretrace.encodings.call_pattern import CallPattern
from foretrace.encodings.web_actions import WEB_VERBS
from foretrace.rows.base import Drop, Hub, RowRef
from foretrace.rows.head import MAX_HEAD, FileHead, read_partial
from foretrace.sources.base import UNCLEAR, RowError, make_origin, make_row_id
from foretrace.sources.json_values import as_number, read_success
from foretrace.sources.openai_messages import find_unknown_fields, read_tool_specs
from foretrace.sources.repositories import find_repository
from foretrace.sources.row_messages import add_times, find_task_text, make_messages, read_stamps
from foretrace.sources.row_turns import FoundTurns, find_rivals, find_turns, get_path, read_turns
from foretrace.sources.tool_schemas import SWE_AGENT, find_swe_agent_tools, type_arguments
from foretrace.sources.turn_items import flatten_turns, is_agent

_REWARDS = ("reward", "outcome.reward", "reward_info.reward")
_FLAGS = ("correct", "pass", "tests_passed")
"""Columns that say whether an attempt succeeded if they hold true or false; they may also hold an answer."""
FIELDS = {
    "messages": (),
    "role": (),
    "content": (),
    "tools": (
        *("tools", "available_tools", "functions", "tool_defs", "toolConfig.tools", "tool_config.tools"),
        *("functionDeclarations", "config.tools", "responses_create_params.tools", "request.tools"),
        *("request.toolConfig.tools", "request.config.tools"),
    ),
    "id": ("id", "traj_id", "trajectory_id", "session_id"),
    "instance": (
        *("instance", "instance_id", "task_id", "problem_id", "task_name", "task.id"),
        "responses_create_params.metadata.instance_id",
    ),
    "group": ("group", "repo", "repository", "task.group"),
    "success": (
        *("success", "resolved", "passed", "outcome.success", "is_correct", "meta.is_correct", "is_resolved"),
        *_FLAGS,
        *_REWARDS,
        "status",
    ),
    "reward": ("reward", "score", *_REWARDS[1:]),
    "model": (
        *("model", "model_name", "provenance.model", "response.model", "request.model"),
        *("metadata.model", "metadata.model_name"),
    ),
    "exit_reason": ("exit_status", "exit_reason"),
    "license": ("license", "licence"),
}
"""The fields that `columns` can map, each with the columns that are tried when it does not (a dot leads into an
object). Role and content are keys within a message."""
_COUNTER = re.compile(r"[A-Za-z]*[ _#:.-]?\d{1,9}")
"""An id that only counts rows: a number, with or without a word before it."""
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][-+]?\d+)?")
MAX_SHOWN_COLUMNS = 10
"""Most columns of a row that a message lists."""
_MAX_SHOWN_VALUE = 80


class Chat:
    """Calls are read from the messages' own fields, or else from the text, in the encoding that most turns use.

    Args:
        columns: Field -> the column that holds it, or a path into objects (`response.output`).
        license: License of the rows; overrides what they say themselves.
        call_pattern: Regular expression of a call in the text; its group `tool` is the name, others are arguments.
    """

    name = "chat"
    license: str | None = None
    hub: Hub | None = None
    is_general = True
    """Rows of many formats have this shape: a more specific source takes precedence."""

    def __init__(
        self, columns: dict[str, str] | None = None, license: str | None = None, call_pattern: str | None = None
    ) -> None:
        unknown = set(columns or {}) - set(FIELDS)
        if unknown:
            raise UsageError(
                Setting("columns"), f": unknown field {sorted(unknown)[0]!r}; fields are {', '.join(FIELDS)}"
            )
        self._columns = columns or {}
        self.license = license
        self._pattern = CallPattern(call_pattern) if call_pattern else None
        settings = [f"{field}={column}" for field, column in sorted(self._columns.items())]
        self.settings = " ".join([*settings, *([f"call_pattern={call_pattern}"] if call_pattern else [])])

    def recognize(self, head: FileHead) -> str | None:
        """By one or more columns that hold the conversation of an agent."""
        refused: str | None = None
        for row in head.rows:
            try:
                # JSON text may be cut off at the end of the head.
                found = find_turns({key: _read_list(value) or value for key, value in row.items()})
            except RowError as error:  # still a conversation: its Drop says why it cannot be read
                refused = refused or f"a conversation that is refused ({error.drop.reason})"
                continue
            if found is None:
                continue
            if len(head.start) >= MAX_HEAD or any(is_agent(item) for _, item in flatten_turns(found.turns)):
                return found.form
        return refused

    def to_trace(self, row: dict[str, Any], at: RowRef) -> Trace | Drop:
        unclear: dict[str, str] = {}
        found = self._find_turns(row, unclear)
        keys = self._columns.get("role"), self._columns.get("content")
        messages = make_messages(flatten_turns(found.turns, keys), self._pattern)
        if not any(m.role == "assistant" for m in messages):
            return Drop("empty_trace", "no assistant message")
        spans = row.get("spans")
        if "mask" in row and spans and sum(end - start for start, end in spans) < len(messages[-1].content):
            remedy = ("export the traces with ", Setting("format", "jsonl"))
            return Drop("results_within_a_turn", "an exported row (inline) with results in the agent's message", remedy)
        messages = add_times(messages, read_stamps(found.turns))
        fields, used = self._read_fields(row, unclear)
        tools = fields.get("tools") or read_tool_specs(found.tools)
        known = () if tools else find_swe_agent_tools(messages)
        tools = tools or known
        raw_id = fields.get("id")
        own = make_row_id(row) if raw_id is None else raw_id
        said = [m for m in messages if m.role == "assistant"]
        is_web_step = len(said) == 1 and any(c.span is not None and c.name in WEB_VERBS for c in said[0].tool_calls)
        if raw_id is not None and (_COUNTER.fullmatch(raw_id) or is_web_step):
            # Such an id counts the rows of a file, or names the task that each row is one step of.
            own = f"{raw_id}-{digest(make_row_id(row))}"
        instance = fields.get("instance") or f"chat:{digest(find_task_text(messages) or own)}"
        # A number is unique within its dataset only, which the system prompt, or else the question, stands for.
        task_id = f"{instance}-{digest(messages[0].content)}" if instance.isdecimal() else instance
        return Trace(
            key=f"{self.name}@{at.revision or 'local'}/{at.split or 'train'}:{own}",
            task=Task(id=task_id, group=fields.get("group") or find_repository(instance), kind="chat"),
            tools=tools,
            messages=type_arguments(messages, tools),
            outcome=Outcome(
                success=fields.get("success"), reward=fields.get("reward"), exit_reason=fields.get("exit_reason")
            ),
            provenance=make_origin(
                self,
                at,
                split=at.split or "train",
                raw_id=raw_id,
                license=self.license or fields.get("license"),
                model=fields.get("model"),
                transforms=(SWE_AGENT,) if known else (),
            ),
            extra=find_unknown_fields(row, found.columns | used)
            | (found.rest or {})
            | ({UNCLEAR: unclear} if unclear else {}),
        )

    def _find_turns(self, row: dict[str, Any], unclear: dict[str, str]) -> FoundTurns:
        for field, column in self._columns.items():
            if field not in ("role", "content", "messages") and not _has_path(row, column):
                unclear[field] = f"there is no column {column}"
        column = self._columns.get("messages")
        if column is None:
            if (found := find_turns(row)) is not None:
                return found
            column = next((c for c in ("messages", "conversations", "conversation") if c in row), None)
        if column is not None and _has_path(row, column):
            return read_turns(row, column)  # raises an error that says what is wrong
        if column is None and (rivals := find_rivals(row)):
            message = f"several columns hold a conversation: {', '.join(rivals[:MAX_SHOWN_COLUMNS])}"
            raise RowError("several_conversations", message, "name one: ", Setting("columns", {"messages": rivals[0]}))
        there = ", ".join(sorted(row)[:MAX_SHOWN_COLUMNS]) + (", ..." if len(row) > MAX_SHOWN_COLUMNS else "")
        remedy = ("name the one that holds the messages: ", Setting("columns", {"messages": "COLUMN"}))
        raise RowError("missing_column", f"there is no column {column or 'messages'}; the row has {there}", *remedy)

    def _read_fields(self, row: dict[str, Any], unclear: dict[str, str]) -> tuple[dict[str, Any], set[str]]:
        """The fields of the row, and the columns they come from; a column of the wrong type stays in `extra`. A success
        that is not a clear yes or no is noted, except in a column that may hold anything: a reward, or `status` unless
        it was named."""
        unnoted = _REWARDS if "success" in self._columns else (*_REWARDS, "status")
        fields: dict[str, Any] = {}
        used: set[str] = set()
        for field, read in _READERS.items():
            column = self._find_column(field, row)
            if column is None or (field == "license" and self.license is not None):
                continue
            raw = get_path(row, column)
            if (value := read(raw)) is not None:
                fields[field] = value
                used.add(column)
            elif field == "success" and raw not in (None, "") and raw == raw and column not in unnoted:
                unclear[field] = f"{column} is {raw!r}"[:_MAX_SHOWN_VALUE]
        return fields, used

    def _find_column(self, field: str, row: dict[str, Any]) -> str | None:
        named = self._columns.get(field)
        for column in FIELDS[field] if named is None else (named,):
            if _has_path(row, column) and (named or _may_say(column, row)):
                return column
        return None


def _may_say(column: str, row: dict[str, Any]) -> bool:
    """Whether the value has a type that says something: a number in `status` is a code, in a flag a count."""
    if column == "status":
        return isinstance(row[column], (str, bool))
    return column not in _FLAGS or isinstance(row[column], bool)


def _read_text(value: Any) -> str | None:
    return str(value) if isinstance(value, (str, int)) and not isinstance(value, bool) and value != "" else None


_READERS: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("id", "instance", "group", "model", "exit_reason"), _read_text),
    "tools": lambda value: read_tool_specs(value) or None,
    "success": read_success,
    "reward": lambda value: as_number(float(value) if isinstance(value, str) and _NUMBER.fullmatch(value) else value),
    "license": lambda value: value if isinstance(value, str) and value.strip() else None,
}
"""How the fields of a row outside the conversation are read; `None` for a value that the field cannot hold."""


def _read_list(value: Any) -> list[Any]:
    """A list written as JSON text, which may be cut off; empty for anything else."""
    is_list = isinstance(value, str) and value.lstrip().startswith("[")
    found = read_partial(value[:MAX_HEAD].encode(errors="replace")) if is_list else None
    return found if isinstance(found, list) else []


def _has_path(row: dict[str, Any], path: str) -> bool:
    if path in row:
        return True
    if "." not in path or path.partition(".")[0] not in row:
        return False
    try:
        return get_path(row, path) is not None
    except RowError:
        return False


PLUGIN = Chat
