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
from foretrace.sources.conversation import make_call, read_time
from foretrace.sources.json_values import as_dicts, get_bool, get_dict, get_dicts, get_list, get_text
from foretrace.sources.sessions import NO_TYPE, Session

_AGENT = frozenset({"gemini", "model", "assistant"})
_NOTICES = frozenset({"info", "error", "warning"})
_PERSON_TOOLS = frozenset({"ask_user", "exit_plan_mode"})


class GeminiCli:
    """A file is one session. In JSON lines, a later message replaces one with the same id, and a person may go back."""

    name = "gemini_cli"
    license = None

    def recognize(self, head: FileHead) -> str | None:
        """By `sessionId` and `projectHash`; early files by a `history` of `parts`."""
        first = head.first
        if get_text(first, "sessionId") and get_text(first, "projectHash"):
            return "sessionId and projectHash"
        history = get_dicts(first, "history")
        is_history = history and {"role", "parts"} <= history[0].keys() and "messages" not in first
        return "a history of roles and parts" if is_history else None

    def read_traces(self, path: Path, account: Account) -> Iterator[Trace | Drop]:
        session = Session(account, self.name, "gemini-cli", path.name.partition(".json")[0], person_tools=_PERSON_TOOLS)
        records, messages = _read(path, account)
        facts: dict[str, Any] = {}
        for record in records:
            session.use(record, "$set")
            facts.update({**record, **get_dict(record, "$set")})
        session.id = get_text(facts, "sessionId") or session.id
        session.project = get_text(facts, "projectHash")[:32]
        session.folder = next((folder for folder in get_list(facts, "directories") if isinstance(folder, str)), "")
        session.created_at = get_text(facts, "startTime", "start_time") or None
        session.note_model(get_text(get_dict(facts, "meta"), "model"))
        session.note_title(get_text(facts, "summary"))
        if get_text(facts, "kind") == "subagent" and path.parent.name not in ("", "chats"):
            session.parent = Parent(key=f"{self.name}@{path.parent.name}")
        for message in messages:
            _add_message(session, message)
        yield session.make_trace(path)


class _Message(NamedTuple):
    number: int
    record: dict[str, Any]
    counts: bool = True
    """Whether it is its own record; a message in a list that a line sets is not."""


def _read(path: Path, account: Account) -> tuple[list[dict[str, Any]], list[_Message]]:
    """The records about the session, and its messages; a document that cannot be read is a SourceError."""
    head = read_head(path)
    if head.document is None and not {"messages", "history"} & head.first.keys():
        return _read_lines(path, account)
    document = read_document(path)
    if not isinstance(document, dict):
        raise SourceError(f"{path}: cannot read: {document.detail if isinstance(document, Drop) else 'no object'}")
    name = "messages" if get_list(document, "messages") else "history"
    messages = get_list(document, name)
    found = [_Message(number, message) for number, message in account.drop_unread(messages)]
    return [{**document, name: []} if messages else document], found


def _read_lines(path: Path, account: Account) -> tuple[list[dict[str, Any]], list[_Message]]:
    facts: list[dict[str, Any]] = []
    by_id: dict[str, _Message] = {}
    for number, record in account.drop_unread(read_records(path)):
        if isinstance(target := record.get("$rewindTo"), str):
            facts.append(record)
            ids = list(by_id)
            gone = ids[ids.index(target) :] if target in by_id else ids
            account.ignore("abandoned branch", sum(by_id.pop(one).counts for one in gone))
            account.note("abandoned branches", bool(gone))
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


def _add_message(session: Session, given: _Message) -> None:
    number, message = given.number, given.record
    kind = get_text(message, "type", "role")
    session.types[kind or NO_TYPE] += 1
    if kind == "user" or kind in _AGENT:
        session.use(message, count=int(given.counts))
        content = message.get("content", message.get("parts"))
        at = read_time(message.get("timestamp", message.get("ts")))
        blocks = content if isinstance(content, list) else [content]
        if kind == "user":
            results = [block for block in as_dicts(blocks) if get_dict(block, "functionResponse")]
            for block in results:
                response = get_dict(block, "functionResponse")
                failed = True if "error" in get_dict(response, "response") else None
                session.add_result(get_text(response, "id"), _read_response(block), number, is_error=failed, at=at)
            if rest := [block for block in blocks if block not in results]:
                session.add_content(rest, number, at=at)
        else:
            _add_reply(session, number, message, blocks, at)
        return
    session.account.note("errors of the model's API", kind == "error")
    if given.counts:
        session.skip(f"{kind} message" if kind in _NOTICES else kind, kind in _NOTICES)
    else:
        session.account.note(f"messages of type {kind[:80]}, left out")


def _add_reply(session: Session, number: int, message: dict[str, Any], blocks: list[Any], at: float | None) -> None:
    asked = [block["functionCall"] for block in blocks if get_dict(block, "functionCall")]
    thoughts = [
        " ".join(filter(None, (get_text(thought, "subject"), get_text(thought, "description"))))
        for thought in get_dicts(message, "thoughts")
    ]
    thoughts += [get_text(block, "text") for block in blocks if get_bool(block, "thought")]
    spoken = [block for block in blocks if not get_dict(block, "functionCall") and not get_bool(block, "thought")]
    text, parts = read_blocks(spoken)
    recorded = get_dicts(message, "toolCalls")
    calls = [make_call(get_text(c, "id"), get_text(c, "name"), c.get("args")) for c in recorded or asked]
    session.note_model(get_text(message, "model"))
    tokens = {name: n for name, n in get_dict(message, "tokens").items() if isinstance(n, int)}
    session.add_agent(
        number, text=text, reasoning="\n\n".join(filter(None, thoughts)), calls=calls, at=at, parts=parts,
        extra={"usage": tokens} if tokens else {},
    )  # fmt: skip
    for call in recorded:
        _add_recorded_result(session, number, call)


def _add_recorded_result(session: Session, number: int, call: dict[str, Any]) -> None:
    """Add the result that is stored in the call itself, with the time when it was written."""
    status, own = get_text(call, "status").lower(), get_text(call, "id")
    results = [block for block in get_dicts(call, "result") if get_dict(block, "functionResponse")]
    if status == "cancelled":
        session.wait_for_person(own)
    if results:
        text = "\n".join(map(_read_response, results))
    elif call.get("result") is not None or status in ("success", "error", "cancelled"):
        text = read_blocks(call["result"] if call.get("result") is not None else call.get("resultDisplay"))[0]
    else:
        return
    failed = {"error": True, "success": False}.get(status)
    session.add_result(own, text, number, is_error=failed, at=read_time(call.get("timestamp")))


def _read_response(block: dict[str, Any]) -> str:
    response = get_dict(block, "functionResponse").get("response")
    text = get_text(response, "output", "error", "content")
    return text or (response if isinstance(response, str) else encode_json(response))


PLUGIN = GeminiCli
