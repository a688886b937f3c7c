"""`label`, `show`, `export`, `schema`, `sources`: what can be read out of a traces folder."""

from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest

from cli.conftest import Run, call, chat_row, write_rows
from foretrace.actions.taxonomy import ActionType
from foretrace.cli.output import Output
from foretrace.core.files import only_writer
from foretrace.core.store import read_traces, write_traces
from foretrace.core.trace import Message, Parent, Provenance, Task, ToolCall, Trace

COLUMNS = [
    *("key", "id", "source", "raw_file", "raw_row", "message_index", "raw_index"),
    *(
        "action",
        "rule",
        "confidence",
        "corrected",
        "effect",
        "state_version",
        "failed",
        "flags",
        "tool",
        "n_calls",
        "task",
        "group",
    ),
]


def test_labels_hold_every_step(run: Run, traces: Path, tmp_path: Path) -> None:
    result = run("label", traces, "--out", tmp_path / "l.parquet")
    assert result.code == 0
    assert "assistant messages  12\n" in result.out
    names = [line.split()[0] for line in result.out.splitlines()[1:10]]
    assert names == [str(action) for action in ActionType]
    table = pq.read_table(tmp_path / "l.parquet")
    assert table.column_names == COLUMNS
    rows = [r for r in table.to_pylist() if r["key"].endswith(".a")]
    assert [(r["raw_row"], r["message_index"], r["action"], r["tool"]) for r in rows] == [
        (0, 2, "file_read", "bash"),
        (0, 4, "file_write", "str_replace_editor"),
        (0, 6, "final_answer", "submit"),
    ]
    assert rows[0]["group"] == "owner/one"


def test_labels_as_text_are_the_same(run: Run, traces: Path, tmp_path: Path) -> None:
    for name in ("l.parquet", "l.jsonl", "l.csv", "l.jsonl.gz"):
        assert run("label", traces, "--out", tmp_path / name, "--json").json["steps"] == 12
    expected = pq.read_table(tmp_path / "l.parquet").to_pylist()
    assert [json.loads(line) for line in (tmp_path / "l.jsonl").read_text().splitlines()] == expected
    assert gzip.decompress((tmp_path / "l.jsonl.gz").read_bytes()) == (tmp_path / "l.jsonl").read_bytes()
    with (tmp_path / "l.csv").open() as file:
        assert [r["rule"] for r in csv.DictReader(file)] == [r["rule"] for r in expected]


def test_workers_leave_no_mark(run: Run, traces: Path, tmp_path: Path) -> None:
    for workers in (1, 2):
        assert run("label", traces, "--out", tmp_path / f"{workers}.parquet", "--workers", workers).code == 0
    assert (tmp_path / "1.parquet").read_bytes() == (tmp_path / "2.parquet").read_bytes()


def test_empty_folder_gives_an_empty_file(run: Run, tmp_path: Path) -> None:
    write_traces([], tmp_path / "t")
    for name in ("l.parquet", "l.csv"):
        assert run("label", tmp_path / "t", "--out", tmp_path / name).code == 0
    assert pq.read_table(tmp_path / "l.parquet").column_names == COLUMNS
    assert (tmp_path / "l.csv").read_text().strip() == ",".join(COLUMNS)
    assert run("label", tmp_path / "t", "--review", tmp_path / "r.csv", "--json").json["review_steps"] == 0
    empty = run("label", tmp_path / "t", "--out", tmp_path / "c.csv", "--corrections", tmp_path / "r.csv", "--json")
    assert empty.json["corrections"]["applied"] == 0
    assert run("show", tmp_path / "t").out == "no traces\n"


@pytest.mark.parametrize("verb", ["label", "export"])
def test_outputs_that_are_refused(run: Run, traces: Path, tmp_path: Path, verb: str) -> None:
    more = ["--format", "jsonl"] if verb == "export" else []
    file = tmp_path / "some.jsonl"
    file.write_text("")
    for out, code, said in [
        (tmp_path / "l.txt", 2, "name it"),
        (traces / "l.jsonl", 2, "inside the traces folder"),
        (file / "l.jsonl", 1, "cannot write"),
    ]:
        result = run(verb, traces, *more, "--out", out)
        assert (result.code, result.out) == (code, "")
        assert said in result.err
    (tmp_path / "dir.jsonl").mkdir()
    assert "is a folder" in run(verb, traces, *more, "--out", tmp_path / "dir.jsonl").err
    assert not list(tmp_path.glob(".*.partial"))


def test_two_writers_of_one_file(run: Run, traces: Path, tmp_path: Path) -> None:
    from foretrace.core.files import atomic_file

    with atomic_file(tmp_path / "l.csv"):
        result = run("label", traces, "--out", tmp_path / "l.csv")
    assert result.code == 1
    assert "another process is writing it" in result.err


def test_reading_does_not_wait_for_a_writer(run: Run, traces: Path, tmp_path: Path) -> None:
    with only_writer(traces):
        assert run("label", traces, "--out", tmp_path / "l.csv").code == 0


def test_list_of_traces(run: Run, traces: Path) -> None:
    result = run("show", traces)
    assert result.code == 0
    assert len(result.out.splitlines()) == 5
    assert "swe_smith@local/tool:owner__one.0123abcd.func__aaa.b" in result.out
    facts = run("show", traces, "--json").json
    assert facts["traces"] == 4
    assert {r["success"] for r in facts["shown"]} == {True, False}


def test_list_is_cut_unless_all(run: Run, tmp_path: Path) -> None:
    file = write_rows(tmp_path / "r.jsonl", [chat_row(n) for n in range(53)])
    run("import", "chat", file, "--out", tmp_path / "t")
    cut = run("show", tmp_path / "t")
    assert len(cut.out.splitlines()) == 51
    assert "50 of 53" in cut.err
    assert len(run("show", tmp_path / "t", "--all").out.splitlines()) == 54


def test_list_is_by_date(run: Run, tmp_path: Path) -> None:
    days = {"a": None, "b": "2026-01-03", "c": "2026-01-01", "d": "2026-01-02"}
    origin = Provenance(origin="imported", source="made")
    said = Message(role="assistant", author="model", content="Hello.")
    traces = [
        Trace(
            key=key,
            task=Task(id=key, group=key),
            provenance=origin,
            messages=(msgspec.structs.replace(said, started=day and f"{day}T00:00:00+00:00"),),
        )
        for key, day in days.items()
    ]
    write_traces(traces, tmp_path / "t")
    assert [row["key"] for row in run("show", tmp_path / "t", "--json").json["shown"]] == ["a", "c", "d", "b"]


def test_a_key_is_whole_in_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    row = ["x@" + "k" * 60, "2026-01-01", None]
    for columns, written in (("40", f"{row[0]}\n  date 2026-01-01\n"), ("90", f"{row[0]}  2026-01-01  -")):
        monkeypatch.setenv("COLUMNS", columns)
        Output(stream=terminal).print_table(("key", "date", "model"), [row], whole=True)
        assert written in terminal.getvalue()


def test_one_trace(run: Run, traces: Path) -> None:
    result = run("show", traces, "swe_smith@local/tool:owner__one.0123abcd.func__aaa.b")
    assert result.code == 0
    for part in (
        "task     owner__one.0123abcd.func__aaa (group owner/one)",
        "outcome  failed, done, submitted",
        "swe.jsonl row 1, license MIT",
        "[2] file_read  shell.read",
        "      command: cat a.py",
        "  < x = 1",
        "      new_str:",
        "        | x = 2\n        | y = 3",
        "[6] final_answer",
    ):
        assert part in result.out
    other = run("show", traces, "swe_smith@local/tool:other")
    assert "other__three" in other.out
    ambiguous = run("show", traces, "swe_smith@local/tool:owner__one")
    assert (ambiguous.code, ambiguous.out) == (1, "")
    assert "begins 2 keys" in ambiguous.err
    assert "no trace with key" in run("show", traces, "nothing").err


def test_parent_and_notices_of_the_program(run: Run, tmp_path: Path) -> None:
    notice = Message(role="user", author="environment", content="<context>")
    said = Message(role="assistant", author="model", content="It is 3.")
    child = Trace(
        key="main/child",
        task=Task(id="t", group="g"),
        messages=(notice, Message(role="user", author="user", content="go"), said),
        provenance=Provenance(origin="imported", source="test"),
        parent=Parent(key="main", call_id="call_1"),
    )
    write_traces([child], tmp_path / "t")
    result = run("show", tmp_path / "t", "main/child")
    for part in ("parent   main, call call_1", "[0] user, environment\n  <context>", "[1] user\n  go"):
        assert part in result.out


def test_one_step(run: Run, traces: Path) -> None:
    key = "swe_smith@local/tool:other"
    result = run("show", traces, key, "--step", 4)
    assert "[4] file_write" in result.out
    assert "cat a.py" not in result.out
    assert run("show", traces, key, "--step", 4, "--json").json["label"]["action"] == "file_write"
    assert run("show", traces, key, "--json").json["trace"]["task"]["id"].startswith("other")
    wrong = run("show", traces, key, "--step", 3)
    assert wrong.code == 2
    assert "2, 4, 6" in wrong.err
    for arguments in (["--step", "2"], ["--full"], [key, "--all"]):
        assert run("show", traces, *arguments).code == 2


def test_long_texts_are_shortened_unless_full(run: Run, tmp_path: Path) -> None:
    row = chat_row(1)
    row["messages"][2]["content"] = "\n".join(f"line {n}" for n in range(40)) + "\n" + "x" * 500
    run("import", "chat", write_rows(tmp_path / "r.jsonl", [row]), "--out", tmp_path / "t")
    short, full = run("show", tmp_path / "t", "chat"), run("show", tmp_path / "t", "chat", "--full")
    assert "... 31 lines ..." in short.out
    assert "320 characters more" in short.out
    assert "line 20" not in short.out
    assert "line 20" in full.out
    assert "x" * 500 in full.out


def test_traces_cannot_steer_the_terminal(run: Run, tmp_path: Path) -> None:
    row = chat_row(1, instance="a\x1b[2Jb\n[bold]c")
    row["messages"][1]["tool_calls"] = [call("sh\x1b[31m", {"k\x07": "a\rb\x1b]0;t\x07", "l": "x\n\u202ey"})]
    row["messages"][2]["content"] = "\x1b[31mred\x9b31m [red]markup[/red]"
    run("import", "chat", write_rows(tmp_path / "r.jsonl", [row]), "--out", tmp_path / "t")
    for arguments in ([], ["chat"], ["chat", "--full"]):
        result = run("show", tmp_path / "t", *arguments)
        assert result.code == 0
        assert not set("\x1b\x07\r\x9b\u202e") & set(result.out)
    assert "\\x1b[31mred\\x9b31m [red]markup[/red]" in run("show", tmp_path / "t", "chat").out


@pytest.mark.parametrize("name", ["e.jsonl", "e.jsonl.gz", "e.jsonl.zst"])
def test_exported_traces_come_back(run: Run, traces: Path, tmp_path: Path, name: str) -> None:
    result = run("export", traces, "--format", "jsonl", "--out", tmp_path / name, "--json")
    assert result.json["traces"] == 4
    assert run("import", "jsonl", tmp_path / name, "--out", tmp_path / "back").code == 0
    assert list(read_traces(tmp_path / "back")) == list(read_traces(traces))


def test_schema(run: Run) -> None:
    assert "messages" in json.loads(run("schema").out)["$defs"]["Trace"]["properties"]
    assert run("schema", "tool_call", "--json").json["$ref"].endswith("ToolCall")
    wrong = run("schema", "nothing")
    assert (wrong.code, wrong.out) == (2, "")


def test_sources(run: Run) -> None:
    listed = {s["name"]: s for s in run("sources", "--json").json["sources"]}
    assert {"chat", "jsonl", "swe_smith", "toolbench"} <= set(listed)
    assert "SWE-bench/SWE-smith-trajectories" in run("sources").out
    assert all(s["about"].endswith(".") for s in listed.values())  # none ends in the middle of a sentence


def test_flags_stand_beside_the_labels(run: Run, tmp_path: Path) -> None:
    message = Message(
        role="assistant",
        author="model",
        tool_calls=(ToolCall(name="bash", arguments='{"command": "git log --all\\n"}'),),
    )
    task, origin = Task(id="t", group="g"), Provenance(origin="imported", source="s")
    write_traces([Trace(key="k", task=task, messages=(message,), provenance=origin)], tmp_path / "t")
    assert "flagged history.read" in run("label", tmp_path / "t", "--out", tmp_path / "l.csv").out
    (row,) = csv.DictReader((tmp_path / "l.csv").open())
    assert row["flags"] == "history.read"
    assert run("label", tmp_path / "t", "--out", tmp_path / "l.jsonl", "--json").json["flags"] == {row["flags"]: 1}
    assert "cheat history.read: It looks at commits" in run("show", tmp_path / "t", "k", "--step", 0).out
    assert "cheat history.read  git log --all" in run("show", tmp_path / "t", "k").out
    shown = run("show", tmp_path / "t", "k", "--step", "0", "--json").json["flags"]
    assert [flag["rule"] for flag in shown] == ["history.read"]
