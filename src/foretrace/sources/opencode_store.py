"""Where OpenCode keeps its sessions: a SQLite database since 1.2, folders of JSON files before. Both give the same."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from foretrace.core.errors import SourceError
from foretrace.rows.base import Drop
from foretrace.rows.files import read_document
from foretrace.sources.account import Account
from foretrace.sources.json_values import get_dict, get_dicts, get_number, get_text

BUSY_S = 5.0
"""Seconds to wait for OpenCode to finish writing."""


class StoredMessage(NamedTuple):
    """A message and its parts, in their order."""

    message: dict[str, Any]
    parts: list[dict[str, Any]]


class StoredSession(NamedTuple):
    """A session and its messages, in their order."""

    session: dict[str, Any]
    messages: list[StoredMessage]


def read_database(path: Path, account: Account) -> Iterator[StoredSession]:
    """The sessions of a database, oldest first, which is opened for reading only.

    Raises:
        SourceError: it is locked, damaged, or holds other tables.
    """
    with _explain(path), closing(open_database(path, account)) as database:
        database.text_factory = _read_text
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
        for folder in (path / "message" / own, path / "session" / "message" / own):
            for message in _read_files(folder, account):
                name = get_text(message, "id")
                parts = get_dicts(message, "parts") + loose.pop(name, [])
                for place in (folders.pop(name, None), path / "session" / "part" / own / name):
                    parts += _read_files(place, account) if name and place else []
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
    """What `info` says, with what stands beside it, but for what it is the info of."""
    return {name: value for name, value in record.items() if name not in ("info", held)} | get_dict(record, "info")


def _count_lost(parts: dict[str, list[dict[str, Any]]], account: Account) -> None:
    if count := sum(map(len, parts.values())):
        account.ignore("part without a message", count)


def _read_text(data: bytes) -> str:
    return data.decode(errors="replace")


def open_database(path: Path, account: Account) -> sqlite3.Connection:
    """A database, for reading only.

    Raises:
        sqlite3.Error: it is locked, or is none.
    """
    address = f"file:{quote(str(path.absolute()))}"
    database = sqlite3.connect(f"{address}?mode=ro", uri=True, timeout=BUSY_S)
    try:
        database.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
    except sqlite3.OperationalError as error:
        database.close()
        if "unable to open" not in str(error):
            raise
        # Beside a database in a folder that is read-only, its write-ahead log cannot be opened.
        account.note("databases that were read without their latest changes")
        return sqlite3.connect(f"{address}?immutable=1", uri=True)
    return database


@contextmanager
def _explain(path: Path) -> Generator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        text = str(error)
        if "locked" in text or "busy" in text:
            raise SourceError(f"{path}: the database is locked: close OpenCode, or import a copy of it") from error
        raise SourceError(f"{path}: cannot read as a database of OpenCode: {text}") from error
    except sqlite3.DatabaseError as error:
        raise SourceError(f"{path}: the database is damaged: {error}") from error


_COLUMNS = {
    "session_id": "sessionID", "message_id": "messageID", "parent_id": "parentID", "project_id": "projectID",
}  # fmt: skip
_JSON_COLUMNS = ("data", "revert", "model")


def _read_rows(rows: sqlite3.Cursor, account: Account) -> list[dict[str, Any]]:
    """Rows as the files have them: names in camel case, and what the JSON in `data` holds; sorted by time and id."""
    found: list[dict[str, Any]] = []
    names = [column[0] for column in rows.description]
    for row in rows:
        columns: dict[str, Any] = {name: value for name, value in zip(names, row, strict=True) if value is not None}
        for name in _JSON_COLUMNS:
            columns[name] = _decode(columns.get(name))
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


def _decode(value: Any) -> Any:
    if not isinstance(value, (str, bytes)):
        return value
    try:
        return msgspec.json.decode(value)
    except (ValueError, RecursionError):
        return None


def _find_sessions(path: Path, account: Account) -> list[dict[str, Any]]:
    """What the folder says of each session; of one that has messages only, its id."""
    found: dict[str, dict[str, Any]] = {}
    for place in _list_folders(path / "session"):
        for session in _read_files(place, account) if place.name not in ("message", "part") else ():
            if not (own := get_text(session, "id")) or own in found:
                account.drop("repeated_id" if own else "no_id")
            else:
                found[own] = session
    for folder in [*_list_folders(path / "message"), *_list_folders(path / "session" / "message")]:
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
