"""Sessions of OpenCode: opencode.db since 1.2, before that ~/.local/share/opencode/storage; and `opencode export`."""

from __future__ import annotations

import functools
import sqlite3
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from foretrace.core.errors import SourceError
from foretrace.core.trace import Parent, Trace
from foretrace.rows.base import Drop
from foretrace.rows.files import read_document
from foretrace.rows.head import FileHead, read_head
from foretrace.sources.account import Account
from foretrace.sources.content_blocks import read_part
from foretrace.sources.conversation import FLUSH_S, Conversation, make_call, read_time, write_time
from foretrace.sources.json_values import decode_json, get_dict, get_dicts, get_number, get_text
from foretrace.sources.sessions import Session, add_user_content

_MAGIC = b"SQLite format 3\x00"
_IGNORED = frozenset({"snapshot", "patch", "agent", "step-start", "retry", "compaction"})
_ASKED = frozenset({"text", "file", "subtask"})
_SAID = frozenset({"text", "reasoning", "tool", "file", "step-finish"})
"""Types of parts: `_ASKED` in a user's message, `_SAID` in a reply."""
_PERSON_TOOLS = frozenset({"question", "plan_exit", "plan_enter"})
BUSY_S = 5.0
"""Seconds to wait for OpenCode to finish writing."""


class OpenCode:
    """A database or storage folder has many sessions; a session's parent is the one that started it, if any."""

    name = "opencode"
    license = None

    def recognize(self, head: FileHead) -> str | None:
        """By the tables of the database, the folders of the storage, or the two lists of an export."""
        if head.is_folder:
            if {"session/", "message/"} <= {*head.names} and {"part/", "migration", "project/"} & {*head.names}:
                return "folders session, message and part"
            return None
        if is_export(head.document or {}):
            return "a document with info, and messages of info and parts"
        if not head.start.startswith(_MAGIC):
            return None
        if all(name in head.start for name in (b"session_id", b"message_id", b"project_id", b"time_created")):
            return "a SQLite database with sessions, messages and parts"
        return "a SQLite database named opencode" if head.path.name.startswith("opencode") else None

    def list_companions(self, path: Path) -> Iterable[Path]:
        """The files that SQLite keeps next to a database."""
        return [p for suffix in ("-wal", "-shm", "-journal") if (p := path.with_name(path.name + suffix)).is_file()]

    def read_traces(self, path: Path, account: Account) -> Iterator[Trace | Drop]:
        """A trace for each session.

        Raises:
            SourceError: the database is locked or damaged.
        """
        started: dict[str, Parent] = {}
        for stored in _read_stored(path, account):
            talk = _Talk(stored, account, started)
            for number, message in enumerate(stored.messages):
                talk.add(number, message)
            yield talk.session.make_trace(talk.talk, path)


def _read_stored(path: Path, account: Account) -> Iterator[StoredSession]:
    if path.is_dir():
        return read_folder(path, account)
    return read_export(path, account) if is_export(read_head(path).document or {}) else read_database(path, account)


class _Talk:
    """Builds the conversation of one session; adds calls that start other sessions to `started`."""

    def __init__(self, stored: StoredSession, account: Account, started: dict[str, Parent]) -> None:
        session = stored.session
        own, parent = get_text(session, "id"), get_text(session, "parentID")
        self.session = Session(
            source=OpenCode.name,
            agent="opencode",
            id=own,
            folder=get_text(session, "directory"),
            version=get_text(session, "version"),
            parent=started.get(own, Parent(key=f"{OpenCode.name}@{parent}")) if parent else None,
            extra={"title": title} if (title := get_text(session, "title")) else {},
        )
        created = read_time(get_dict(session, "time").get("created"))
        self.session.created_at = None if created is None else write_time(created)
        self.talk = Conversation(account)
        if "made_up" not in session:
            self.talk.use(session)
        self.account = account
        self._started = started
        self._reverted_at = get_text(get_dict(session, "revert"), "messageID")
        self._is_reverted = False

    def add(self, number: int, stored: StoredMessage) -> None:
        message, parts = stored
        role = get_text(message, "role")
        self.session.types[f"message {role}".strip()] += 1
        self._is_reverted = self._is_reverted or (
            bool(self._reverted_at) and get_text(message, "id") == self._reverted_at
        )
        if self._is_reverted:
            self.account.ignore("abandoned branch", 1 + len(parts))
            self.account.note("abandoned branches", get_text(message, "id") == self._reverted_at)
            return
        at = read_time(get_dict(message, "time").get("created"))
        path = get_dict(message, "path")
        self.session.folder = self.session.folder or get_text(path, "root", "cwd") or get_text(message, "path")
        if role == "user":
            self._use(message, parts, _ASKED)
            self._add_user(number, message, parts, at)
        elif role == "assistant" and message.get("summary") is True:
            self.talk.use({**message, "parts": parts}, count=1 + len(parts))
            text = "\n\n".join(filter(None, (get_text(p, "text") for p in parts if get_text(p, "type") == "text")))
            self.talk.add_user(text, number, author="environment", at=at, extra={"kind": "compact_summary"})
        elif role == "assistant":
            self._use(message, parts, _SAID)
            _Reply(self, number, message, parts).add()
        else:
            self.account.meet_unknown(f"message {role}")
            for _ in parts:
                self.account.ignore("part of an unknown message")

    def _use(self, message: dict[str, Any], parts: list[dict[str, Any]], kinds: frozenset[str]) -> None:
        """Use a message with its parts of these kinds; count the other parts."""
        used = [part for part in parts if get_text(part, "type") in kinds]
        self.talk.use({**message, "parts": used}, count=1 + len(used))
        for part in parts:
            kind = get_text(part, "type")
            self.session.types[f"part {kind}".strip()] += 1
            if kind not in kinds:
                self._count_other(kind)

    def _add_user(self, number: int, message: dict[str, Any], parts: list[dict[str, Any]], at: float | None) -> None:
        if not any(get_text(part, "text", "prompt") for part in parts):  # some versions have the text only here
            add_user_content(self.talk, get_text(get_dict(message, "summary"), "body"), number, at=at)
        for part in parts:
            kind = get_text(part, "type")
            if kind == "text":
                author = "environment" if part.get("synthetic") is True else None
                if part.get("ignored") is not True:
                    add_user_content(self.talk, get_text(part, "text"), number, at=at, author=author)
            elif kind == "file":
                found = read_part({**part, "type": "file"})
                name = get_text(part, "filename", "url")
                self.talk.add_user(name, number, author="environment", at=at, parts=[found] if found else [])
            elif kind == "subtask":
                text = get_text(part, "prompt", "description")
                self.talk.add_user(text, number, author="environment", at=at, extra={"kind": kind})

    def _count_other(self, kind: str) -> None:
        """Count a part that does not belong to the conversation."""
        if kind not in _IGNORED:
            self.account.meet_unknown(f"part {kind}")
            return
        self.account.ignore(f"part {kind}")
        self.account.note("errors of the model's API", kind == "retry")
        self.account.note("compactions", kind == "compaction")

    def note_error(self, error: dict[str, Any]) -> None:
        """Note how a reply failed, if it did."""
        aborted = get_text(error, "name") == "MessageAbortedError"
        self.account.note("turns that were broken off" if aborted else "errors of the model's API", bool(error))

    def note_started(self, session: str, call_id: str) -> None:
        """Remember the call that started another session."""
        self._started[session] = Parent(key=self.session.key, call_id=call_id or None)


class _Reply:
    """Adds an assistant message: one reply of the model, or several steps with one reply each."""

    def __init__(self, talk: _Talk, number: int, message: dict[str, Any], parts: list[dict[str, Any]]) -> None:
        self._talk = talk
        self._number = number
        self._message = message
        self._parts = parts
        self._created = read_time(get_dict(message, "time").get("created"))
        self._step = 0

    def add(self) -> None:
        talk = self._talk
        message = self._message
        talk.note_error(get_dict(message, "error"))
        model = get_text(message, "modelID") or get_text(get_dict(message, "model"), "modelID", "id")
        steps = max(1, sum(get_text(part, "type") == "step-start" for part in self._parts))
        seen: set[str] = set()
        after: list[dict[str, Any]] = []
        for part in self._parts:
            kind = get_text(part, "type")
            if kind == "step-start" and kind in seen:
                self._step += 1
            seen.add(kind)
            if kind == "text" and part.get("synthetic") is True:
                after.append(part)  # written by the program in the agent's name
            elif kind in _SAID:
                self._add_part(kind, part)
        if not seen & {"text", "reasoning", "tool"} and (body := get_text(get_dict(message, "summary"), "body")):
            self._add_agent(text=body)
            seen.add("text")
        if seen & {"text", "reasoning", "tool"}:
            talk.session.models.update([model] if model else [])
            if steps == 1:
                self._set_time()
        for part in after:
            talk.talk.add_user(get_text(part, "text"), self._number, author="environment")

    def _add_agent(self, **more: Any) -> None:
        reply = f"{self._number}:{self._step}"
        began = self._created if self._step == 0 else None
        self._talk.talk.add_agent(self._number, reply=reply, began=began, **more)

    def _add_part(self, kind: str, part: dict[str, Any]) -> None:
        begin, end = _read_times(part)
        at = end or begin
        if kind == "text":
            self._add_agent(text=get_text(part, "text"), at=at)
        elif kind == "reasoning":
            self._add_agent(reasoning=get_text(part, "text") or None, at=at)
        elif kind == "tool":
            self._add_call(part)
        elif kind == "file":
            found = read_part({**part, "type": "file"})
            self._add_agent(parts=[found] if found else [])
        else:
            tokens = {k: v for k, v in get_dict(part, "tokens").items() if isinstance(v, int)}
            given = {"usage": tokens, "stop_reason": get_text(part, "reason")}
            self._add_agent(extra={name: value for name, value in given.items() if value})

    def _add_call(self, part: dict[str, Any]) -> None:
        talk, state = self._talk.talk, get_dict(part, "state")
        begin, end = _read_times(state)
        call = make_call(get_text(part, "callID", "id"), get_text(part, "tool"), state.get("input"))
        waits = [call.id] if call.name in _PERSON_TOOLS else []
        self._add_agent(calls=[call], at=begin, waits_for_person=waits)
        metadata = get_dict(state, "metadata")
        if started := get_text(metadata, "sessionId", "sessionID"):
            self._talk.note_started(started, call.id)
        status = get_text(state, "status")
        if status not in ("completed", "error", "success"):
            return
        code = get_number(metadata, "exit")
        talk.add_result(
            call.id,
            get_text(state, "error") if status == "error" else get_text(state, "output"),
            self._number,
            is_error=status == "error" or code not in (None, 0),
            at=end,
            seconds=end - begin if begin is not None and end is not None else None,
            parts=[found for each in get_dicts(state, "attachments") if (found := read_part(each)) is not None],
            extra={} if code is None else {"exit_code": int(code)},
        )

    def _set_time(self) -> None:
        """Set the time of a message that is one reply: its whole time minus that of its tools. If its end was not
        recorded, it ends with its last part."""
        states = [get_dict(part, "state") for part in self._parts]
        stamps = [at for each in (*self._parts, *states) for at in _read_times(each) if at is not None]
        completed = read_time(get_dict(self._message, "time").get("completed"))
        end = completed if completed is not None else max(stamps, default=None)
        if self._created is None or end is None:
            return
        busy, until = 0.0, self._created
        runs = [(start, stop) for start, stop in map(_read_times, states) if start is not None and stop is not None]
        for tool_begin, tool_end in sorted(runs):
            busy += max(0.0, min(tool_end, end) - max(tool_begin, until))
            until = max(until, tool_end)
        seconds = round(end - self._created - busy, 6)
        if completed is not None or seconds >= FLUSH_S:
            self._add_agent(seconds=seconds, measured_by="runner" if completed is not None else "stamps")


def _read_times(record: dict[str, Any]) -> tuple[float | None, float | None]:
    """When a part, or the tool that a state is about, began and ended."""
    times = get_dict(record, "time")
    return read_time(times.get("start")), read_time(times.get("end"))


class StoredMessage(NamedTuple):
    """A message and its parts, in their order."""

    message: dict[str, Any]
    parts: list[dict[str, Any]]


class StoredSession(NamedTuple):
    """A session and its messages, in their order."""

    session: dict[str, Any]
    messages: list[StoredMessage]


def read_database(path: Path, account: Account) -> Iterator[StoredSession]:
    """The sessions of a database, oldest first; it is opened read-only.

    Raises:
        SourceError: it is locked, damaged, or holds other tables.
    """
    with open_database(path, account, "OpenCode") as database:
        database.text_factory = functools.partial(str, encoding="utf-8", errors="replace")
        for session in _read_rows(database.execute("SELECT * FROM session"), account):
            own = (session["id"],)
            parts: dict[str, list[dict[str, Any]]] = {}
            for part in _read_rows(
                database.execute("SELECT * FROM part WHERE session_id = ? ORDER BY id", own), account
            ):
                parts.setdefault(get_text(part, "messageID"), []).append(part)
            messages = _read_rows(database.execute("SELECT * FROM message WHERE session_id = ?", own), account)
            for part_list in parts.values():
                part_list.sort(key=lambda part: get_text(part, "id"))
            yield StoredSession(session, [StoredMessage(m, parts.pop(m["id"], [])) for m in messages])
            _count_lost(parts, account)


def read_folder(path: Path, account: Account) -> Iterator[StoredSession]:
    """The sessions of a storage folder, oldest first, in any of its layouts."""
    loose: dict[str, list[dict[str, Any]]] = {}
    folders = {folder.name: folder for folder in _list_folders(path / "part")}
    for part in _read_files(path / "part", account):
        loose.setdefault(get_text(part, "messageID"), []).append(part)
    for session in _find_sessions(path, account):
        own = session["id"]
        messages: list[StoredMessage] = []
        for message in _read_files(path / "message" / own, account):
            name = get_text(message, "id")
            parts = get_dicts(message, "parts") + loose.pop(name, [])
            parts += _read_files(place, account) if (place := folders.pop(name, None)) else []
            messages.append(StoredMessage(message, parts))
        yield StoredSession(session, sorted(messages, key=lambda m: _get_place(m.message)))
    for name, folder in folders.items():
        loose.setdefault(name, []).extend(_read_files(folder, account))
    _count_lost(loose, account)


def is_export(document: dict[str, Any]) -> bool:
    """Whether a document is what `opencode export` writes: a session, and messages with their parts."""
    first = next(iter(get_dicts(document, "messages")), {})
    return bool(get_text(get_dict(document, "info"), "id") and get_dict(first, "info")) and "parts" in first


def read_export(path: Path, account: Account) -> Iterator[StoredSession]:
    """The one session of an export."""
    document = read_document(path)
    if isinstance(document, Drop) or not isinstance(document, dict):
        account.drop(document.reason if isinstance(document, Drop) else "not_an_object")
        return
    messages = [StoredMessage(_unwrap(m, "parts"), get_dicts(m, "parts")) for m in get_dicts(document, "messages")]
    yield StoredSession(_unwrap(document, "messages"), messages)


def _unwrap(record: dict[str, Any], held: str) -> dict[str, Any]:
    """The fields of `info` and those next to it, without the field (`held`) that `info` describes."""
    return {name: value for name, value in record.items() if name not in ("info", held)} | get_dict(record, "info")


def _count_lost(parts: dict[str, list[dict[str, Any]]], account: Account) -> None:
    if count := sum(map(len, parts.values())):
        account.ignore("part without a message", count)


@contextmanager
def open_database(path: Path, account: Account, program: str) -> Generator[sqlite3.Connection]:
    """Open a program's database read-only.

    Raises:
        SourceError: it is locked, damaged, or holds other tables.
    """
    try:
        with closing(_connect(f"file:{quote(str(path.absolute()))}", account)) as database:
            yield database
    except sqlite3.OperationalError as error:
        if "locked" in str(error) or "busy" in str(error):
            raise SourceError(f"{path}: the database is locked: close {program}, or import a copy of it") from error
        raise SourceError(f"{path}: cannot read as a database of {program}: {error}") from error
    except sqlite3.DatabaseError as error:
        raise SourceError(f"{path}: the database is damaged: {error}") from error


def _connect(address: str, account: Account) -> sqlite3.Connection:
    database = sqlite3.connect(f"{address}?mode=ro", uri=True, timeout=BUSY_S)
    try:
        database.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
    except sqlite3.OperationalError as error:
        database.close()
        if "unable to open" not in str(error):
            raise
        # In a read-only folder, SQLite cannot open the write-ahead log of a database.
        account.note("databases that were read without their latest changes")
        return sqlite3.connect(f"{address}?immutable=1", uri=True)
    return database


_COLUMNS = {
    "session_id": "sessionID", "message_id": "messageID", "parent_id": "parentID", "project_id": "projectID",
}  # fmt: skip
_JSON_COLUMNS = ("data", "revert", "model")


def _read_rows(rows: sqlite3.Cursor, account: Account) -> list[dict[str, Any]]:
    """Rows in the form of the files: camel-case names, and the fields of the JSON in `data`; sorted by time and id."""
    found: list[dict[str, Any]] = []
    names = [column[0] for column in rows.description]
    for row in rows:
        columns: dict[str, Any] = {name: value for name, value in zip(names, row, strict=True) if value is not None}
        for name in _JSON_COLUMNS:
            columns[name] = decode_json(columns.get(name))
        data = columns.pop("data")
        if not isinstance(data, dict) and "data" in names:
            account.drop("bad_json")
            continue
        stored: dict[str, Any] = data if isinstance(data, dict) else {}
        times = {name: columns.pop(f"time_{name}") for name in ("created", "updated") if f"time_{name}" in columns}
        record = {**stored, **{_COLUMNS.get(name, name): value for name, value in columns.items() if value is not None}}
        found.append({**record, "id": str(record.get("id") or ""), "time": {**times, **get_dict(stored, "time")}})
    return sorted(found, key=_get_place)


def _get_place(record: dict[str, Any]) -> tuple[float, str]:
    return get_number(get_dict(record, "time"), "created", "start") or 0, get_text(record, "id")


def _find_sessions(path: Path, account: Account) -> list[dict[str, Any]]:
    """The record of each session in a folder; just the id of a session that has only messages."""
    found: dict[str, dict[str, Any]] = {}
    for place in _list_folders(path / "session"):
        for session in _read_files(place, account):
            if not (own := get_text(session, "id")) or own in found:
                account.drop("repeated_id" if own else "no_id")
            else:
                found[own] = session
    for folder in _list_folders(path / "message"):
        found.setdefault(folder.name, {"id": folder.name, "made_up": True})
    return sorted(found.values(), key=_get_place)


def _list_folders(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if p.is_dir()) if folder.is_dir() else []


def _read_files(folder: Path, account: Account) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for file in sorted(folder.glob("*.json")) if folder.is_dir() else ():
        try:
            value = read_document(file)
        except OSError as error:
            value = Drop("unreadable_file", str(error))
        if isinstance(value, dict):
            found.append(value)
        else:
            account.drop(value.reason if isinstance(value, Drop) else "not_an_object")
    return found


PLUGIN = OpenCode
