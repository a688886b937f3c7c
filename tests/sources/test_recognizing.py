"""Which source takes which file: one claim takes it, with two or none it is listed; folders are walked once."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foretrace.core.errors import SourceError
from foretrace.core.plugins import load_plugin, plugin_names
from foretrace.rows.head import FileHead, read_head
from foretrace.sources import recognizing
from foretrace.sources.recognizing import FoundFiles, ask_sources, find_files
from sources.raw_rows import FINISH, TRACE_ROW, bench_row, swe_row, swe_rows, tool_messages, write_jsonl, xml_messages
from sources.session_formats import Chatter, EventFolder, Talks, talk, write_talk

CHAT_ROW = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}
SHAREGPT_ROW = {"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]}


def row_sources() -> list[Any]:
    return [load_plugin("source", name)() for name in ("chat", "jsonl", "swe_smith", "toolbench")]


def find(*paths: Path, **options: Any) -> FoundFiles:
    return find_files(paths, [*row_sources(), Talks(), EventFolder()], **options)


def named(found: FoundFiles) -> dict[str, str]:
    return {file.path.name: file.source for file in found.files}


@pytest.mark.parametrize(
    ("row", "source"),
    [
        (CHAT_ROW, "chat"),
        (SHAREGPT_ROW, "chat"),
        ({"messages": json.dumps(CHAT_ROW["messages"])}, "chat"),
        (swe_row(xml_messages(["ls"])), "swe_smith"),
        (swe_row(json.dumps(tool_messages(["ls"]))), "swe_smith"),
        ({**swe_row(xml_messages(["ls"])), "exit_status": "x"}, "chat"),
        ({**swe_row(xml_messages(["ls"])), "instance_id": "acme__gadget-12"}, "chat"),
        (bench_row([FINISH]), "toolbench"),
        (bench_row([FINISH], parallel=False), "toolbench"),
        (TRACE_ROW, "jsonl"),
        ({"messages": []}, None),
        ({"messages": [{"role": "wizard", "content": "x"}]}, None),
        ({"messages": [{"role": "user", "content": "x"}]}, None),
        ({"messages": [{"role": "assistant", "text": "x"}]}, "chat"),
        ({"messages": [{"role": "agent", "says": "x"}]}, None),
        ({"messages": "[" * 10_000}, None),
        ({"text": "x"}, None),
    ],
)
def test_rows_are_known_by_their_structure(tmp_path: Path, row: dict[str, Any], source: str | None) -> None:
    for name, data in (("rows.jsonl", [{"other": 1}, row]), ("rows.json", None), ("data.json", None)):
        path = tmp_path / name
        if data is not None:
            write_jsonl(path, data)
        else:
            path.write_text(json.dumps([row] if name == "rows.json" else {"data": [row]}, indent=1))
        claims = ask_sources(read_head(path), row_sources())
        assert list(claims) == ([source] if source else []), name
    assert all(0 < len(reason) < 200 for reason in claims.values())


def test_rows_of_parquet_and_rows_longer_than_the_head(tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_pylist([CHAT_ROW] * 9), tmp_path / "a.parquet")
    long = {"messages": [{"role": "user", "content": "x" * 300_000}, {"role": "assistant", "content": "y"}]}
    write_jsonl(tmp_path / "b.jsonl", [long])
    write_jsonl(tmp_path / "c.jsonl", [{"messages": json.dumps(long["messages"])}])
    assert named(find(tmp_path)) == {"a.parquet": "chat", "b.jsonl": "chat", "c.jsonl": "chat"}
    (tmp_path / "a.parquet").write_bytes(b"PAR1 and no more")
    assert find(tmp_path / "a.parquet").unknown_count == 1


def test_a_folder_is_walked_and_what_none_knows_is_listed(tmp_path: Path) -> None:
    write_talk(tmp_path / "x" / "one.jsonl", talk("1", 1))
    write_jsonl(tmp_path / "x" / "rows.jsonl", swe_rows(1))
    (tmp_path / "x" / "y").mkdir()
    (tmp_path / "x" / "y" / "notes.md").write_text("# notes")
    (tmp_path / "x" / "y" / "empty").write_text("")
    (tmp_path / "x" / "y" / "blob").write_bytes(b"\x7fELF\x00\x00")
    (tmp_path / "x" / "y" / "other.json").write_text('{"a": 1, "b": {}}')
    (tmp_path / "x" / ".git").mkdir()
    (tmp_path / "x" / ".git" / "config").write_text("x")
    found = find(tmp_path)
    assert named(found) == {"one.jsonl": "talks", "rows.jsonl": "swe_smith"}
    assert found.files[0].reason == "a record has talk and kind"
    assert {u.path.name: u.seen for u in found.unknown} == {
        "blob": "binary",
        "empty": "empty",
        "notes.md": "text without a JSON object",
        "other.json": "a first record with a, b",
    }
    assert found.unknown_count == 4 and {u.size for u in found.unknown} == {0, 6, 7, 17}


def test_a_file_that_two_sources_know_is_left_out_and_named_with_both(tmp_path: Path) -> None:
    write_talk(tmp_path / "a.jsonl", talk("1", 1))
    write_talk(tmp_path / "b.jsonl", talk("2", 1))
    write_jsonl(tmp_path / "rows.jsonl", swe_rows(1))
    found = find_files([tmp_path], [Talks(), Chatter(), *row_sources()])
    assert named(found) == {"rows.jsonl": "swe_smith"} and found.unknown_count == 0
    assert [file.path.name for file in found.ambiguous] == ["a.jsonl", "b.jsonl"]
    with pytest.raises(SourceError) as caught:
        found.check_not_ambiguous()
    message = str(caught.value)
    assert "a.jsonl: may be talks (a record has talk and kind) or chatter (a record has talk and kind)" in message
    assert "1 others" in message and "\n" not in message
    assert named(find_files([tmp_path / "a.jsonl"], [Chatter()], is_named=True)) == {"a.jsonl": "chatter"}


def test_a_folder_that_is_known_is_one_input_and_not_walked(tmp_path: Path) -> None:
    write_talk(tmp_path / "run" / "events" / "1.jsonl", talk("1", 1))
    (tmp_path / "run" / "index.json").write_text("{}")
    found = find(tmp_path)
    assert [(f.path.name, f.source, f.reason) for f in found.files] == [
        ("run", "event_folder", "a folder with index.json and events/")
    ]
    assert found.unknown_count == 0


def test_companions_are_no_inputs_of_their_own(tmp_path: Path) -> None:
    write_talk(tmp_path / "a.jsonl", talk("1", 1))
    write_talk(tmp_path / "a.part1.jsonl", talk("1", 1))
    (tmp_path / "a.part2.jsonl").write_text("{}")
    found = find(tmp_path)
    assert named(found) == {"a.jsonl": "talks"} and (found.companions, found.unknown_count) == (2, 0)


def test_links_loops_and_special_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_talk(tmp_path / "d" / "a.jsonl", talk("1", 1))
    (tmp_path / "d" / "loop").symlink_to(tmp_path / "d")
    (tmp_path / "d" / "up").symlink_to(tmp_path)
    (tmp_path / "d" / "again.jsonl").symlink_to(tmp_path / "d" / "a.jsonl")
    (tmp_path / "d" / "self").symlink_to(tmp_path / "d" / "self")
    (tmp_path / "d" / "gone").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "d" / "pipe")
    monkeypatch.chdir(tmp_path)  # the name of a socket may not be long
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        found = find(tmp_path)
    assert [f.path.name for f in found.files] == ["a.jsonl"]
    assert sorted(u.path.name for u in found.unknown) == ["gone", "pipe", "self", "socket"]
    assert [f.path.name for f in find(tmp_path / "d" / "a.jsonl", tmp_path / "d").files] == ["a.jsonl"]
    seen = {u.path.name: u.seen for u in found.unknown}
    assert (seen["pipe"], seen["gone"]) == ("no regular file", "No such file or directory")


def test_what_cannot_be_read_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_talk(tmp_path / "a.jsonl", talk("1", 1))

    def refuse(name: Path) -> FileHead:
        if name == path:
            raise SourceError(f"{name}: cannot read: Permission denied")
        return read_head(name)

    monkeypatch.setattr(recognizing, "read_head", refuse)
    assert [u.seen for u in find(tmp_path).unknown] == ["cannot read: Permission denied"]


def test_a_walk_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path.joinpath(*["d"] * 80)
    write_talk(deep / "a.jsonl", talk("1", 1))
    assert named(find(tmp_path)) == {"a.jsonl": "talks"}
    for number in range(12):
        write_talk(tmp_path / f"{number}.jsonl", [])
    monkeypatch.setattr(recognizing, "MAX_LISTED", 5)
    assert (len(find(tmp_path).unknown), find(tmp_path).unknown_count) == (5, 12)
    monkeypatch.setattr(recognizing, "MAX_FILES", 10)
    with pytest.raises(SourceError, match="more than 10 files"):
        find(tmp_path)


def test_a_traces_folder_and_a_missing_path(tmp_path: Path) -> None:
    (tmp_path / "t" / "shard-00").mkdir(parents=True)
    (tmp_path / "t" / "manifest.json").write_text("{}")
    assert "a traces folder" in find(tmp_path).unknown[0].seen
    with pytest.raises(SourceError, match="no such file or folder"):
        find(tmp_path / "nothing")


def test_rows_under_a_name_that_no_reader_takes(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "rows.log", swe_rows(1))
    assert find(tmp_path).unknown[0].seen.startswith("rows of swe_smith (messages, and the instance_id")


def test_files_that_were_last_changed_before_a_date(tmp_path: Path) -> None:
    old, new = write_talk(tmp_path / "old.jsonl", talk("1", 1)), write_talk(tmp_path / "new.jsonl", talk("2", 1))
    part = write_talk(tmp_path / "old2.part1.jsonl", talk("3", 1))
    older = write_talk(tmp_path / "old2.jsonl", talk("3", 1))
    for path, stamp in ((old, 1000), (older, 1000), (part, 3000), (new, 3000)):
        os.utime(path, (stamp, stamp))
    found = find(tmp_path, since=2000)
    assert named(found) == {"new.jsonl": "talks", "old2.jsonl": "talks"} and found.too_old == 1


HOSTILE = [
    b"[" * 300_000,
    b'{"messages": ' * 9999,
    b'{"talk": ' + b"[" * 99_999,
    b"\xff\xfe\x00",
    b"{}",
    b"null",
    b"\n\n",
    b"",
]


@pytest.mark.parametrize("data", HOSTILE)
@pytest.mark.parametrize("name", ["x.jsonl", "x.json", "x.gz", "x.jsonl.zst", "x.parquet"])
def test_our_own_sources_know_no_garbage(tmp_path: Path, data: bytes, name: str) -> None:
    (tmp_path / name).write_bytes(data)
    sources = [load_plugin("source", each)() for each in plugin_names("source")]
    assert ask_sources(read_head(tmp_path / name), sources) == {}
