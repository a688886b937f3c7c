"""Sessions of Gemini CLI: ~/.gemini/tmp/*/chats/session-*.json and .jsonl."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from foretrace.core.errors import SourceError
from foretrace.core.trace import Parent, Trace
from foretrace.encodings.json_arguments import encode_json
from foretrace.rows.base import Drop
from foretrace.rows.files import read_document, read_records
from foretrace.rows.head import FileHead, read_head
from foretrace.sources.account import Account
from foretrace.sources.content_blocks import read_blocks
from foretrace.sources.conversation import Conversation, make_call, read_time
from foretrace.sources.json_values import get_dict, get_dicts, get_list, get_text
from foretrace.sources.sessions import Session, add_user_content

_AGENT = frozenset({"gemini", "model", "assistant"})
_NOTICES = frozenset({"info", "error", "warning"})
_KINDS = _AGENT | _NOTICES | {"user"}
_PERSON_TOOLS = frozenset({"ask_user", "exit_plan_mode"})


class GeminiCli:
    """A file is one session. In JSON lines, a later message replaces one with the same id, and a person may go back."""

    name = "gemini_cli"
    license = None

    def recognize(self, head: FileHead) -> str | None:
        """By `sessionId` and `projectHash`, or by messages of type gemini; early files by a `history` of `parts`."""
        first = head.first
        if get_text(first, "sessionId") and get_text(first, "projectHash"):
            return "sessionId and projectHash"
        messages = get_dicts(first, "messages")
        kinds = {get_text(message, "type") for message in messages[:-1] or messages}  # the last one may be cut off
        if kinds <= _KINDS and "gemini" in kinds and all("timestamp" in m for m in messages[:-1]):
            return "messages of type gemini with a timestamp"
        history = get_dicts(first, "history")
        if history and {"role", "parts"} <= history[0].keys() and "messages" not in first:
            return "a history of roles and parts"
        return None

    def read_traces(self, path: Path, account: Account) -> Iterator[Trace | Drop]:
        """The one session of the file."""
        records, messages = _read(path, account)
        facts: dict[str, Any] = {}
        for record in records:
            facts.update({**record, **get_dict(record, "$set")})
        session_id = get_text(facts, "sessionId") or path.name.partition(".json")[0]
        session = Session(
            source=self.name,
            agent="gemini-cli",
            id=session_id,
            project=get_text(facts, "projectHash")[:32],
            folder=next((folder for folder in get_list(facts, "directories") if isinstance(folder, str)), ""),
            created_at=get_text(facts, "startTime", "start_time") or None,
            parent=_find_parent(path, facts),
        )
        if title := get_text(facts, "summary"):
            session.extra["title"] = title
        session.models.update(filter(None, [get_text(get_dict(facts, "meta"), "model")]))
        talk = _Talk(session, account)
        for record in records:
            talk.talk.use(record, "$set")
        for message in messages:
            talk.add(message)
        yield session.make_trace(talk.talk, path)


class _Message(NamedTuple):
    number: int
    record: dict[str, Any]
    counts: bool = True
    """Whether it is its own record; a message in a list that a line sets is not."""


def _read(path: Path, account: Account) -> tuple[list[dict[str, Any]], list[_Message]]:
    """The records about the session, and its messages.

    Raises:
        SourceError: a document that cannot be read.
    """
    head = read_head(path)
    if head.document is None and not {"messages", "history"} & head.first.keys():
        return _read_lines(path, account)
    document = read_document(path)
    if not isinstance(document, dict):
        raise SourceError(f"{path}: cannot read: {document.detail if isinstance(document, Drop) else 'no object'}")
    name = "messages" if get_list(document, "messages") else "history"
    messages = get_list(document, name)
    found = [_Message(number, m) for number, m in enumerate(messages) if isinstance(m, dict)]
    for _ in range(len(messages) - len(found)):
        account.drop("not_an_object")
    return [{**document, name: []} if messages else document], found


def _read_lines(path: Path, account: Account) -> tuple[list[dict[str, Any]], list[_Message]]:
    facts: list[dict[str, Any]] = []
    by_id: dict[str, _Message] = {}
    for number, record in account.drop_unread(read_records(path)):
        if isinstance(target := record.get("$rewindTo"), str):
            facts.append(record)
            _rewind(by_id, target, account)
        elif message_id := get_text(record, "id"):
            if message_id in by_id:
                account.ignore("message that a later line replaces")
            by_id[message_id] = _Message(number, record)  # keeps the place of the one that it replaces
        elif isinstance(record.get("$set"), dict) or get_text(record, "sessionId"):
            update: dict[str, Any] = get_dict(record, "$set") or record
            rest = {key: value for key, value in update.items() if key != "messages"}
            facts.append(rest if update is record else {**record, "$set": rest})
            if given := get_dicts(update, "messages"):
                account.ignore("message that a later line replaces", sum(m.counts for m in by_id.values()))
                by_id = {get_text(m, "id") or f"{number}:{i}": _Message(number, m, False) for i, m in enumerate(given)}
        else:
            account.meet_unknown(get_text(record, "type") or ", ".join(list(record)[:3]) or "(empty)")
    return facts, list(by_id.values())


def _rewind(by_id: dict[str, _Message], target: str, account: Account) -> None:
    ids = list(by_id)
    gone = ids[ids.index(target) :] if target in by_id else ids
    account.ignore("abandoned branch", sum(by_id.pop(one).counts for one in gone))
    account.note("abandoned branches", bool(gone))


def _find_parent(path: Path, facts: dict[str, Any]) -> Parent | None:
    """The session that started a subagent, whose file is in a folder with the session's name."""
    if get_text(facts, "kind") != "subagent" or path.parent.name in ("", "chats"):
        return None
    return Parent(key=f"{GeminiCli.name}@{path.parent.name}")


class _Talk:
    def __init__(self, session: Session, account: Account) -> None:
        self.talk = Conversation(account)
        self._session = session
        self._account = account

    def add(self, given: _Message) -> None:
        number, message = given.number, given.record
        kind = get_text(message, "type", "role")
        self._session.types[kind or "(no type)"] += 1
        at = read_time(message.get("timestamp", message.get("ts")))
        content = message.get("content", message.get("parts"))
        if kind == "user" or kind in _AGENT:
            self.talk.use(message, count=int(given.counts))
            if kind == "user":
                self._add_user(number, content, at)
            else:
                self._add_reply(number, message, content, at)
            return
        self._account.note("errors of the model's API", kind == "error")
        if not given.counts:
            self._account.note(f"messages of type {kind[:80]}, left out")
        elif kind in _NOTICES:
            self._account.ignore(f"{kind} message")
        else:
            self._account.meet_unknown(kind or "(no type)")

    def _add_user(self, number: int, content: Any, at: float | None) -> None:
        blocks = content if isinstance(content, list) else [content]
        results = [b for b in blocks if isinstance(b, dict) and isinstance(b.get("functionResponse"), dict)]
        for block in results:
            self._add_result(number, block, at)
        rest = [b for b in blocks if b not in results]
        if rest:
            add_user_content(self.talk, rest, number, at=at)

    def _add_reply(self, number: int, message: dict[str, Any], content: Any, at: float | None) -> None:
        blocks = content if isinstance(content, list) else [content]
        asked = [b["functionCall"] for b in blocks if isinstance(b, dict) and isinstance(b.get("functionCall"), dict)]
        thoughts = [" ".join(filter(None, (get_text(t, "subject"), get_text(t, "description"))))
                    for t in get_dicts(message, "thoughts")]  # fmt: skip
        thoughts += [get_text(b, "text") for b in blocks if isinstance(b, dict) and b.get("thought") is True]
        spoken = [b for b in blocks if not (isinstance(b, dict) and ("functionCall" in b or b.get("thought") is True))]
        text, parts = read_blocks(spoken)
        recorded = get_dicts(message, "toolCalls")
        calls = [make_call(get_text(c, "id"), get_text(c, "name"), c.get("args")) for c in recorded or asked]
        model = get_text(message, "model")
        self._session.models.update([model] if model else [])
        tokens = {name: n for name, n in get_dict(message, "tokens").items() if isinstance(n, int)}
        self.talk.add_agent(
            number,
            text=text,
            reasoning="\n\n".join(filter(None, thoughts)) or None,
            calls=calls,
            at=at,
            waits_for_person=[call.id for call in calls if call.name in _PERSON_TOOLS],
            parts=parts,
            extra={"usage": tokens} if tokens else {},
        )
        for call in recorded:
            self._add_recorded_result(number, call)

    def _add_recorded_result(self, number: int, call: dict[str, Any]) -> None:
        """Add the result that is stored in the call itself, with the time when it was written."""
        status = get_text(call, "status").lower()
        results = [b for b in get_dicts(call, "result") if isinstance(b.get("functionResponse"), dict)]
        at = read_time(call.get("timestamp"))
        call_id = get_text(call, "id")
        if status == "cancelled":
            self.talk.wait_for_person(call_id)
        if results:
            text = "\n".join(map(_read_response, results))
        elif call.get("result") is not None:
            text = read_blocks(call["result"])[0]
        elif status in ("success", "error", "cancelled"):
            text = read_blocks(call.get("resultDisplay"))[0]
        else:
            return
        failed = True if status == "error" else False if status == "success" else None
        self.talk.add_result(call_id, text, number, is_error=failed, at=at)

    def _add_result(self, number: int, block: dict[str, Any], at: float | None) -> None:
        response = get_dict(block, "functionResponse")
        failed = True if "error" in get_dict(response, "response") else None
        self.talk.add_result(get_text(response, "id"), _read_response(block), number, is_error=failed, at=at)


def _read_response(block: dict[str, Any]) -> str:
    response = get_dict(block, "functionResponse").get("response")
    for key in ("output", "error", "content"):
        if text := get_text(response, key):
            return text
    return response if isinstance(response, str) else encode_json(response)


PLUGIN = GeminiCli
