"""Sessions of OpenCode: opencode.db since 1.2, before that ~/.local/share/opencode/storage; and `opencode export`."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from foretrace.core.trace import Parent, Trace
from foretrace.rows.base import Drop
from foretrace.rows.files import read_document
from foretrace.rows.head import FileHead, read_head
from foretrace.sources.account import Account
from foretrace.sources.content_blocks import read_part
from foretrace.sources.conversation import FLUSH_S, make_call, read_time, write_time
from foretrace.sources.databases import MAGIC, list_database_files, open_database
from foretrace.sources.json_values import decode_json, get_dict, get_dicts, get_number, get_text
from foretrace.sources.sessions import Session

_IGNORED = frozenset({"snapshot", "patch", "agent", "step-start", "retry", "compaction"})
_ASKED = frozenset({"text", "file", "subtask"})
_SAID = frozenset({"text", "reasoning", "tool", "file", "step-finish"})
"""Types of parts: `_ASKED` in a user's message, `_SAID` in a reply."""
_PERSON_TOOLS = frozenset({"question", "plan_exit", "plan_enter"})
_NAMES = {
    "session_id": "sessionID", "message_id": "messageID", "parent_id": "parentID", "project_id": "projectID",
}  # fmt: skip
"""Columns of the database, and what files call them."""

Record = dict[str, Any]


StoredSession = tuple[Record, list[tuple[Record, list[Record]]]]
"""A session and its messages, each with its parts, in their order."""


class OpenCode:
    """A database or storage folder has many sessions; a session's parent is the one that started it, if any."""

    name = "opencode"
    license = None

    def recognize(self, head: FileHead) -> str | None:
        """By the tables of the database, the folders of the storage, or the two lists of an export."""
        if head.is_folder:
            names = {*head.names}
            is_storage = {"session/", "message/"} <= names and names & {"part/", "migration", "project/"}
            return "folders session, message and part" if is_storage else None
        if _is_export(head.document or {}):
            return "a document with info, and messages of info and parts"
        if not head.start.startswith(MAGIC):
            return None
        if all(name in head.start for name in (b"session_id", b"message_id", b"project_id", b"time_created")):
            return "a SQLite database with sessions, messages and parts"
        return "a SQLite database named opencode" if head.path.name.startswith("opencode") else None

    def list_companions(self, path: Path) -> Iterable[Path]:
        return list_database_files(path)

    def read_traces(self, path: Path, account: Account) -> Iterator[Trace | Drop]:
        if path.is_dir():
            stored = _read_folder(path, account)
        elif _is_export(read_head(path).document or {}):
            stored = _read_export(path, account)
        else:
            stored = _read_database(path, account)
        started: dict[str, Parent] = {}
        for session, messages in stored:
            talk = _Talk(session, account, started)
            for number, (message, parts) in enumerate(messages):
                talk.add_message(number, message, parts)
            yield talk.make_trace(path)


class _Talk(Session):
    """Builds the conversation of one session; adds calls that start other sessions to `started`."""

    def __init__(self, session: Record, account: Account, started: dict[str, Parent]) -> None:
        super().__init__(account, OpenCode.name, "opencode", get_text(session, "id"), person_tools=_PERSON_TOOLS)
        self.folder = get_text(session, "directory")
        self.version = get_text(session, "version")
        if parent := get_text(session, "parentID"):
            self.parent = started.get(self.id, Parent(key=f"{OpenCode.name}@{parent}"))
        self.note_title(get_text(session, "title"))
        created = read_time(get_dict(session, "time").get("created"))
        self.created_at = None if created is None else write_time(created)
        self.use(session, count=int(session.keys() != {"id"}))  # only an id: no record was stored
        self._started = started
        self._reverted_at = get_text(get_dict(session, "revert"), "messageID")
        self._is_reverted = False

    def add_message(self, number: int, message: Record, parts: list[Record]) -> None:
        role, own = get_text(message, "role"), get_text(message, "id")
        self.types[f"message {role}".strip()] += 1
        is_first = bool(self._reverted_at) and own == self._reverted_at
        self._is_reverted = self._is_reverted or is_first
        if self._is_reverted:
            self.account.ignore("abandoned branch", 1 + len(parts))
            self.account.note("abandoned branches", is_first)
            return
        at = read_time(get_dict(message, "time").get("created"))
        self.folder = self.folder or get_text(get_dict(message, "path"), "root", "cwd") or get_text(message, "path")
        if role == "user":
            self._use_parts(message, parts, _ASKED)
            self._add_prompt(number, message, parts, at)
        elif role == "assistant" and message.get("summary") is True:
            self.use({**message, "parts": parts}, count=1 + len(parts))
            text = "\n\n".join(filter(None, (get_text(p, "text") for p in parts if get_text(p, "type") == "text")))
            self.add_user(text, number, author="environment", at=at, extra={"kind": "compact_summary"})
        elif role == "assistant":
            self._use_parts(message, parts, _SAID)
            self._add_assistant(number, message, parts, at)
        else:
            self.account.meet_unknown(f"message {role}")
            self.account.ignore("part of an unknown message", len(parts))

    def _use_parts(self, message: Record, parts: list[Record], kinds: frozenset[str]) -> None:
        """Use a message with its parts of these kinds; count the other parts."""
        used = [part for part in parts if get_text(part, "type") in kinds]
        self.use({**message, "parts": used}, count=1 + len(used))
        for part in parts:
            kind = get_text(part, "type")
            self.types[f"part {kind}".strip()] += 1
            if kind not in kinds:
                self.skip(f"part {kind}", kind in _IGNORED)
                self.account.note("errors of the model's API", kind == "retry")
                self.account.note("compactions", kind == "compaction")

    def _add_prompt(self, number: int, message: Record, parts: list[Record], at: float | None) -> None:
        if not any(get_text(part, "text", "prompt") for part in parts):  # some versions have the text only here
            self.add_content(get_text(get_dict(message, "summary"), "body"), number, at=at)
        for part in parts:
            kind, synthetic = get_text(part, "type"), part.get("synthetic") is True
            if kind == "text" and part.get("ignored") is not True:
                self.add_content(get_text(part, "text"), number, at=at, author="environment" if synthetic else None)
            elif kind == "file":
                name = get_text(part, "filename", "url")
                self.add_user(name, number, author="environment", at=at, parts=_read_attachment(part))
            elif kind == "subtask":
                text = get_text(part, "prompt", "description")
                self.add_user(text, number, author="environment", at=at, extra={"kind": kind})

    def _add_assistant(self, number: int, message: Record, parts: list[Record], created: float | None) -> None:
        """Add one reply of the model, or several steps with one reply each."""
        error = get_dict(message, "error")
        aborted = get_text(error, "name") == "MessageAbortedError"
        self.account.note("turns that were broken off" if aborted else "errors of the model's API", bool(error))
        steps = 0
        kinds = {get_text(part, "type") for part in parts}
        after: list[Record] = []
        for part in parts:
            kind = get_text(part, "type")
            steps += kind == "step-start"
            reply: Record = {"reply": f"{number}:{max(1, steps)}", "began": created if steps < 2 else None}
            begin, end = _read_times(part)
            if kind == "text" and part.get("synthetic") is True:
                after.append(part)  # written by the program in the agent's name
            elif kind in ("text", "reasoning"):
                self.add_agent(number, **{kind: get_text(part, "text")}, at=end or begin, **reply)
            elif kind == "tool":
                self._add_tool(number, part, reply)
            elif kind == "file":
                self.add_agent(number, parts=_read_attachment(part), **reply)
            elif kind == "step-finish":
                tokens = {k: v for k, v in get_dict(part, "tokens").items() if isinstance(v, int)}
                given = {"usage": tokens, "stop_reason": get_text(part, "reason")}
                self.add_agent(number, extra={name: value for name, value in given.items() if value}, **reply)
        if kinds & {"text", "reasoning", "tool"}:
            self.note_model(get_text(message, "modelID") or get_text(get_dict(message, "model"), "modelID", "id"))
            if steps < 2:
                self._set_time(number, message, parts, created)
        for part in after:
            self.add_user(get_text(part, "text"), number, author="environment")

    def _add_tool(self, number: int, part: Record, reply: Record) -> None:
        state = get_dict(part, "state")
        begin, end = _read_times(state)
        call = make_call(get_text(part, "callID", "id"), get_text(part, "tool"), state.get("input"))
        self.add_agent(number, calls=[call], at=begin, **reply)
        metadata, status = get_dict(state, "metadata"), get_text(state, "status")
        if started := get_text(metadata, "sessionId", "sessionID"):
            self._started[started] = Parent(key=self.key, call_id=call.id or None)
        if status not in ("completed", "error", "success"):
            return
        code = get_number(metadata, "exit")
        self.add_result(
            call.id,
            get_text(state, "error" if status == "error" else "output"),
            number,
            is_error=status == "error" or code not in (None, 0),
            at=end,
            seconds=end - begin if begin is not None and end is not None else None,
            parts=[found for each in get_dicts(state, "attachments") if (found := read_part(each)) is not None],
            extra={} if code is None else {"exit_code": int(code)},
        )

    def _set_time(self, number: int, message: Record, parts: list[Record], created: float | None) -> None:
        """Set the time of a message that is one reply: its whole time minus that of its tools. If its end was not
        recorded, it ends with its last part."""
        states = [get_dict(part, "state") for part in parts]
        stamps = [at for each in (*parts, *states) for at in _read_times(each) if at is not None]
        completed = read_time(get_dict(message, "time").get("completed"))
        end = completed if completed is not None else max(stamps, default=None)
        if created is None or end is None:
            return
        busy, until = 0.0, created
        runs = [(start, stop) for start, stop in map(_read_times, states) if start is not None and stop is not None]
        for start, stop in sorted(runs):
            busy += max(0.0, min(stop, end) - max(start, until))
            until = max(until, stop)
        seconds = round(end - created - busy, 6)
        if completed is not None or seconds >= FLUSH_S:
            measured_by = "stamps" if completed is None else "runner"
            self.add_agent(number, reply=f"{number}:1", seconds=seconds, measured_by=measured_by)


def _read_attachment(part: Record) -> list[Any]:
    found = read_part({**part, "type": "file"})
    return [found] if found else []


def _read_times(record: Record) -> tuple[float | None, float | None]:
    """When a part, or the tool that a state is about, began and ended."""
    times = get_dict(record, "time")
    return read_time(times.get("start")), read_time(times.get("end"))


def _get_place(record: Record) -> tuple[float, str]:
    return get_number(get_dict(record, "time"), "created", "start") or 0, get_text(record, "id")


def _read_database(path: Path, account: Account) -> Iterator[StoredSession]:
    with open_database(path, account, "OpenCode") as database:
        for session in sorted(_read_rows(database.execute("SELECT * FROM session"), account), key=_get_place):
            own = (session["id"],)
            parts: dict[str, list[Record]] = {}
            rows = database.execute("SELECT * FROM part WHERE session_id = ? ORDER BY id", own)
            for part in _read_rows(rows, account):
                parts.setdefault(get_text(part, "messageID"), []).append(part)
            messages = _read_rows(database.execute("SELECT * FROM message WHERE session_id = ?", own), account)
            yield session, [(m, parts.pop(m["id"], [])) for m in sorted(messages, key=_get_place)]
            account.ignore("part without a message", sum(map(len, parts.values())))


def _read_rows(rows: sqlite3.Cursor, account: Account) -> Iterator[Record]:
    """Rows in the form of the files: camel-case names, and the fields of the JSON in `data`."""
    names = [column[0] for column in rows.description]
    for row in rows:
        columns: Record = {name: value for name, value in zip(names, row, strict=True) if value is not None}
        columns |= {name: decode_json(columns[name]) for name in ("data", "revert", "model") if name in columns}
        data = columns.pop("data", None)
        if not isinstance(data, dict) and "data" in names:
            account.drop("bad_json")
            continue
        stored: Record = data if isinstance(data, dict) else {}
        times = {name: columns.pop(f"time_{name}") for name in ("created", "updated") if f"time_{name}" in columns}
        record = {**stored, **{_NAMES.get(name, name): value for name, value in columns.items() if value is not None}}
        yield {**record, "id": str(record.get("id") or ""), "time": {**times, **get_dict(stored, "time")}}


def _read_folder(path: Path, account: Account) -> Iterator[StoredSession]:
    """The sessions of a storage folder, oldest first. The parts of a message are in a folder of its own or, in early
    versions, in one for all, or inside the message."""
    loose: dict[str, list[Record]] = {}
    folders = {folder.name: folder for folder in _list_folders(path / "part")}
    for part in _read_files(path / "part", account):
        loose.setdefault(get_text(part, "messageID"), []).append(part)
    for session in _find_sessions(path, account):
        messages: list[tuple[Record, list[Record]]] = []
        for message in _read_files(path / "message" / session["id"], account):
            name = get_text(message, "id")
            parts = get_dicts(message, "parts") + loose.pop(name, [])
            parts += _read_files(place, account) if (place := folders.pop(name, None)) else []
            messages.append((message, parts))
        yield session, sorted(messages, key=lambda each: _get_place(each[0]))
    lost = sum(len(_read_files(folder, account)) for folder in folders.values())
    account.ignore("part without a message", lost + sum(map(len, loose.values())))


def _find_sessions(path: Path, account: Account) -> list[Record]:
    """The record of each session in a folder; just the id of a session that has only messages."""
    found: dict[str, Record] = {}
    for place in _list_folders(path / "session"):
        for session in _read_files(place, account):
            if not (own := get_text(session, "id")) or own in found:
                account.drop("repeated_id" if own else "no_id")
            else:
                found[own] = session
    for folder in _list_folders(path / "message"):
        found.setdefault(folder.name, {"id": folder.name})
    return sorted(found.values(), key=_get_place)


def _list_folders(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if p.is_dir()) if folder.is_dir() else []


def _read_files(folder: Path, account: Account) -> list[Record]:
    def read(file: Path) -> Any:
        try:
            return read_document(file)
        except OSError as error:
            return Drop("unreadable_file", str(error))

    files = sorted(folder.glob("*.json")) if folder.is_dir() else ()
    return [record for _, record in account.drop_unread(map(read, files))]


def _is_export(document: Record) -> bool:
    """Whether a document is what `opencode export` writes: a session, and messages with their parts."""
    first = next(iter(get_dicts(document, "messages")), {})
    return bool(get_text(get_dict(document, "info"), "id") and get_dict(first, "info")) and "parts" in first


def _read_export(path: Path, account: Account) -> Iterator[StoredSession]:
    for _, document in account.drop_unread([read_document(path)]):
        messages = [(_unwrap(m, "parts"), get_dicts(m, "parts")) for m in get_dicts(document, "messages")]
        yield _unwrap(document, "messages"), messages


def _unwrap(record: Record, held: str) -> Record:
    """The fields of `info` and those next to it, without the field (`held`) that `info` describes."""
    return {name: value for name, value in record.items() if name not in ("info", held)} | get_dict(record, "info")


PLUGIN = OpenCode
