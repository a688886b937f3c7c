"""OpenHands conversations, version 1 (the software agent SDK): a folder with a file per event, or a file of lines.

Actions of one model reply share `llm_response_id`. Stamps are local times without a zone; they are taken as they are,
and their differences are right. If a conversation was forked (`parent_id`), the branch that ends last is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from foretrace.core.digest import digest
from foretrace.core.trace import Failure, Outcome, Sampled, Status, ToolSpec, Trace
from foretrace.rows.base import Drop
from foretrace.rows.files import read_document
from foretrace.rows.head import FileHead, read_objects
from foretrace.sources.account import Account
from foretrace.sources.content_blocks import read_any_content
from foretrace.sources.conversation import Conversation, make_call, read_time
from foretrace.sources.file_traces import finish_trace, make_task
from foretrace.sources.json_values import as_dict, as_dicts, as_token_ids, get_bool, get_dict, get_dicts, get_text
from foretrace.sources.openai_messages import read_tool_specs
from foretrace.sources.sessions import find_main_line

_FILE = re.compile(r"event-(\d+)-[\w-]*\.json")
_RESULTS = frozenset({"ObservationEvent", "UserRejectObservation", "AgentErrorEvent"})
_SPOKEN = frozenset({"MessageEvent", "ActionEvent", "SystemPromptEvent"}) | _RESULTS
_IGNORED = frozenset({
    "ConversationStateUpdateEvent", "PauseEvent", "HookExecutionEvent", "LLMCompletionLogEvent", "StreamingDeltaEvent",
    "CondensationRequest", "SecurityAnalyzerEvent", "WarningEvent", "InterruptEvent",
})  # fmt: skip
_ENDS = frozenset({"ConversationErrorEvent", "ConversationIterationLimitEvent"})
_SUMMARIES = frozenset({"Condensation", "CondensationSummaryEvent"})
_KNOWN = _SPOKEN | _IGNORED | _ENDS | _SUMMARIES | {"TokenEvent"}
_STATUS: dict[str, Status] = {"error": "error", "stuck": "error", "paused": "cancelled"}


class OpenHands:
    """One conversation per folder or file."""

    name = "openhands"
    license: str | None = None

    def recognize(self, head: FileHead) -> str | None:
        """By the names in a folder, or by `kind` and `source` of the first event."""
        if head.is_folder:
            if {"base_state.json", "events/"} <= set(head.names):
                return "holds base_state.json and events/"
            return "holds event-*.json files" if any(_FILE.fullmatch(name) for name in head.names[:5]) else None
        first = head.first
        if _is_old(first):
            return "events of OpenHands before version 1"
        is_event = get_text(first, "kind") in _KNOWN and {"source", "id"} <= first.keys()
        return f"line 1 is a {first['kind']}" if is_event else None

    def read_traces(self, path: Path, account: Account) -> Iterator[Trace | Drop]:
        events = [e for _, e in account.drop_unread(_read_folder(path) if path.is_dir() else read_objects(path))]
        if events and _is_old(events[0]):
            account.ignore("event of version 0", len(events))
            yield Drop("old_version", f"{path.name}: events of OpenHands before version 1; import its messages as chat")
        elif events:
            state = path / "base_state.json"
            held = as_dict(read_document(state)) if state.is_file() else {}
            yield _Talk(_find_branch(events, account), held, account).read(path)

    def list_companions(self, path: Path) -> Iterable[Path]:
        folders = (path, path / "events") if path.is_dir() else ()
        return [file for folder in folders if folder.is_dir() for file in sorted(folder.iterdir()) if file.is_file()]


def _is_old(event: dict[str, Any]) -> bool:
    return "kind" not in event and bool({"action", "observation"} & event.keys() and {"args", "extras"} & event.keys())


def _read_folder(path: Path) -> Iterator[Any]:
    folder = path / "events" if (path / "events").is_dir() else path
    numbered = [(int(match[1]), file) for file in folder.iterdir() if (match := _FILE.fullmatch(file.name))]
    yield from (read_document(file) for _, file in sorted(numbered))


def _find_branch(events: list[dict[str, Any]], account: Account) -> list[dict[str, Any]]:
    """The events of the branch that ends last; events outside the tree belong to all branches."""
    parents = {get_text(event, "id"): parent for event in events if (parent := get_text(event, "parent_id"))}
    last = next((name for event in reversed(events) if (name := get_text(event, "id")) in parents), "")
    left = (parents.keys() | set(parents.values())) - find_main_line(parents, [last])
    branch = [event for event in events if get_text(event, "id") not in left]
    if len(branch) < len(events):
        account.ignore("event of another branch", len(events) - len(branch))
    return branch


class _Talk(Conversation):
    def __init__(self, events: list[dict[str, Any]], state: dict[str, Any], account: Account) -> None:
        super().__init__(account)
        self._events = events
        self._state = state
        self._tools: tuple[ToolSpec, ...] = ()
        self._ended = get_text(state, "execution_status")
        self._error: Failure | None = None
        self._status: Status | None = None
        self._sampled = _match_tokens(events)
        self._model = get_text(get_dict(get_dict(state, "agent"), "llm"), "model")

    def read(self, path: Path) -> Trace | Drop:
        self.use(self._state, count=0)
        for index, event in enumerate(self._events):
            self.types[str(event.get("kind"))[:80]] += 1
            self._add_event(event, index)
        first = self._events[0]
        states = (get_text(e.get("value"), "id") for e in self._events[:3] if e.get("key") == "full_state")
        own_id = get_text(self._state, "id") or next(states, "") or get_text(first, "id")
        key = f"openhands@{own_id or digest(str(first)[:4096])}"
        status = self._status or _STATUS.get(self._ended, "done")
        return finish_trace(
            self,
            key=key,
            task=make_task(key),
            path=path,
            raw_id=own_id,
            agent="OpenHands",
            model=self._model,
            created_at=get_text(first, "timestamp"),
            tools=self._tools,
            outcome=Outcome(status=status, exit_reason=self._ended or None, error=self._error),
        )

    def _add_event(self, event: dict[str, Any], index: int) -> None:
        kind, at = get_text(event, "kind"), read_time(event.get("timestamp"))
        if kind in _KNOWN - _IGNORED - {"TokenEvent"}:
            self.use(event, "observation" if kind in _RESULTS else "")
        if kind == "TokenEvent":
            self.account.use()
        elif kind in _IGNORED:
            self._note_state(event)
            self.account.ignore(kind)
        elif kind in _ENDS:
            code = get_text(event, "code") or kind
            is_limit = code in ("ConversationIterationLimitEvent", "MaxIterationsReached")
            self._status = "limit" if is_limit else "error"
            self._error = None if is_limit else Failure(kind=code, message=get_text(event, "detail"))
        elif kind in _SUMMARIES:
            if summary := get_text(event, "summary"):
                self.add_user(summary, index, author="environment", raw_role=kind)
        elif kind == "SystemPromptEvent":
            pieces = (get_text(event.get(name), "text") for name in ("system_prompt", "dynamic_context"))
            self.add_system("\n\n".join(filter(None, pieces)), index)
            self._tools = self._tools or _read_tools(event.get("tools"))
        elif kind == "MessageEvent":
            self._add_message(event, index, at)
        elif kind == "ActionEvent":
            self._add_action(event, index, at)
        elif kind in _RESULTS:
            self._add_result(kind, event, index, at)
        else:
            self.account.meet_unknown(event.get("kind"))
        if kind in ("MessageEvent", "ObservationEvent"):
            added, _ = read_any_content(event.get("extended_content") or [])
            if added:
                self.add_user(added, index, author="environment", at=at)

    def _note_state(self, event: dict[str, Any]) -> None:
        value = event.get("value")
        if event.get("key") == "execution_status" and isinstance(value, str):
            self._ended = value
        if not get_dict(self._state, "agent"):
            used = get_dict(get_dict(value, "usage_to_metrics"), "default")
            self._model = get_text(used, "model_name") or self._model

    def _add_message(self, event: dict[str, Any], index: int, at: float | None) -> None:
        message = get_dict(event, "llm_message")
        text, parts = read_any_content(message.get("content"))
        if event.get("source") == "agent":
            reasoning = get_text(message, "reasoning_content") or None
            self._add_reply(event, index, at, text=text, reasoning=reasoning, parts=parts)
        elif message.get("role") == "system":
            self.add_system(text, index, parts=parts)
        else:
            author = "user" if event.get("source") == "user" else "environment"
            self.add_user(text, index, author=author, at=at, parts=parts)

    def _add_action(self, event: dict[str, Any], index: int, at: float | None) -> None:
        text, parts = read_any_content(event.get("thought") or [])
        thoughts = (get_text(block, "thinking") for block in get_dicts(event, "thinking_blocks"))
        reasoning = get_text(event, "reasoning_content") or "\n\n".join(filter(None, thoughts)) or None
        raw = get_dict(event, "tool_call")
        function = get_dict(raw, "function") or raw
        action = {name: value for name, value in get_dict(event, "action").items() if name != "kind"}
        call = make_call(
            event.get("tool_call_id") or raw.get("id"),
            event.get("tool_name") or function.get("name"),
            function.get("arguments", action),
        )
        self._add_reply(event, index, at, text=text, reasoning=reasoning, parts=parts, calls=[call])

    def _add_reply(self, event: dict[str, Any], index: int, at: float | None, **more: Any) -> None:
        reply = get_text(event, "llm_response_id") or None
        self.add_agent(index, reply=reply, at=at, sampled=self._sampled.get(index), **more)

    def _add_result(self, kind: str, event: dict[str, Any], index: int, at: float | None) -> None:
        call_id = get_text(event, "tool_call_id")
        if kind == "ObservationEvent":
            observation = get_dict(event, "observation")
            text, parts = read_any_content(observation.get("content", observation.get("output")))
            is_error = get_bool(observation, "is_error")
            self.add_result(call_id, text, index, is_error=is_error, at=at, parts=parts)
            return
        text = get_text(event, "error" if kind == "AgentErrorEvent" else "rejection_reason")
        at = at if kind == "AgentErrorEvent" else None  # a person was asked: the time is theirs
        self.add_result(call_id, text, index, is_error=True, at=at, raw_role=kind)


def _match_tokens(events: list[dict[str, Any]]) -> dict[int, Sampled]:
    """Token ids by the index of the first event of their reply; they are recorded after it."""
    found: dict[int, Sampled] = {}
    name, first = "", -1
    for index, event in enumerate(events):
        kind = event.get("kind")
        if kind == "ActionEvent" or (kind == "MessageEvent" and event.get("source") == "agent"):
            own = get_text(event, "llm_response_id")
            if not own or own != name:
                name, first = own, index
        elif kind == "TokenEvent" and first >= 0 and (ids := as_token_ids(event.get("response_token_ids"))):
            prompt = as_token_ids(event.get("prompt_token_ids"))
            found[first] = Sampled(token_ids=ids, prompt_token_ids=prompt or None, exact="token")
    return found


def _read_tools(value: Any) -> tuple[ToolSpec, ...]:
    """Tool definitions; some versions have a class instead of a name, as `TerminalTool` for `terminal`."""
    tools: list[dict[str, Any]] = []
    for tool in as_dicts(value):
        kind = re.sub(r"(?<!^)(?=[A-Z])", "_", get_text(tool, "kind")).lower().removesuffix("_tool")
        if get_text(tool, "name") or get_dict(tool, "function"):
            tools.append(tool)
        elif kind:
            tools.append({**tool, "name": kind})
    return read_tool_specs(tools)


PLUGIN = OpenHands
