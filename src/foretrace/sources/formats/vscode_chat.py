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
from foretrace.rows.head import FileHead, read_objects
from foretrace.sources.account import Account
from foretrace.sources.conversation import make_call, read_time
from foretrace.sources.json_values import as_list, decode_json, get_dict, get_dicts, get_number, get_text, write_text
from foretrace.sources.sessions import Session

_MARKS = ("responderUsername", "requesterUsername", "initialLocation", "sessionId", "creationDate")
_FIRST, _SET, _PUSH, _DELETE = range(4)
"""Kinds of lines in a log of changes."""


class VsCodeChat:
    """A file is one session (a document, or a log of changes to it), or has one per line. The turns are the rounds of a
    request if it has them, else the parts of the response that was shown."""

    name = "vscode_chat"
    license = None

    def recognize(self, head: FileHead) -> str | None:
        """By requests with a message and a response, in a document or in the first record of a log."""
        is_log = _is_whole(head.first)
        state = get_dict(head.first, "v") if is_log else head.first
        if not any(mark in state for mark in _MARKS) or not isinstance(state.get("requests"), list):
            return None
        requests = get_dicts(state, "requests")
        # A row of a chat may have a column `requests`, too.
        is_other = isinstance(state.get("messages"), list) or not (requests or is_log)
        if is_other or not all("message" in each and ("response" in each or "requestId" in each) for each in requests):
            return None
        return f"{'v.' * is_log}requests holds messages and responses" if requests else "v.requests is a list"

    def read_traces(self, path: Path, account: Account) -> Iterator[Trace | Drop]:
        records = (record for _, record in account.drop_unread(read_objects(path)))
        for record in records:
            if _is_whole(record):  # all records after it are changes to it
                yield _read_session(path, _replay_changes(record, records, account), account, counts=0)
            else:
                yield _read_session(path, record, account, counts=1)


def _read_session(path: Path, state: dict[str, Any], account: Account, counts: int) -> Trace | Drop:
    requests = get_dicts(state, "requests")
    asked = next(iter(requests), {})
    own = get_text(state, "sessionId") or get_text(asked, "requestId") or digest(write_text(asked.get("message")))
    talk = _Talk(account, VsCodeChat.name, "vscode-copilot", own, durations_from_stamps=False)
    talk.folder = get_text(state, "workingDirectory").removeprefix("file://")
    talk.note_title(get_text(state, "customTitle"))
    rest = [request for request in as_list(state.get("requests")) if not isinstance(request, dict)]
    talk.use({**state, "requests": rest}, count=counts)
    for number, request in enumerate(requests):
        talk.types["request"] += 1
        if request.get("shouldBeRemovedOnSend"):
            account.note("requests taken back")
        else:
            talk.use(request, count=0)
            talk.add_request(number, request)
    return talk.make_trace(path)


class _Talk(Session):
    _number = 0
    """The request that is read."""

    def add_request(self, number: int, request: dict[str, Any]) -> None:
        self._number = number
        result, message = get_dict(request, "result"), request.get("message")
        metadata = get_dict(result, "metadata")
        self.note_model((get_text(metadata, "resolvedModel") or get_text(request, "modelId")).removeprefix("copilot/"))
        text = message if isinstance(message, str) else get_text(message, "text")
        text = text or " ".join(filter(None, (get_text(part, "text") for part in get_dicts(message, "parts"))))
        self.add_user(text, number, at=read_time(request.get("timestamp")))
        if rounds := get_dicts(metadata, "toolCallRounds"):
            self._add_rounds(rounds, get_dict(metadata, "toolCallResults"))
        else:
            self._add_parts(request.get("response"))
        self.reply += 1
        failure = get_text(get_dict(result, "errorDetails"), "message")
        error = Failure(kind="error", message=failure[:2000]) if failure else None
        self.outcome = Outcome(status="error" if error else "done", error=error)

    def _add_rounds(self, rounds: list[dict[str, Any]], results: dict[str, Any]) -> None:
        for each in rounds:
            given = get_dicts(each, "toolCalls")
            calls = [make_call(get_text(c, "id"), get_text(c, "name"), c.get("arguments")) for c in given]
            text, thought = get_text(each, "response"), each.get("thinking")
            reasoning = _join(get_dict(each, "thinking").get("text", thought))
            if text or reasoning or calls:
                self.add_part(
                    self._number, text=text, reasoning=reasoning, calls=calls, at=read_time(each.get("timestamp"))
                )
            self.reply += 1
            for call in calls:
                if call.id in results:
                    self.add_result(call.id, _read_result(results[call.id]), self._number)

    def _add_parts(self, response: Any) -> None:
        pieces: list[str] = []  # text comes in pieces, with names of files in between

        def flush() -> None:
            if (text := "".join(pieces)).strip():
                self.add_part(self._number, text=text)
            pieces.clear()

        for part in [response] if isinstance(response, str) else as_list(response):
            kind = get_text(part, "kind")
            if isinstance(part, str):
                pieces.append(part)
            elif kind == "inlineReference":
                pieces.append(_read_reference(part))
            elif kind == "thinking":
                flush()
                self.add_part(self._number, reasoning=_join(part.get("value")))
            elif kind in ("toolInvocationSerialized", "toolInvocation"):
                flush()
                self._add_invocation(part)
            elif kind in ("", "markdownContent", "markdownVuln", "text"):
                pieces.append(_read_markdown(part))
        flush()

    def _add_invocation(self, part: dict[str, Any]) -> None:
        own = get_text(part, "toolCallId") or str(self.reply)
        data, details = get_dict(part, "toolSpecificData"), get_dict(part, "resultDetails")
        command = get_text(get_dict(data, "commandLine"), "toolEdited", "userEdited", "original")
        given = decode_json(data.get("rawInput", data.get("input", get_text(details, "input"))))
        arguments = {"command": command} if command else given if isinstance(given, dict) else {}
        self.add_part(self._number, calls=[make_call(own, get_text(part, "toolId") or "tool", arguments)])
        state = get_dict(data, "terminalCommandState")
        code, milliseconds = get_number(state, "exitCode"), get_number(state, "duration")
        shown = "\n".join(filter(None, (get_text(each, "value", "text") for each in get_dicts(details, "output"))))
        text = get_text(get_dict(data, "terminalCommandOutput"), "text") or get_text(details, "output") or shown
        self.add_result(
            own,
            text or _read_markdown({"value": part.get("pastTenseMessage")}),
            self._number,
            is_error=None if code is None else code != 0,
            seconds=None if milliseconds is None else milliseconds / 1000,
        )
        self.reply += 1


def _join(value: Any) -> str:
    return value if isinstance(value, str) else "".join(each for each in as_list(value) if isinstance(each, str))


def _read_markdown(part: Any) -> str:
    value = next((part[key] for key in ("content", "value", "text") if get_dict(part, key) or get_text(part, key)), "")
    return value if isinstance(value, str) else get_text(value, "value")


def _read_reference(part: dict[str, Any]) -> str:
    inner = get_dict(part, "inlineReference")
    uri = get_dict(inner, "uri") or get_dict(get_dict(inner, "location"), "uri") or inner
    name = get_text(part, "name") or get_text(inner, "name") or get_text(uri, "path", "fsPath").rpartition("/")[2]
    return f"`{name}`" if name else ""


def _read_result(result: Any) -> str:
    """The result of a call as the model got it: texts, or trees of pieces of a prompt."""
    texts: list[str] = []
    for part in get_dicts(result, "content"):
        text = get_text(part, "value", "text")
        nodes = [get_dict(get_dict(part, "value"), "node")]
        while nodes:
            node = nodes.pop()
            text += "\n" * (node.get("lineBreakBefore") is True and bool(text)) + get_text(node, "text")
            nodes += reversed(get_dicts(node, "children"))
        texts.append(text)
    return "\n".join(filter(None, texts))


def _is_whole(record: dict[str, Any]) -> bool:
    """Whether a record begins a log of changes: it holds a whole state."""
    return record.get("kind") == _FIRST and not isinstance(record["kind"], bool) and isinstance(record.get("v"), dict)


def _replay_changes(first: dict[str, Any], changes: Iterable[dict[str, Any]], account: Account) -> dict[str, Any]:
    """The state after all changes. A change to a place that does not exist is dropped: an earlier line is missing."""
    state: dict[str, Any] = first["v"]
    account.use()
    for change in changes:
        if _is_whole(change):
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
