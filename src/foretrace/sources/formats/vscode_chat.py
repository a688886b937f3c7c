"""Chats of VS Code with Copilot: what "Chat: Export Chat" writes, and sessions as VS Code keeps them."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from foretrace.core.digest import digest
from foretrace.core.trace import Failure, Outcome, Trace
from foretrace.rows.base import Drop
from foretrace.rows.head import FileHead
from foretrace.sources.account import Account
from foretrace.sources.conversation import Conversation, make_call, read_time
from foretrace.sources.json_values import (
    as_dicts,
    as_list,
    decode_json,
    get_dict,
    get_dicts,
    get_list,
    get_number,
    get_text,
    read_objects,
    write_text,
)
from foretrace.sources.sessions import Session

_MARKS = ("responderUsername", "requesterUsername", "initialLocation", "sessionId", "creationDate")
_FIRST, _SET, _PUSH, _DELETE = range(4)


class VsCodeChat:
    """A file is one session (a document, or a log of changes to it), or has one per line. The turns are the rounds of a
    request if it has them, else the parts of the response that was shown."""

    name = "vscode_chat"
    license = None

    def recognize(self, head: FileHead) -> str | None:
        """By requests with a message and a response, in a document or in the first record of a log."""
        state = head.first
        where = "requests"
        if is_change(state):
            state, where = get_dict(state, "v"), "v.requests of a log of changes"
        if not any(mark in state for mark in _MARKS) or not isinstance(state.get("requests"), list):
            return None
        if isinstance(state.get("messages"), list):  # a row of a chat that also has a column of this name
            return None
        requests = get_dicts(state, "requests")
        if not requests and where == "requests":
            return None
        if not all("message" in each and ("response" in each or "requestId" in each) for each in requests[:3]):
            return None
        return f"{where} holds messages and responses" if requests else f"{where} is a list"

    def read_traces(self, path: Path, account: Account) -> Iterator[Trace | Drop]:
        """The session of the file, or those of its lines."""
        records = (record for _, record in account.drop_unread(read_objects(path)))
        for record in records:
            if is_change(record):  # all records after it are changes to it
                yield _read_session(path, replay_changes(record, records, account), account, is_log=True)
            else:
                yield _read_session(path, record, account, is_log=False)


def _read_session(path: Path, state: dict[str, Any], account: Account, *, is_log: bool) -> Trace | Drop:
    requests = get_dicts(state, "requests")
    asked = next(iter(requests), {})
    own = get_text(state, "sessionId") or get_text(asked, "requestId") or digest(write_text(asked.get("message")))
    session = Session(source=VsCodeChat.name, agent="vscode-copilot", id=own)
    session.folder = get_text(state, "workingDirectory").removeprefix("file://")
    talk = Conversation(account, durations_from_stamps=False)
    rest = [request for request in get_list(state, "requests") if not isinstance(request, dict)]
    talk.use({**state, "requests": rest}, count=int(not is_log))  # of a log, the lines are counted
    for number, request in enumerate(requests):
        session.types["request"] += 1
        if request.get("shouldBeRemovedOnSend"):
            account.note("requests taken back")
            continue
        talk.use(request, count=0)
        _Request(session, talk, number, request).add()
    if title := get_text(state, "customTitle"):
        session.extra["title"] = title
    return session.make_trace(talk, path)


class _Request:
    """Adds what a person asks, and all that the agent does in response."""

    def __init__(self, session: Session, talk: Conversation, number: int, request: dict[str, Any]) -> None:
        self._session = session
        self._talk = talk
        self._number = number
        self._request = request
        self._reply = 0
        self._pieces: list[str] = []
        """Text that is not added yet: it comes in pieces, with names of files in between."""

    def add(self) -> None:
        """Add its messages."""
        request, metadata = self._request, get_dict(get_dict(self._request, "result"), "metadata")
        if model := get_text(metadata, "resolvedModel") or get_text(request, "modelId"):
            self._session.models[model.removeprefix("copilot/")] += 1
        at = read_time(request.get("timestamp"))
        self._talk.add_user(_read_request(request.get("message")), self._number, at=at)
        if rounds := get_dicts(metadata, "toolCallRounds"):
            self._add_rounds(rounds, get_dict(metadata, "toolCallResults"))
        else:
            self._add_parts(request.get("response"))
        failure = get_text(get_dict(get_dict(request, "result"), "errorDetails"), "message")
        error = Failure(kind="error", message=failure[:2000]) if failure else None
        self._session.outcome = Outcome(status="error" if error else "done", error=error)

    def _add_rounds(self, rounds: list[dict[str, Any]], results: dict[str, Any]) -> None:
        for each in rounds:
            thought = each.get("thinking")
            thought = thought.get("text") if isinstance(thought, dict) else thought
            calls = [
                make_call(get_text(call, "id"), get_text(call, "name"), call.get("arguments"))
                for call in get_dicts(each, "toolCalls")
            ]
            text, reasoning = get_text(each, "response"), _join(thought) or None
            if text or reasoning or calls:
                self._add_agent(text=text, reasoning=reasoning, calls=calls, at=read_time(each.get("timestamp")))
            self._reply += 1
            for call in calls:
                if call.id in results:
                    self._talk.add_result(call.id, _read_result(results[call.id]), self._number)

    def _add_parts(self, response: Any) -> None:
        parts = as_list(response) if not isinstance(response, str) else [response]
        for part in parts:
            if isinstance(part, str):
                part = {"value": part}
            if not isinstance(part, dict):
                continue
            kind = get_text(part, "kind")
            if kind in ("", "markdownContent", "markdownVuln", "text"):
                self._pieces.append(_read_markdown(part))
            elif kind == "inlineReference":
                self._pieces.append(_read_reference(part))
            elif kind == "thinking":
                self._add_agent(reasoning=_join(part.get("value")) or None)
            elif kind in ("toolInvocationSerialized", "toolInvocation"):
                self._add_invocation(part)
        self._flush()

    def _flush(self) -> None:
        text = "".join(self._pieces)
        self._pieces.clear()
        if text.strip():
            self._add_agent(text=text)

    def _add_agent(self, **fields: Any) -> None:
        self._flush()
        self._talk.add_agent(self._number, reply=f"{self._number}.{self._reply}", **fields)

    def _add_invocation(self, part: dict[str, Any]) -> None:
        own = get_text(part, "toolCallId") or f"{self._number}.{self._reply}"
        data, details = get_dict(part, "toolSpecificData"), part.get("resultDetails")
        self._add_agent(calls=[make_call(own, get_text(part, "toolId") or "tool", _read_arguments(data, details))])
        state = get_dict(data, "terminalCommandState")
        code, milliseconds = get_number(state, "exitCode"), get_number(state, "duration")
        text = get_text(get_dict(data, "terminalCommandOutput"), "text") or _read_details(details)
        self._talk.add_result(
            own,
            text or _read_markdown({"value": part.get("pastTenseMessage")}),
            self._number,
            is_error=None if code is None else code != 0,
            seconds=None if milliseconds is None else milliseconds / 1000,
        )
        self._reply += 1


def _read_request(message: Any) -> str:
    """The text of a request; early versions have it in parts."""
    if isinstance(message, str):
        return message
    parts = (get_text(part, "text") for part in get_dicts(message, "parts"))
    return get_text(message, "text") or " ".join(filter(None, parts))


def _read_markdown(part: dict[str, Any]) -> str:
    value = part.get("content") or part.get("value") or part.get("text")
    return value if isinstance(value, str) else get_text(value, "value")


def _read_reference(part: dict[str, Any]) -> str:
    """The name of a file or symbol in a text."""
    inner = get_dict(part, "inlineReference")
    uri = get_dict(inner, "uri") or get_dict(get_dict(inner, "location"), "uri") or inner
    name = get_text(part, "name") or get_text(inner, "name") or get_text(uri, "path", "fsPath").rpartition("/")[2]
    return f"`{name}`" if name else ""


def _join(value: Any) -> str:
    """A text, or the texts of a list."""
    return value if isinstance(value, str) else "".join(each for each in as_list(value) if isinstance(each, str))


def _read_arguments(data: dict[str, Any], details: Any) -> Any:
    """The arguments of a tool call, as far as they are shown."""
    line = get_dict(data, "commandLine")
    if command := get_text(line, "toolEdited", "userEdited", "original") or get_text(data, "command"):
        return {"command": command}
    given = data.get("rawInput", data.get("input", get_text(details, "input")))
    decoded = decode_json(given)
    return decoded if isinstance(decoded, dict) else {"input": given} if given else {}


def _read_details(details: Any) -> str:
    """The output of a tool, as it is shown."""
    output = details.get("output") if isinstance(details, dict) else None
    if isinstance(output, str):
        return output
    return "\n".join(text for each in as_dicts(output) if (text := get_text(each, "value", "text")))


def _read_result(result: Any) -> str:
    """The result of a call as the model got it: texts, or trees of pieces of a prompt."""
    texts: list[str] = []
    for part in get_dicts(result, "content"):
        value = part.get("value", part.get("text"))
        texts.append(value if isinstance(value, str) else _read_tree(value))
    return "\n".join(filter(None, texts))


def _read_tree(value: Any) -> str:
    """The texts in the nodes of a tree, in order."""
    pieces: list[str] = []
    todo: list[Any] = [get_dict(value, "node")]
    while todo:
        node = todo.pop()
        if text := get_text(node, "text"):
            pieces.append("\n" * (node.get("lineBreakBefore") is True and bool(pieces)) + text)
        todo += reversed(get_dicts(node, "children"))
    return "".join(pieces)


def is_change(record: dict[str, Any]) -> bool:
    """Whether a record begins a log of changes: it holds a whole state."""
    return record.get("kind") == _FIRST and not isinstance(record["kind"], bool) and isinstance(record.get("v"), dict)


def replay_changes(first: dict[str, Any], changes: Iterable[dict[str, Any]], account: Account) -> dict[str, Any]:
    """The state after all changes. A change to a place that does not exist is dropped: an earlier line is missing."""
    state: dict[str, Any] = first["v"]
    account.use()
    for change in changes:
        if is_change(change):
            state = change["v"]
            account.use()
        elif change.get("kind") not in (_SET, _PUSH, _DELETE):
            account.meet_unknown(change.get("kind"))
        elif _apply(state, change):
            account.use()
        else:
            account.drop("change_without_place")
    return state


def _apply(state: dict[str, Any], change: dict[str, Any]) -> bool:
    """Make a change, and return whether its place exists."""
    kind, value, length = change["kind"], change.get("v"), change.get("i")
    try:
        *above, key = change["k"]
        place: Any = functools.reduce(operator.getitem, above, state)
        if kind == _DELETE:
            del place[key]
        elif kind == _PUSH:
            if isinstance(place, dict) and place.get(key) is None:
                place[key] = []
            if isinstance(length, int):
                del place[key][length:]
            place[key].extend(as_list(value))
        elif isinstance(place, list) and key == len(place):
            place.append(value)
        else:
            place[key] = value
    except (LookupError, TypeError, ValueError, AttributeError):
        return False
    return True


PLUGIN = VsCodeChat
