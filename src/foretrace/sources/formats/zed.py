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
from foretrace.sources.conversation import Conversation, make_call
from foretrace.sources.formats.opencode import open_database
from foretrace.sources.json_values import (
    as_dict,
    as_list,
    decode_json,
    get_bool,
    get_dict,
    get_dicts,
    get_list,
    get_text,
)
from foretrace.sources.sessions import Session

Row = dict[str, Any]

_MAGIC = b"SQLite format 3\x00"
_MAX_THREAD = 512 << 20
_SPEAKERS = ("User", "Agent", "Resume")


class Zed:
    """One trace per thread. Mentions become part of a message's text. The only time is that of the last change."""

    name = "zed"
    license = None

    def recognize(self, head: FileHead) -> str | None:
        """By a table `threads` with `data_type`, or by messages of `User` and `Agent`."""
        if head.start.startswith(_MAGIC):
            is_there = re.search(rb"CREATE TABLE [^(]{0,40}threads\b", head.start) and b"data_type" in head.start
            return "a SQLite database with threads" if is_there else None
        first = head.first
        said = [*get_list(first, "messages")][:5]
        if not get_text(first, "version") or "updated_at" not in first:
            return None
        if any(isinstance(each, dict) and each.keys() <= {*_SPEAKERS} and each for each in said):
            return "messages of User and Agent, with version and updated_at"
        return None

    def list_companions(self, path: Path) -> Iterable[Path]:
        """The files that SQLite keeps next to a database."""
        return [place for end in ("-wal", "-shm") if (place := path.with_name(path.name + end)).exists()]

    def read_traces(self, path: Path, account: Account) -> Iterator[Trace | Drop]:
        """A trace for each thread."""
        with path.open("rb") as file:
            is_database = file.read(len(_MAGIC)) == _MAGIC
        threads = _read_database(path, account) if is_database else iter([("", read_document(path))])
        for own, thread in threads:
            if isinstance(thread, dict):
                yield _make_trace(own or make_row_id(thread), thread, path, account)
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
    try:
        value = decode_json(data.decode()) if isinstance(data, bytes) else None
    except UnicodeDecodeError as error:
        return Drop("not_utf8", f"thread {own}: {error}")
    return value if value is not None else Drop("bad_json", f"thread {own}: not JSON")


def _make_trace(own: str, thread: Row, path: Path, account: Account) -> Trace | Drop:
    session = Session(source=Zed.name, agent="zed", id=own)
    model = get_dict(thread, "model")
    session.models.update(filter(None, [get_text(model, "model")]))
    session.created_at = get_text(thread, "updated_at") or None
    parent = get_text(get_dict(thread, "subagent_context"), "parent_thread_id")
    session.parent = Parent(key=f"{Zed.name}@{parent}") if parent else None
    worktree = next(iter(get_dicts(get_dict(thread, "initial_project_snapshot"), "worktree_snapshots")), {})
    session.folder = get_text(worktree, "worktree_path", "abs_path")
    session.remote = get_text(get_dict(worktree, "git_state"), "remote_url")
    if title := get_text(thread, "title", "summary"):
        session.extra["title"] = title
    talk = Conversation(account)
    said = get_list(thread, "messages")
    talk.use({**thread, "messages": [message for message in said if not isinstance(message, dict)]})
    for number, message in enumerate(said):
        if message == "Resume":
            session.types["Resume"] += 1
        else:
            _add_message(message, number, talk, session, account)
    return session.make_trace(talk, path)


def _add_message(message: Any, number: int, talk: Conversation, session: Session, account: Account) -> None:
    kind = next((name for name in _SPEAKERS if isinstance(message, dict) and name in message), "")
    session.types[kind or "(no type)"] += 1
    held = get_dict(message, kind)
    if isinstance(message, dict):
        talk.use(message, kind, count=0)
    pieces = get_list(held, "content")
    if kind == "User":
        texts = [get_text(piece, "Text") or get_text(get_dict(piece, "Mention"), "content") for piece in pieces]
        talk.add_user("\n\n".join(filter(None, texts)), number)
        account.note("images, left out", sum(isinstance(piece, dict) and "Image" in piece for piece in pieces))
    elif kind == "Agent":
        calls = [get_dict(piece, "ToolUse") for piece in pieces if get_dict(piece, "ToolUse")]
        thoughts = [get_text(get_dict(piece, "Thinking"), "text") for piece in pieces]
        said = "\n\n".join(text for piece in pieces if (text := get_text(piece, "Text")))
        results = [*get_dict(held, "tool_results").values()]
        _add_reply(talk, number, said, thoughts, calls, results)
    else:
        account.note("messages of an unknown kind")


def _add_reply(
    talk: Conversation, number: int, said: str, thoughts: list[str], calls: list[Row], results: list[Any]
) -> None:
    made = [make_call(get_text(call, "id"), get_text(call, "name"), call.get("input")) for call in calls]
    reasoning = "\n\n".join(filter(None, thoughts)) or None
    talk.add_agent(number, text=said, reasoning=reasoning, calls=made)
    for result in results:
        content = as_dict(result).get("content")
        pieces = as_list(content) if isinstance(content, list) else [content]
        text = "\n".join(filter(None, map(_read_text, pieces)))
        own = get_text(result, "tool_use_id")
        talk.add_result(own, text, number, is_error=get_bool(result, "is_error"))


def _read_text(piece: Any) -> str:
    return piece if isinstance(piece, str) else get_text(piece, "Text", "text")


PLUGIN = Zed
