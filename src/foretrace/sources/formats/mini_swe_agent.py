"""mini-swe-agent's `.traj.json`, versions 1 and 2: chat messages, with what ran in `extra`.

An action is a shell command: in a code fence, a call of the tool `bash`, or an item of the Responses API. The results
of one reply share one stamp, so the last of them gets the time of all. The command that submits has no result: its
output is the submission.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from foretrace.core.digest import digest
from foretrace.core.trace import Outcome, Sampled, Status, ToolCall, Trace, Usage
from foretrace.encodings.json_arguments import encode_json
from foretrace.rows.base import Drop
from foretrace.rows.head import FileHead
from foretrace.sources.account import Account
from foretrace.sources.content_blocks import read_any_content
from foretrace.sources.conversation import Conversation, make_call, read_time
from foretrace.sources.file_traces import RecordFiles, finish_trace, make_task, read_usage
from foretrace.sources.json_values import as_dict, as_dicts, get_dict, get_dicts, get_list, get_text, write_sorted
from foretrace.sources.openai_messages import find_unknown_fields, read_native_calls
from foretrace.sources.turn_items import flatten_turns

_FENCE = re.compile(r"```(?:mswea_bash_command|bash|sh)[ \t]*\n(.*?)\n```", re.DOTALL)
_MESSAGE = frozenset({
    "role", "content", "extra", "tool_calls", "tool_call_id", "reasoning_content", "type", "call_id", "output",
    "object", "timestamp", "function_call", "provider_specific_fields",
})  # fmt: skip
_EXTRA = frozenset({"actions", "timestamp", "response", "raw_output"})
_DOCUMENT = frozenset({"info", "messages", "trajectory_format", "instance_id"})
_LIMITS = frozenset({"LimitsExceeded", "TimeExceeded", "StepLimitExceeded", "CostLimitExceeded"})


class MiniSweAgent(RecordFiles):
    """One file is one attempt. Its success is unknown, since the tests of the instance ran elsewhere."""

    name = "mini_swe_agent"

    def recognize(self, head: FileHead) -> str | None:
        """By `trajectory_format`, which is at the end, or by the fields of `info`."""
        document = head.first
        version = get_text(document, "trajectory_format")
        if version.startswith("mini-swe-agent"):
            return f"trajectory_format is {version[:40]}"
        info = get_dict(document, "info")
        is_mini = "mini_version" in info or {"exit_status", "submission", "model_stats"} <= info.keys()
        return "info has what mini-swe-agent writes" if is_mini and "messages" in document else None

    def read_record(self, record: dict[str, Any], number: int, path: Path, account: Account) -> Iterable[Trace | Drop]:
        return [_Talk(record, account).read(path)]


class _Talk(Conversation):
    def __init__(self, document: dict[str, Any], account: Account) -> None:
        super().__init__(account)
        self._document = document
        self._messages = get_list(document, "messages")
        self._open: list[str] = []
        """Ids of the last reply's calls that wait for a result."""
        self._submission: str | None = None

    def read(self, path: Path) -> Trace | Drop:
        info = get_dict(self._document, "info")
        for index, message in self.account.drop_unread(self._messages):
            self._add_message(message, index)
        config = get_dict(info, "config")
        ended = get_text(info, "exit_status")
        status: Status = "done" if ended in ("Submitted", "") else "limit" if ended in _LIMITS else "error"
        version = get_text(info, "mini_version")
        instance = get_text(self._document, "instance_id") or get_text(info, "instance_id")
        asked = next((m for m in as_dicts(self._messages) if m.get("role") == "user"), {})
        task_id = instance or digest(write_sorted(asked.get("content")))
        first = next((m for m in as_dicts(self._messages) if _is_reply(m)), {})
        extra = {**find_unknown_fields(self._document, _DOCUMENT), "info": info}
        return finish_trace(
            self,
            key=f"mini_swe_agent@{task_id}:{digest(write_sorted(first))}",
            task=make_task("", instance=task_id, kind="swe" if instance else ""),
            path=path,
            raw_id=instance,
            agent="mini-swe-agent",
            model=get_text(get_dict(config, "model"), "model_name"),
            tool_versions={"mini-swe-agent": version},
            outcome=Outcome(status=status, exit_reason=ended or None),
            extra=extra if self._submission is None else {**extra, "submission": self._submission},
        )

    def _add_message(self, message: dict[str, Any], index: int) -> None:
        role, extra = message.get("role"), get_dict(message, "extra")
        at = read_time(extra.get("timestamp", message.get("timestamp")))
        kind = message.get("type") if role is None else role
        self.types[f"{kind} messages"] += 1
        text, parts = read_any_content(message.get("content"))
        kept = {**find_unknown_fields(message, _MESSAGE), **find_unknown_fields(extra, _EXTRA)}
        is_reply, is_result = _is_reply(message), kind in ("tool", "function_call_output")
        if not is_reply and not is_result and role not in ("exit", "system", "user"):
            self.account.meet_unknown(f"message of {kind!r}")
            return
        self.account.use()
        if is_reply:
            self._add_reply(message, index, at, text=text, parts=parts, extra=kept)
        elif role == "exit":
            self._submission = text
        elif role == "system":
            self.add_system(text, index, parts=parts, extra=kept)
        elif is_result:
            text = text or read_any_content(message.get("output"))[0]
            self._add_result(get_text(message, "tool_call_id", "call_id"), text, message, index, at, extra=kept)
        elif self._open and "interrupt_type" not in extra:
            self._add_result(self._open[0], text, message, index, at, parts=parts, extra=kept)
        else:
            author = "environment" if self.has_agent else "user"
            self.add_user(text, index, author=author, at=at, parts=parts, extra=kept)

    def _add_reply(self, message: dict[str, Any], index: int, at: float | None, *, text: str, **more: Any) -> None:
        reasoning = get_text(message, "reasoning_content") or None
        calls = list(read_native_calls(message.get("tool_calls"), index))
        if message.get("object") == "response":
            text, reasoning, calls = _read_items(get_dicts(message, "output"), index)
        calls = calls or _find_commands(text, get_dicts(get_dict(message, "extra"), "actions"), index)
        self._open = [call.id for call in calls]
        sampled = _read_sampled(message)
        self.add_agent(index, text=text, reasoning=reasoning, calls=calls, at=at, sampled=sampled, **more)

    def _add_result(
        self, call_id: str, text: str, message: dict[str, Any], index: int, at: float | None, **more: Any
    ) -> None:
        code, role = get_dict(message, "extra").get("returncode"), get_text(message, "role")
        following = as_dict(self._messages[index + 1]) if index + 1 < len(self._messages) else {}
        stamp = get_dict(following, "extra").get("timestamp", following.get("timestamp"))
        # The next message may be another result of the same reply, stamped at the same time.
        is_shared = at is not None and read_time(stamp) == at and not _is_reply(following)
        self.add_result(
            call_id,
            text,
            index,
            at=None if is_shared else at,
            is_error=code != 0 if isinstance(code, int) else None,
            raw_role=None if role == "tool" else role or None,
            **more,
        )
        if call_id in self._open:
            self._open.remove(call_id)


def _is_reply(message: dict[str, Any]) -> bool:
    return message.get("role") == "assistant" or message.get("object") == "response"


def _find_commands(text: str, actions: list[dict[str, Any]], index: int) -> list[ToolCall]:
    """The commands that the runner found; version 1 did not record them, so the text is searched for them."""
    commands = [(get_text(action, "tool_call_id"), get_text(action, "command")) for action in actions]
    if not actions:
        commands = [("", match[1]) for match in _FENCE.finditer(text)]
    calls = list[ToolCall]()
    for number, (call_id, command) in enumerate(commands):
        span = next((m.span() for m in _FENCE.finditer(text) if m[1].strip() == command.strip()), None)
        made = make_call(call_id or f"{index}.{number}", "bash", encode_json({"command": command}))
        calls.append(msgspec.structs.replace(made, span=span))
    return calls


def _read_items(items: list[dict[str, Any]], index: int) -> tuple[str, str | None, list[ToolCall]]:
    """Text, reasoning and calls of a reply of the Responses API."""
    messages = [message for _, message in flatten_turns((None, item) for item in items)]
    texts = [read_any_content(message.get("content"))[0] for message in messages]
    thoughts = [get_text(message, "reasoning") for message in messages]
    calls = [call for message in messages for call in read_native_calls(message.get("tool_calls"), index)]
    return "\n\n".join(filter(None, texts)), "\n\n".join(filter(None, thoughts)) or None, calls


def _read_sampled(message: dict[str, Any]) -> Sampled | None:
    response = get_dict(get_dict(message, "extra"), "response")
    held = get_dict(response, "usage")
    usage = read_usage(held) or read_usage(held, "input_tokens", "output_tokens")
    reason = get_text(next(iter(get_dicts(response, "choices")), {}), "finish_reason") or None
    return None if usage is None and reason is None else Sampled(finish_reason=reason, usage=usage or Usage())


PLUGIN = MiniSweAgent
