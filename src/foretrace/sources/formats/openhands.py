"""OpenHands conversations, version 1 (the software agent SDK): a folder with a file per event, or a file of lines.

Actions of one model reply share `llm_response_id`. Stamps are local times without a zone; they are taken as they are,
and their differences are right. If a conversation was forked (`parent_id`), the branch that ends last is read.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from foretrace.core.digest import digest
from foretrace.core.trace import Failure, Outcome, Sampled, Status, ToolSpec, Trace
from foretrace.rows.base import Drop
from foretrace.rows.files import read_document
from foretrace.rows.head import FileHead
from foretrace.sources.account import Account
from foretrace.sources.content_blocks import read_any_content
from foretrace.sources.conversation import Conversation, make_call, read_time
from foretrace.sources.file_traces import finish_trace, make_task
from foretrace.sources.json_values import (
    as_dict,
    as_dicts,
    as_text,
    as_token_ids,
    get_bool,
    read_objects,
)
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
        is_event = as_text(first.get("kind")) in _KNOWN and "source" in first and "id" in first
        return f"line 1 is a {first['kind']}" if is_event else None

    def read_traces(self, path: Path, account: Account) -> Iterator[Trace | Drop]:
        """The conversation of a folder or file."""
        events = [e for _, e in account.drop_unread(_read_folder(path) if path.is_dir() else read_objects(path))]
        if not events:
            yield Drop("no_agent_turn", f"{path.name}: no events")
            return
        if _is_old(events[0]):
            account.ignore("event of version 0", len(events))
            yield Drop("old_version", f"{path.name}: events of OpenHands before version 1; import its messages as chat")
            return
        state = _read_state(path) if path.is_dir() else {}
        yield _Reader(_find_branch(events, account), state, account).read(path)

    def list_companions(self, path: Path) -> Iterable[Path]:
        """All files in the folder of a conversation."""
        folders = (path, path / "events") if path.is_dir() else ()
        return [file for folder in folders if folder.is_dir() for file in sorted(folder.iterdir()) if file.is_file()]


def _is_old(event: dict[str, Any]) -> bool:
    return "kind" not in event and bool({"action", "observation"} & event.keys() and {"args", "extras"} & event.keys())


def _read_folder(path: Path) -> Iterator[dict[str, Any] | Drop]:
    folder = path / "events" if (path / "events").is_dir() else path
    numbered = [(int(match[1]), file) for file in folder.iterdir() if (match := _FILE.fullmatch(file.name))]
    for _, file in sorted(numbered):
        event = read_document(file)
        yield event if isinstance(event, (dict, Drop)) else Drop("not_an_object", file.name)


def _read_state(path: Path) -> dict[str, Any]:
    file = path / "base_state.json"
    return as_dict(read_document(file)) if file.is_file() else {}


def _find_branch(events: list[dict[str, Any]], account: Account) -> list[dict[str, Any]]:
    """The events of the branch that ends last; events outside the tree belong to all branches."""
    parents = {as_text(event.get("id")): parent for event in events if (parent := as_text(event.get("parent_id")))}
    in_tree = parents.keys() | set(parents.values())
    last = next((name for event in reversed(events) if (name := as_text(event.get("id"))) in parents), "")
    left = in_tree - find_main_line(parents, [last])
    branch = [event for event in events if as_text(event.get("id")) not in left]
    if len(branch) < len(events):
        account.ignore("event of another branch", len(events) - len(branch))
    return branch


class _Reader:
    def __init__(self, events: list[dict[str, Any]], state: dict[str, Any], account: Account) -> None:
        self._events = events
        self._state = state
        self._account = account
        self._talk = Conversation(account)
        self._tools: tuple[ToolSpec, ...] = ()
        self._ended = as_text(state.get("execution_status"))
        self._error: Failure | None = None
        self._status: Status | None = None
        self._sampled = _match_tokens(events)
        self._model = ""

    def read(self, path: Path) -> Trace | Drop:
        self._talk.use(self._state, count=0)
        for index, event in enumerate(self._events):
            self._add(event, index)
        first = self._events[0]
        own_id = as_text(self._state.get("id")) or self._find_conversation_id() or as_text(first.get("id"))
        key = f"openhands@{own_id or digest(str(first)[:4096])}"
        agent = as_dict(self._state.get("agent"))
        status = self._status or _STATUS.get(self._ended, "done")
        return finish_trace(
            self._talk,
            key=key,
            task=make_task(key),
            path=path,
            raw_id=own_id,
            agent="OpenHands",
            model=as_text(as_dict(agent.get("llm")).get("model")) or self._model,
            created_at=as_text(first.get("timestamp")),
            met=Counter(str(event.get("kind"))[:80] for event in self._events),
            tools=self._tools,
            outcome=Outcome(status=status, exit_reason=self._ended or None, error=self._error),
        )

    def _find_conversation_id(self) -> str:
        states = (as_dict(e.get("value")) for e in self._events[:3] if e.get("key") == "full_state")
        return next((as_text(state.get("id")) for state in states), "")

    def _add(self, event: dict[str, Any], index: int) -> None:
        kind = as_text(event.get("kind"))
        if kind in _IGNORED or kind == "TokenEvent":
            self._note_state(event)
            self._account.ignore(kind) if kind in _IGNORED else self._account.use()
        elif kind in _ENDS:
            self._talk.use(event)
            code = as_text(event.get("code")) or kind
            is_limit = kind == "ConversationIterationLimitEvent" or code == "MaxIterationsReached"
            self._status = "limit" if is_limit else "error"
            self._error = None if is_limit else Failure(kind=code, message=as_text(event.get("detail")))
        elif kind in _SUMMARIES:
            self._talk.use(event)
            summary = as_text(event.get("summary"))
            if summary:
                self._talk.add_user(summary, index, author="environment", raw_role=kind)
        elif kind in _SPOKEN:
            self._talk.use(event, "observation" if kind in _RESULTS else "")
            self._add_spoken(kind, event, index, read_time(event.get("timestamp")))
        else:
            self._account.meet_unknown(event.get("kind"))

    def _note_state(self, event: dict[str, Any]) -> None:
        value = event.get("value")
        if event.get("key") == "execution_status" and isinstance(value, str):
            self._ended = value
        held = as_dict(as_dict(as_dict(value).get("usage_to_metrics")).get("default"))
        self._model = as_text(held.get("model_name")) or self._model

    def _add_spoken(self, kind: str, event: dict[str, Any], index: int, at: float | None) -> None:
        if kind == "SystemPromptEvent":
            pieces = (as_text(as_dict(event.get(name)).get("text")) for name in ("system_prompt", "dynamic_context"))
            self._talk.add_system("\n\n".join(filter(None, pieces)), index)
            self._tools = self._tools or _read_tools(event.get("tools"))
        elif kind == "MessageEvent":
            self._add_message(event, index, at)
        elif kind == "ActionEvent":
            self._add_action(event, index, at)
        else:
            self._add_result(kind, event, index, at)

    def _add_message(self, event: dict[str, Any], index: int, at: float | None) -> None:
        message = as_dict(event.get("llm_message"))
        text, parts = read_any_content(message.get("content"))
        if event.get("source") == "agent":
            reply = as_text(event.get("llm_response_id")) or None
            reasoning = as_text(message.get("reasoning_content")) or None
            sampled = self._sampled.get(index)
            self._talk.add_agent(
                index, text=text, reasoning=reasoning, reply=reply, at=at, parts=parts, sampled=sampled
            )
        elif message.get("role") == "system":
            self._talk.add_system(text, index, parts=parts)
        else:
            author = "user" if event.get("source") == "user" else "environment"
            self._talk.add_user(text, index, author=author, at=at, parts=parts)
        added, _ = read_any_content(event.get("extended_content") or [])
        if added:
            self._talk.add_user(added, index, author="environment", at=at)

    def _add_action(self, event: dict[str, Any], index: int, at: float | None) -> None:
        thought, parts = read_any_content(event.get("thought") or [])
        reasoning = as_text(event.get("reasoning_content")) or _read_thinking(event.get("thinking_blocks"))
        raw = as_dict(event.get("tool_call"))
        function = as_dict(raw.get("function")) or raw
        action = {name: value for name, value in as_dict(event.get("action")).items() if name != "kind"}
        call = make_call(
            event.get("tool_call_id") or raw.get("id"),
            event.get("tool_name") or function.get("name"),
            function.get("arguments", action),
        )
        self._talk.add_agent(
            index, text=thought, reasoning=reasoning, calls=[call], reply=as_text(event.get("llm_response_id")) or None,
            at=at, parts=parts, sampled=self._sampled.get(index),
        )  # fmt: skip

    def _add_result(self, kind: str, event: dict[str, Any], index: int, at: float | None) -> None:
        observation = as_dict(event.get("observation"))
        call_id = as_text(event.get("tool_call_id"))
        if kind == "UserRejectObservation":  # a person was asked: the time is theirs
            text = as_text(event.get("rejection_reason"))
            self._talk.add_result(call_id, text, index, is_error=True, raw_role=kind)
            return
        if kind == "AgentErrorEvent":
            self._talk.add_result(call_id, as_text(event.get("error")), index, is_error=True, at=at, raw_role=kind)
            return
        content = observation.get("content", observation.get("output"))
        text, parts = read_any_content(content)
        is_error = get_bool(observation, "is_error")
        self._talk.add_result(call_id, text, index, is_error=is_error, at=at, parts=parts)
        added, _ = read_any_content(event.get("extended_content") or [])
        if added:
            self._talk.add_user(added, index, author="environment", at=at)


def _match_tokens(events: list[dict[str, Any]]) -> dict[int, Sampled]:
    """Token ids by the index of the first event of their reply; they are recorded after it."""
    found: dict[int, Sampled] = {}
    reply: tuple[str, int] | None = None
    for index, event in enumerate(events):
        kind = event.get("kind")
        if kind == "ActionEvent" or (kind == "MessageEvent" and event.get("source") == "agent"):
            name = as_text(event.get("llm_response_id"))
            if reply is None or not name or reply[0] != name:
                reply = (name, index)
        elif kind == "TokenEvent" and reply is not None:
            ids = as_token_ids(event.get("response_token_ids"))
            prompt = as_token_ids(event.get("prompt_token_ids"))
            if ids:
                found[reply[1]] = Sampled(token_ids=ids, prompt_token_ids=prompt or None, exact="token")
    return found


def _read_thinking(value: Any) -> str | None:
    return "\n\n".join(t for block in as_dicts(value) if (t := as_text(block.get("thinking")))) or None


def _read_tools(value: Any) -> tuple[ToolSpec, ...]:
    """Tool definitions; some versions have a class instead of a name, as `TerminalTool` for `terminal`."""
    tools: list[dict[str, Any]] = []
    for tool in as_dicts(value):
        name = as_text(tool.get("name")) or as_text(as_dict(tool.get("function")).get("name"))
        words = re.sub(r"(?<!^)(?=[A-Z])", "_", as_text(tool.get("kind"))).lower().removesuffix("_tool")
        tools.append(tool if name else {**tool, "name": words})
    return read_tool_specs([tool for tool in tools if tool.get("name") or tool.get("function")])


PLUGIN = OpenHands
