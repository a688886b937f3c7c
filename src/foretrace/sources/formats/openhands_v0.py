"""OpenHands trajectories, version 0: a list of events, or rows that hold one as `history` (the benchmarks' output).

An observation names the action that it answers (`cause`). Where the model called tools natively, an action says which
reply it is from, and what exactly was called (`tool_call_metadata`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from foretrace.core.digest import digest
from foretrace.core.trace import Failure, Outcome, ToolCall, ToolSpec, Trace
from foretrace.rows.base import Drop
from foretrace.rows.head import FileHead
from foretrace.sources.account import Account
from foretrace.sources.content_blocks import read_any_content
from foretrace.sources.conversation import Conversation, make_call, read_time
from foretrace.sources.file_traces import finish_trace, make_task
from foretrace.sources.json_values import (
    as_dict,
    as_dicts,
    as_list,
    as_text,
    read_objects,
    write_text,
)
from foretrace.sources.openai_messages import read_tool_specs

_IGNORED = frozenset({
    "change_agent_state", "agent_state_changed", "null", "recall", "pause", "resume", "stop", "start", "save",
    "condensation_request", "loop_detection", "server_ready", "download",
})  # fmt: skip
_ARGUMENTS_APART = frozenset({
    "thought", "blocking", "is_input", "hidden", "confirmation_state", "security_risk", "keep_prompt", "cwd",
    "kernel_init_code", "is_static", "include_extra", "impl_source", "wait_for_response", "image_urls",
    "translated_ipython_code",
})  # fmt: skip
_ROW = frozenset({"history", "instance_id", "metadata", "error", "instance", "instruction"})


class OpenHandsV0:
    """One trace for a list of events."""

    name = "openhands_v0"
    license: str | None = None

    def recognize(self, head: FileHead) -> str | None:
        """By the first event of the list, or of the first row's `history`."""
        first = head.first
        if _is_event(first):
            return "event 0 has source, and action or observation"
        history = next(iter(as_list(first.get("history"))), None)
        history = next(iter(history), None) if isinstance(history, list) else history  # pairs of events
        return "history[0] has source, and action or observation" if _is_event(history) else None

    def read_traces(self, path: Path, account: Account) -> Iterator[Trace | Drop]:
        """The conversation of the list, or that of each row."""
        events: list[dict[str, Any]] = []
        for row, value in enumerate(read_objects(path)):
            if isinstance(value, Drop):
                account.drop(value.reason)
                yield value
            elif isinstance(value.get("history"), list):
                pairs = as_list(value["history"])
                flat = [e for item in pairs for e in (item if isinstance(item, list) else [item])]
                yield _Reader(as_dicts(flat), value, account).read(path, row)
                for _ in range(len(flat) - len(as_dicts(flat))):
                    account.drop("not_an_object")
            else:
                events.append(value)
        if events:
            yield _Reader(events, {}, account).read(path, None)


def _is_event(value: Any) -> bool:
    event = as_dict(value)
    is_kind = isinstance(event.get("action"), str) or isinstance(event.get("observation"), str)
    return (
        is_kind and event.get("source") in ("user", "agent", "environment") and ("args" in event or "extras" in event)
    )


class _Reader:
    def __init__(self, events: list[dict[str, Any]], row: dict[str, Any], account: Account) -> None:
        self._events = events
        self._row = row
        self._account = account
        self._talk = Conversation(account)
        self._tools: tuple[ToolSpec, ...] = ()
        self._calls: dict[int | str, str] = {}
        """Ids of calls by the number of the event."""
        self._model = as_text(as_dict(as_dict(row.get("metadata")).get("llm_config")).get("model"))
        self._state = ""
        self._open = ""
        """Id of the call right before."""

    def read(self, path: Path, row: int | None) -> Trace | Drop:
        for index, event in enumerate(self._events):
            self._add(event, index)
        first = self._events[0] if self._events else {}
        instance = as_text(self._row.get("instance_id"))
        own_id = (
            f"{instance or 'conversation'}:{digest(write_text(first.get('timestamp')), write_text(first.get('args')))}"
        )
        key = f"openhands_v0@{own_id}"
        error = as_text(self._row.get("error"))
        is_error = bool(error) or self._state == "error"
        return finish_trace(
            self._talk,
            key=key,
            task=make_task(key, instance=instance, kind="swe" if instance else ""),
            path=path,
            raw_row=row,
            raw_id=instance,
            agent=as_text(as_dict(self._row.get("metadata")).get("agent_class")) or "OpenHands",
            model=self._model,
            created_at=as_text(first.get("timestamp")),
            met=Counter(str(e.get("action") or e.get("observation"))[:80] for e in self._events),
            tools=self._tools,
            outcome=_read_outcome(self._row, self._state, Failure(kind="runner", message=error) if is_error else None),
            extra={name: value for name, value in self._row.items() if name not in _ROW and value is not None},
        )

    def _add(self, event: dict[str, Any], index: int) -> None:
        kind = event.get("action", event.get("observation"))
        if not isinstance(kind, str):
            self._account.meet_unknown(f"event without action or observation: {'+'.join(sorted(event))}")
            return
        extras = as_dict(event.get("extras"))
        if kind == "agent_state_changed":
            self._state = as_text(extras.get("agent_state")) or self._state
        if kind in _IGNORED:
            self._account.ignore(kind)
            return
        self._account.use()
        at = read_time(event.get("timestamp"))
        if "action" in event:
            self._add_action(kind, event, index, at)
        else:
            self._add_observation(kind, event, index, at)

    def _add_action(self, kind: str, event: dict[str, Any], index: int, at: float | None) -> None:
        args, source = as_dict(event.get("args")), event.get("source")
        content = as_text(args.get("content")) or as_text(event.get("message"))
        if kind == "system":
            self._talk.add_system(as_text(args.get("content")), index)
            self._tools = self._tools or read_tool_specs(args.get("tools"))
        elif kind in ("condensation", "summarize"):
            summary = as_text(args.get("summary"))
            if summary:
                self._talk.add_user(summary, index, author="environment", raw_role=kind)
        elif kind == "message" and source != "agent":
            author = "user" if source == "user" else "environment"
            self._talk.add_user(content, index, author=author, at=at)
        elif kind == "message":
            self._talk.add_agent(index, text=content, at=at, reply=_find_reply(event))
        else:
            self._add_call(kind, event, args, index, at)

    def _add_call(self, kind: str, event: dict[str, Any], args: dict[str, Any], index: int, at: float | None) -> None:
        told = as_dict(event.get("tool_call_metadata"))
        response = as_dict(told.get("model_response"))
        message = as_dict(next(iter(as_dicts(response.get("choices"))), {}).get("message"))
        call_id = as_text(told.get("tool_call_id")) or f"event-{event.get('id', index)}"
        made = next((call for call in as_dicts(message.get("tool_calls")) if call.get("id") == call_id), None)
        function = as_dict(as_dict(made).get("function"))
        kept = {k: v for k, v in args.items() if k not in _ARGUMENTS_APART and v is not None and v != ""}
        name = told.get("function_name") or kind
        call: ToolCall = make_call(call_id, name, function.get("arguments") if function else kept)
        self._model = self._model or as_text(response.get("model"))
        self._open = call_id
        if (number := _get_number(event.get("id"))) is not None:
            self._calls[number] = call_id
        said, _ = read_any_content(message.get("content"))
        reply = _find_reply(event)
        if reply and self._talk.has_reply(reply):
            said = ""  # each action of a reply repeats all of it
        is_agent = event.get("source") == "agent"
        self._talk.add_agent(
            index, text=said if message else as_text(args.get("thought")), calls=[call], reply=reply, at=at,
            reasoning=None if not message or (reply and self._talk.has_reply(reply))
            else as_text(message.get("reasoning_content")) or None,
            author="model" if is_agent else "environment", raw_role=kind,
        )  # fmt: skip

    def _add_observation(self, kind: str, event: dict[str, Any], index: int, at: float | None) -> None:
        text, parts = read_any_content(event.get("content", event.get("message")))
        extras = as_dict(event.get("extras"))
        cause = _get_number(event.get("cause"))
        call_id = "" if cause is None else self._calls.get(cause, "")
        call_id = call_id or as_text(as_dict(event.get("tool_call_metadata")).get("tool_call_id"))
        if not call_id and "cause" not in event:
            call_id = self._open  # early versions numbered nothing: the result follows its action
        self._open = ""
        code = extras.get("exit_code", as_dict(extras.get("metadata")).get("exit_code"))
        failed = isinstance(code, int) and code > 0
        is_error = True if kind == "error" or failed else False if isinstance(code, int) and code == 0 else None
        if call_id:
            self._talk.add_result(call_id, text, index, at=at, is_error=is_error, parts=parts, raw_role=kind)
        elif text:
            self._talk.add_user(text, index, author="environment", at=at, parts=parts, raw_role=kind)


def _find_reply(event: dict[str, Any]) -> str | None:
    response = as_dict(as_dict(event.get("tool_call_metadata")).get("model_response"))
    return as_text(response.get("id")) or None


def _get_number(value: Any) -> int | str | None:
    return value if isinstance(value, (int, str)) else None


def _read_outcome(row: dict[str, Any], state: str, error: Failure | None) -> Outcome:
    reports = row, as_dict(row.get("report")), as_dict(as_dict(row.get("test_result")).get("report"))
    resolved = next((v for report in reports if isinstance(v := report.get("resolved"), bool)), None)
    reason = state or None
    is_limit = error is not None and "maximum iteration" in error.message.lower()
    if is_limit:
        return Outcome(status="limit", success=resolved, exit_reason="max_iterations")
    return Outcome(status="error" if error else "done", success=resolved, exit_reason=reason, error=error)


PLUGIN = OpenHandsV0
