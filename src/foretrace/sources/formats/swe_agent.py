"""SWE-agent's `.traj` files: what the model saw (`history`), what ran and how long (`trajectory`), the end (`info`).

Demonstrations have the author `demo`: they were shown to the model, not made by it. If there were several attempts at
an instance, each is a trace; the copy of the chosen one at the top is not read. Only actions are timed, not the model.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from foretrace.core.digest import digest
from foretrace.core.trace import Author, Outcome, Status, ToolCall, Trace
from foretrace.encodings.fence import FENCE
from foretrace.encodings.json_arguments import encode_json
from foretrace.encodings.parameter_tags import FUNCTION_XML
from foretrace.rows.base import Drop
from foretrace.rows.head import FileHead
from foretrace.sources.account import Account
from foretrace.sources.base import RowError
from foretrace.sources.content_blocks import read_any_content
from foretrace.sources.conversation import Conversation
from foretrace.sources.file_traces import RecordFiles, finish_trace, make_task
from foretrace.sources.json_values import as_number, decode_json, get_dict, get_dicts, get_list, get_text, write_sorted
from foretrace.sources.openai_messages import find_unknown_fields, read_answered_ids, read_native_calls

_MARKERS = ("OBSERVATION:\n", "Observation: ", "Observation:\n")
_LIMIT = re.compile(r"^Exit due to [\w ]+\s*$")
_INSTANCE = re.compile(r"[\w.-]+__[\w.-]+-\d+\Z|\w[\w.-]*__[\w.-]+\.[0-9a-f]{6,}[\w.]*\Z")
_HISTORY = frozenset({
    "role", "content", "agent", "is_demo", "thought", "action", "tool_calls", "tool_call_ids", "message_type",
    "thinking_blocks", "cache_control", "tags",
})  # fmt: skip
_DOCUMENT = frozenset({"trajectory", "history", "info", "attempts", "replay_config"})
_NAMED_ENDS: dict[str, Status] = {"exit_cost": "limit", "exit_context": "limit", "exit_total_execution_time": "limit",
                                  "exit_command_timeout": "limit", "early_exit": "cancelled"}  # fmt: skip


class SweAgent(RecordFiles):
    """One trace for each attempt. Its success is unknown, since the tests of the instance ran elsewhere."""

    name = "swe_agent"

    def recognize(self, head: FileHead) -> str | None:
        """By the first step of `trajectory`, or the first message of `history`: a demonstration has only that."""
        document = head.first
        attempts = get_dicts(document, "attempts")
        step = next(iter(get_dicts(attempts[0] if attempts else document, "trajectory")), None)
        is_step = step is not None and {"action", "observation", "response"} <= step.keys()
        if is_step:
            return "trajectory[0] has action, observation and response"
        message = next(iter(get_dicts(document, "history")), {})
        return "history[0] has role, content and agent" if {"role", "content", "agent"} <= message.keys() else None

    def read_record(self, record: dict[str, Any], number: int, path: Path, account: Account) -> Iterable[Trace | Drop]:
        for attempt in get_dicts(record, "attempts") or [record]:
            try:
                yield _read_attempt(attempt, record, path, number, account)
            except RowError as error:
                yield error.drop


def _read_attempt(
    attempt: dict[str, Any], document: dict[str, Any], path: Path, row: int, account: Account
) -> Trace | Drop:
    history = get_list(attempt, "history")
    steps = get_dicts(attempt, "trajectory")
    info = get_dict(attempt, "info")
    config = decode_json(attempt.get("replay_config", document.get("replay_config")))
    calls = _read_calls(history)
    talk = Conversation(account)
    talk.types.update(f"{message.get('role')} messages" for message in get_dicts(attempt, "history"))
    _add_history(talk, history, calls, _match_times(history, steps, account))
    instance = get_text(get_dict(config, "problem_statement"), "id") or _find_instance(path)
    begin = next((index for index, message in enumerate(history) if _is_turn(message)), len(history))
    model = get_text(get_dict(get_dict(config, "agent"), "model"), "name")
    own_id = digest(write_sorted(history[: begin + 1]), write_sorted(steps[:1]))
    key = f"swe_agent@{instance or 'unknown'}:{own_id}"
    version = get_text(info, "swe_agent_version")
    return finish_trace(
        talk,
        key=key,
        task=make_task(key, instance=instance, kind="swe"),
        path=path,
        raw_row=row,
        raw_id=instance,
        agent="SWE-agent",
        model=model,
        tool_versions={"SWE-agent": version},
        outcome=_read_outcome(info),
        extra={**find_unknown_fields(attempt, _DOCUMENT), "info": info} if info else None,
    )


def _is_turn(message: Any) -> bool:
    return isinstance(message, dict) and message.get("role") == "assistant" and message.get("is_demo") is not True


def _match_times(history: list[Any], steps: list[dict[str, Any]], account: Account) -> dict[int, float]:
    """Seconds that the action of each turn took, by the turn's index in the history. Replies that could not be parsed
    and were requested again are steps, but not in the history."""
    found: dict[int, float] = {}
    at = 0
    for index, message in enumerate(history):
        if not _is_turn(message):
            continue
        content = read_any_content(message.get("content"))[0]
        match = next((n for n in range(at, len(steps)) if steps[n].get("response") == content), None)
        if match is None:
            continue
        account.note("replies that were asked for again", match - at)
        seconds = as_number(steps[match].get("execution_time"))
        if seconds is not None and seconds > 0:
            found[index] = seconds
        at = match + 1
    return found


def _read_calls(history: list[Any]) -> dict[int, list[ToolCall]]:
    """Calls of the agent's messages, by index: native calls, or else those in the text."""
    found: dict[int, list[ToolCall]] = {}
    for index, message in enumerate(history):
        if isinstance(message, dict) and message.get("role") == "assistant":
            calls = list(read_native_calls(message.get("tool_calls"), index))
            text = read_any_content(message.get("content"))[0]
            found[index] = calls or _find_text_calls(text, get_text(message, "action").strip())
    return found


def _find_text_calls(text: str, action: str) -> list[ToolCall]:
    calls = FUNCTION_XML.parse(text) if "<function=" in text else FENCE.parse(text)
    if calls or not action or _LIMIT.match(text):
        return calls
    start = text.rfind(action)
    span = (start, start + len(action)) if start >= 0 else None
    return [ToolCall(name="bash", arguments=encode_json({"command": action}), span=span)]


def _add_history(
    talk: Conversation, history: list[Any], calls: dict[int, list[ToolCall]], times: dict[int, float]
) -> None:
    begun = False
    open_ids: list[str] = []
    seconds: float | None = None
    for index, message in talk.account.drop_unread(history):
        role = message.get("role")
        if role not in ("system", "user", "assistant", "tool"):
            talk.account.meet_unknown(f"message of {role!r}")
            continue
        talk.account.use()
        is_demo = message.get("is_demo") is True
        text, parts = read_any_content(message.get("content"))
        more: dict[str, Any] = {"parts": parts, "extra": find_unknown_fields(message, _HISTORY)}
        if role == "assistant":
            made = [c if c.id else msgspec.structs.replace(c, id=f"{index}.{n}") for n, c in enumerate(calls[index])]
            ended = not made and _LIMIT.match(text.strip()) is not None
            author: Author = "demo" if is_demo else "environment" if ended else "model"
            more |= {"train": False} if ended else {}
            thoughts = (get_text(block, "thinking") for block in get_dicts(message, "thinking_blocks"))
            reasoning = "\n\n".join(filter(None, thoughts)) or None
            talk.add_agent(index, text=text, reasoning=reasoning, calls=made, author=author, **more)
            begun = begun or not is_demo
            open_ids, seconds = [call.id for call in made], times.get(index)
        elif role == "system":
            talk.add_system(text, index, **more)
        elif role == "tool" or ((begun or is_demo) and open_ids):
            ids = [i for i in read_answered_ids(message) if talk.has_call(i)] or open_ids
            marker = next((m for m in _MARKERS if text.startswith(m)), "")
            more |= {"prefix": marker, "raw_role": role if role != "tool" else None}
            talk.add_result(ids[0] if ids else "", text[len(marker) :], index, seconds=seconds, **more)
            open_ids, seconds = [i for i in open_ids if i not in ids[:1]] if role == "tool" else [], None
        else:
            talk.add_user(text, index, author="demo" if is_demo else "environment" if begun else "user", **more)


def _read_outcome(info: dict[str, Any]) -> Outcome:
    ended = get_text(info, "exit_status")
    cause = ended.partition("(")[2].rstrip(") ") if ended.startswith("submitted") else ended
    status: Status = "done" if not cause else _NAMED_ENDS.get(cause, "error")
    return Outcome(status=status, exit_reason=ended or None)


def _find_instance(path: Path) -> str:
    """The instance, which is the name that SWE-agent gives the file; empty if the name is not an instance id."""
    stem = path.name.removesuffix(".gz").removesuffix(".zst").removesuffix(".json").removesuffix(".traj")
    return stem if _INSTANCE.fullmatch(stem) else ""


PLUGIN = SweAgent
