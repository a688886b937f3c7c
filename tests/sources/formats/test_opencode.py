"""OpenCode: the database, the folders before it, steps of one message, sessions that sessions start."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from foretrace.core.errors import SourceError
from foretrace.core.trace import Parent
from foretrace.rows.head import read_head
from foretrace.sources import databases
from foretrace.sources.account import Account
from foretrace.sources.formats.opencode import OpenCode
from sources.formats.reading import Read, count, outline, recognize, write_document
from sources.formats.reading import read as read_file

SCHEMA = """
CREATE TABLE project (id text PRIMARY KEY, worktree text NOT NULL, time_created integer NOT NULL);
CREATE TABLE session (id text PRIMARY KEY, project_id text NOT NULL, parent_id text, slug text NOT NULL,
  directory text NOT NULL, title text NOT NULL, version text NOT NULL, revert text, permission text,
  time_created integer NOT NULL, time_updated integer NOT NULL, time_archived integer);
CREATE TABLE message (id text PRIMARY KEY, session_id text NOT NULL, time_created integer NOT NULL,
  time_updated integer NOT NULL, data text NOT NULL);
CREATE TABLE part (id text PRIMARY KEY, message_id text NOT NULL, session_id text NOT NULL,
  time_created integer NOT NULL, time_updated integer NOT NULL, data text NOT NULL);
CREATE INDEX message_session_idx ON message (session_id);
"""
T = 1_771_300_000_000  # ms
Parts = list[dict[str, Any]]
Messages = list[tuple[dict[str, Any], Parts]]


def tool(call_id: str, begin: float, end: float, name: str = "bash", **more: Any) -> dict[str, Any]:
    time = {"start": T + round(begin * 1000), "end": T + round(end * 1000)}
    state = {"status": "completed", "input": {"command": "ls"}, "output": "x", "metadata": {}, "time": time, **more}
    return {"type": "tool", "callID": call_id, "tool": name, "state": state}


def user(text: str, at: float = 0) -> tuple[dict[str, Any], Parts]:
    return {"role": "user", "time": {"created": T + round(at * 1000)}}, [{"type": "text", "text": text}]


def agent(
    *parts: dict[str, Any], at: float = 0, done: float | None = None, **more: Any
) -> tuple[dict[str, Any], Parts]:
    time = {"created": T + round(at * 1000)} | ({} if done is None else {"completed": T + round(done * 1000)})
    return {"role": "assistant", "modelID": "m", "providerID": "p", "time": time, **more}, list(parts)


def text(value: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": value, **more}


def insert(database: sqlite3.Connection, table: str, **row: Any) -> None:
    database.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})", [*row.values()])


def insert_session(database: sqlite3.Connection, own: str, at: int = T, **columns: Any) -> None:
    facts = {"project_id": "p", "slug": "s", "directory": "/home/x/code/app", "title": "t", "version": "1.2.3"}
    insert(database, "session", **{"id": own, **facts, "time_created": at, "time_updated": T, **columns})


def make_database(path: Path, sessions: dict[str, Messages], **columns: dict[str, Any]) -> Path:
    """A database with these sessions; `columns` holds further ones by session."""
    with sqlite3.connect(path) as database:
        database.executescript(SCHEMA)
        for place, (session, messages) in enumerate(sessions.items()):
            insert_session(database, session, T + place, **columns.get(session, {}))
            for number, (message, parts) in enumerate(messages):
                own = {"session_id": session, "time_updated": T}
                stamp = message["time"].get("created", T) if isinstance(message.get("time"), dict) else T
                name = f"msg_{session}_{number}"
                insert(database, "message", id=name, time_created=stamp, data=json.dumps(message), **own)
                for index, part in enumerate(parts):
                    row = {"id": f"prt_{session}_{number}_{index:02}", "message_id": name, "time_created": T}
                    insert(database, "part", **row, data=json.dumps(part), **own)
    database.close()
    return path


def make_folder(path: Path, sessions: dict[str, Messages], *, loose: bool = False) -> Path:
    """The same as files; `loose`: all parts in one folder."""

    def write(value: dict[str, Any], *names: str) -> None:
        file = path.joinpath(*names)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(value))

    for session, messages in sessions.items():
        facts = {"directory": "/home/x/code/app", "version": "1.0.0", "title": "t", "time": {"created": T}}
        write({"id": session, **facts}, "session", "p", f"{session}.json")
        for number, (message, parts) in enumerate(messages):
            own = f"msg_{session}_{number}"
            write({"id": own, "sessionID": session, **message}, "message", session, f"{own}.json")
            for index, part in enumerate(parts):
                name = f"prt_{session}_{number}_{index:02}.json"
                write({"id": name, "messageID": own, **part}, "part", "" if loose else own, name)
    return path


def make_export(path: Path, session: str, messages: Messages) -> Path:
    """What `opencode export` writes."""
    named = [{"info": {"id": f"m{n}", **info}, "parts": parts} for n, (info, parts) in enumerate(messages)]
    info = {"id": session, "directory": "/home/x/code/app", "time": {"created": T}}
    return write_document(path, {"info": info, "messages": named})


def read_database(folder: Path, messages: Messages, **columns: Any) -> Read:
    return read_file("opencode", make_database(folder / "opencode.db", {"ses": messages}, ses=columns))


CONVERSATION: Messages = [
    user("go", 0),
    agent(
        {"type": "step-start"}, {"type": "reasoning", "text": "hm"}, text("I look"),
        tool("a", 2, 3, metadata={"exit": 1}), tool("b", 2.5, 4),
        {"type": "step-finish", "reason": "tool-calls", "tokens": {"input": 5, "output": 2, "cache": {}}},
        at=1, done=4.5,
    ),
    agent({"type": "step-start"}, text("done"), {"type": "patch"}, at=5, done=6),
]  # fmt: skip


@pytest.mark.parametrize("where", ["database", "folder", "loose parts", "export"])
def test_a_session_is_the_same_wherever_it_is_kept(tmp_path: Path, where: str) -> None:
    if where == "database":
        path = make_database(tmp_path / "opencode.db", {"ses": CONVERSATION})
    elif where == "export":
        path = make_export(tmp_path / "export.json", "ses", CONVERSATION)
    else:
        path = make_folder(tmp_path / "storage", {"ses": CONVERSATION}, loose=where == "loose parts")
    assert set(recognize(path)) == {"opencode"}
    found = read_file("opencode", path)
    (trace,) = found.traces
    assert count(trace) == {"turns": 2, "calls": 2, "results": 2}
    assert (trace.key, trace.task.group, trace.provenance.model) == ("opencode@ses", "app", "m")
    said, first, second = trace.messages[1:4]
    assert (said.content, said.reasoning) == ("I look", "hm")
    assert (said.extra["usage"], said.extra["stop_reason"]) == ({"input": 5, "output": 2}, "tool-calls")
    assert (first.tool_s, second.tool_s, first.tool_s_source) == (1, 1.5, "runner") and first.is_error
    assert (said.model_s, said.model_s_source) == (1.5, "runner"), "3.5 s without 2 s in which tools ran side by side"
    assert trace.messages[4].model_s == 1 and found.account.ignored == {"part step-start": 2, "part patch": 1}
    assert found.account.records == 1 + 3 + 10


def test_several_steps_of_one_message_are_several_turns(tmp_path: Path) -> None:
    step = {"type": "step-start"}
    parts = [step, text("one"), tool("a", 2, 3), step, text("two"), tool("b", 4, 5), step, text("three")]
    found = read_database(tmp_path, [user("go"), agent(*parts, at=1, done=6)])
    turns = [(m.content, m.model_s) for m in found.messages if m.role == "assistant"]
    assert turns == [("one", 1), ("two", 1), ("three", None)]


def test_what_the_program_says_is_the_environments(tmp_path: Path) -> None:
    image = {"type": "file", "mime": "image/png", "filename": "a.png", "url": "data:image/png;base64,AAAA"}
    parts = [text("plan only", synthetic=True), text("go"), image, {"type": "subtask", "prompt": "look around"},
             {"type": "compaction"}, text("x", ignored=True)]  # fmt: skip
    asked = ({"role": "user", "time": {"created": T}}, parts)
    summary = agent(text("so far"), at=3, summary=True)
    told = ({"role": "user", "time": {"created": T + 2000}, "summary": {"body": "only here"}}, [])
    found = read_database(tmp_path, [asked, agent(text("yes"), text("go on", synthetic=True), at=1), told, summary])
    assert outline(found.traces[0]) == [
        ("user", "environment", "plan only"), ("user", "user", "go"), ("user", "environment", "a.png"),
        ("user", "environment", "look around"), ("assistant", "model", "yes"), ("user", "environment", "go on"),
        ("user", "user", "only here"),
    ]  # fmt: skip
    assert found.traces[0].extra["notices_at_the_end"] == ["so far"]
    assert found.messages[2].parts[0].sha256 and found.account.notes["compactions"] == 1


def test_errors_questions_and_calls_that_never_ended(tmp_path: Path) -> None:
    parts = [tool("q", 2, 60, name="question"), tool("e", 2, 3, status="error", error="no such file"),
             tool("p", 2, 3, status="running"), {"type": "retry"}, {"type": "brand-new"}]  # fmt: skip
    ends = [agent(text("half"), at=70, error={"name": "MessageAbortedError"}), agent(at=80, error={"name": "APIError"})]
    found = read_database(tmp_path, [user("go"), agent(*parts, at=1), *ends])
    results = [m for m in found.messages if m.role == "tool"]
    assert [(m.content, m.is_error, m.tool_s) for m in results] == [("x", False, None), ("no such file", True, 1)]
    assert found.account.unknown == {"part brand-new": 1}
    assert found.account.notes == {
        "errors of the model's API": 2, "turns that were broken off": 1, "calls without a result": 1,
    }  # fmt: skip


def test_sessions_that_a_session_started_and_what_was_reverted(tmp_path: Path) -> None:
    start = agent(tool("t", 2, 3, name="task", metadata={"sessionId": "child"}), at=1)
    sub = [user("sub"), agent(text("found"), at=1)]
    sessions = {"main": [user("go"), start, user("wrong", 4), agent(text("lost"), at=5)], "child": sub, "orphan": sub}
    path = make_database(
        tmp_path / "opencode.db", sessions, main={"revert": json.dumps({"messageID": "msg_main_2"})},
        child={"parent_id": "main"}, orphan={"parent_id": "gone"},
    )  # fmt: skip
    found = read_file("opencode", path)
    assert [t.parent for t in found.traces] == [
        None, Parent(key="opencode@main", call_id="t"), Parent(key="opencode@gone"),
    ]  # fmt: skip
    assert count(found.traces[0])["turns"] == 1 and found.account.ignored == {"abandoned branch": 4}


def read_error(path: Path) -> str:
    with pytest.raises(SourceError) as caught:
        list(OpenCode().read_traces(path, Account()))
    assert "\n" not in str(caught.value) and str(path) in str(caught.value)
    return str(caught.value)


def test_databases_that_cannot_be_read_are_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_database(tmp_path / "opencode.db", {"ses": CONVERSATION})
    monkeypatch.setattr(databases, "BUSY_S", 0.05)
    writer = sqlite3.connect(path)
    writer.execute("BEGIN EXCLUSIVE")
    assert "locked: close OpenCode" in read_error(path)
    writer.rollback()
    writer.close()
    for data in (b"SQLite format 3\x00" + b"\xff" * 5000, path.read_bytes()[:8192], b"x" * 5000):
        damaged = tmp_path / "opencode-damaged.db"
        damaged.write_bytes(data)
        assert "damaged" in read_error(damaged) or "cannot read" in read_error(damaged)
    other = tmp_path / "other.db"
    sqlite3.connect(other).executescript("CREATE TABLE t (a)").connection.close()
    assert OpenCode().recognize(read_head(other)) is None
    assert "no such table" in read_error(other)


def test_a_database_is_never_written_and_its_log_is_read(tmp_path: Path) -> None:
    path = make_database(tmp_path / "opencode.db", {})
    writer = sqlite3.connect(path)
    writer.execute("PRAGMA journal_mode=WAL")
    writer.execute("PRAGMA wal_autocheckpoint=0")
    insert_session(writer, "ses")
    writer.commit()
    before = path.read_bytes()
    opened = databases.open_database(path, Account(), "OpenCode")
    with pytest.raises(SourceError, match="readonly"), opened as database:
        database.execute("CREATE TABLE x (a)")
    found = read_file("opencode", path)
    assert [d.reason for d in found.drops] == ["no_agent_turn"] and path.read_bytes() == before
    assert {p.name for p in OpenCode().list_companions(path)} == {"opencode.db-wal", "opencode.db-shm"}
    writer.close()


@pytest.mark.parametrize("value", [None, 5, "x", [], {}, [None], [[]], True, -1])
def test_any_value_anywhere(tmp_path: Path, value: Any) -> None:
    good = tool("a", 1, 2, metadata={"exit": 0})
    parts = [{**good, name: value} for name in good]
    parts += [{**good, "state": {**good["state"], name: value}} for name in good["state"]]
    parts += [{"type": kind, "text": value, "time": value, "tokens": value, "url": value, "system": value}
              for kind in ("text", "reasoning", "file", "step-finish", "subtask", "compaction")]  # fmt: skip
    messages: Messages = [user("go"), agent(*parts, text("end"))]
    messages += [({**message, name: value}, parts) for message, parts in messages[:2] for name in message]
    messages += [agent(text("x"), **{name: value}) for name in ("system", "path", "summary")]
    sessions = {"ses": messages}
    for path in (make_database(tmp_path / "opencode.db", sessions, ses={"revert": json.dumps(value)}),
                 make_folder(tmp_path / "storage", sessions)):  # fmt: skip
        found = read_file("opencode", path)
        assert found.traces and found.account.records == 1 + len(messages) + sum(len(p) for _, p in messages)


def test_files_that_are_no_json_and_parts_without_a_message(tmp_path: Path) -> None:
    path = make_folder(tmp_path / "storage", {"ses": CONVERSATION})
    for name, content in {
        "message/ses/msg_x.json": '{"half', "part/prt_lost.json": '{"messageID": "nobody", "type": "text"}',
        "part/msg_gone/prt.json": '{"type": "text", "text": "lost"}', "session/p/none.json": "{}",
    }.items():  # fmt: skip
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_text(content)
    (path / "message" / "bare").mkdir()
    found = read_file("opencode", path)
    assert len(found.traces) == 1 and [d.detail.split(":")[0] for d in found.drops] == ["opencode@bare"]
    assert found.account.dropped == {"bad_json": 1, "no_id": 1}
    assert found.account.ignored["part without a message"] == 2
