"""Threads of Zed's agent: the database `threads.db`, where each is JSON (packed with zstd), or a file with one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from foretrace.core.trace import Parent, Trace
from foretrace.rows.base import Drop
from foretrace.rows.files import read_document
from foretrace.rows.head import FileHead
from foretrace.sources.account import Account
from foretrace.sources.base import make_row_id
from foretrace.sources.conversation import make_call
from foretrace.sources.databases import MAGIC, list_database_files, open_database
from foretrace.sources.json_values import decode_json, get_bool, get_dict, get_dicts, get_list, get_text
from foretrace.sources.sessions import NO_TYPE, Session

_MAX_THREAD = 512 << 20
_SPEAKERS = ("User", "Agent", "Resume")


class Zed:
    """One trace per thread. Mentions become part of a message's text. The only time is that of the last change."""

    name = "zed"
    license = None

    def recognize(self, head: FileHead) -> str | None:
        """By a table `threads` with `data_type`, or by messages of `User` and `Agent`."""
        if head.start.startswith(MAGIC):
            is_there = re.search(rb"CREATE TABLE [^(]{0,40}threads\b", head.start) and b"data_type" in head.start
            return "a SQLite database with threads" if is_there else None
        first = head.first
        said = get_dicts(first, "messages")[:5]
        if get_text(first, "version") and "updated_at" in first and any(each.keys() <= {*_SPEAKERS} for each in said):
            return "messages of User and Agent, with version and updated_at"
        return None

    def list_companions(self, path: Path) -> Iterable[Path]:
        return list_database_files(path)

    def read_traces(self, path: Path, account: Account) -> Iterator[Trace | Drop]:
        with path.open("rb") as file:
            is_database = file.read(len(MAGIC)) == MAGIC
        for own, thread in _read_database(path, account) if is_database else [("", read_document(path))]:
            if isinstance(thread, dict):
                yield _read_thread(own or make_row_id(thread), thread, path, account)
            else:
                drop = thread if isinstance(thread, Drop) else Drop("not_an_object", f"thread {own}")
                account.drop(drop.reason)
                yield drop


def _read_database(path: Path, account: Account) -> Iterator[tuple[str, Any]]:
    with open_database(path, account, "Zed") as database:
        for own, kind, data in database.execute("SELECT id, data_type, data FROM threads ORDER BY updated_at, id"):
            yield str(own), _unpack(str(own), kind, data)


def _unpack(own: str, kind: Any, data: Any) -> Any:
    data = data.encode() if isinstance(data, str) else data
    if kind == "zstd" and isinstance(data, bytes):
        import zstandard

        try:
            with zstandard.ZstdDecompressor().stream_reader(data) as reader:
                data = reader.read(_MAX_THREAD)
        except zstandard.ZstdError as error:
            return Drop("truncated_file", f"thread {own}: zstd: damaged: {error}")
    value = decode_json(data.decode(errors="replace")) if isinstance(data, bytes) else None
    return value if value is not None else Drop("bad_json", f"thread {own}: not JSON")


def _read_thread(own: str, thread: dict[str, Any], path: Path, account: Account) -> Trace | Drop:
    session = Session(account, Zed.name, "zed", own)
    session.note_model(get_text(get_dict(thread, "model"), "model"))
    session.note_title(get_text(thread, "title", "summary"))
    session.created_at = get_text(thread, "updated_at") or None
    parent = get_text(get_dict(thread, "subagent_context"), "parent_thread_id")
    session.parent = Parent(key=f"{Zed.name}@{parent}") if parent else None
    worktree = next(iter(get_dicts(get_dict(thread, "initial_project_snapshot"), "worktree_snapshots")), {})
    session.folder = get_text(worktree, "worktree_path", "abs_path")
    session.remote = get_text(get_dict(worktree, "git_state"), "remote_url")
    said = get_list(thread, "messages")
    session.use({**thread, "messages": [message for message in said if not isinstance(message, dict)]})
    for number, message in enumerate(said):
        kind = next((name for name in _SPEAKERS if message == name or get_dict(message, name)), "")
        session.types[kind or NO_TYPE] += 1
        if isinstance(message, dict):
            session.use(message, kind, count=0)
            _add_message(session, number, kind, get_dict(message, kind))
        else:
            account.note("messages of an unknown kind", not kind)
    return session.make_trace(path)


def _add_message(session: Session, number: int, kind: str, held: dict[str, Any]) -> None:
    pieces = get_dicts(held, "content")
    if kind == "User":
        texts = [get_text(piece, "Text") or get_text(get_dict(piece, "Mention"), "content") for piece in pieces]
        session.add_user("\n\n".join(filter(None, texts)), number)
        session.account.note("images, left out", sum("Image" in piece for piece in pieces))
    elif kind == "Agent":
        used = [call for piece in pieces if (call := get_dict(piece, "ToolUse"))]
        session.add_agent(
            number,
            text="\n\n".join(filter(None, (get_text(piece, "Text") for piece in pieces))),
            reasoning="\n\n".join(filter(None, (get_text(get_dict(p, "Thinking"), "text") for p in pieces))),
            calls=[make_call(get_text(call, "id"), get_text(call, "name"), call.get("input")) for call in used],
        )
        for result in get_dict(held, "tool_results").values():
            content = result.get("content") if isinstance(result, dict) else None
            shown = content if isinstance(content, list) else [content]
            text = "\n".join(filter(None, (p if isinstance(p, str) else get_text(p, "Text", "text") for p in shown)))
            failed = get_bool(result, "is_error")
            session.add_result(get_text(result, "tool_use_id"), text, number, is_error=failed)
    else:
        session.account.note("messages of an unknown kind")


PLUGIN = Zed
