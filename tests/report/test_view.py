"""Pages: what is in them is data, whatever stands in it; where they go, and what they refuse."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import foretrace
from foretrace.core.errors import StoreError, UsageError
from foretrace.core.predictions import Prediction, PredictionsHeader
from foretrace.core.store import write_traces
from foretrace.core.trace import Message, ToolCall, Trace
from foretrace.evaluation.replay_report import ReplayReport
from foretrace.evaluation.score_report import ScoreReport
from foretrace.report.page import SinglePage, make_data_block, make_data_script
from foretrace.report.view import write_view
from report.hostile_fields import fill, list_names, list_texts, make_filled_trace
from report.hostile_traces import ANSI, MARKUP, RTL, make_long_trace, make_odd_traces, make_trace


def read_script(script: str, name: str) -> Any:
    """What a browser would read: the literal between single quotes, then its JSON."""
    found = re.fullmatch(rf"foretrace\.take\('{name}', '((?:[^'\\\n\u2028\u2029]|\\.)*)'\);\n", script)
    assert found, script
    return json.loads(re.sub(r"\\(x[0-9a-f]{2}|u[0-9a-f]{4}|.)", _unescape, found[1]))


def _unescape(match: re.Match[str]) -> str:
    return chr(int(match[1][1:], 16)) if len(match[1]) > 1 else match[1]


def read_data(page: Path, name: str) -> Any:
    """One value of a folder's page, as the page reads it."""
    return read_script((page / "data" / f"{name}.js").read_text(), name)


def read_block(page: Path, name: str) -> Any:
    found = re.search(rf'data-name="{name}">(.*?)</script>', page.read_text())
    return found and json.loads(found[1])


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    write_traces(make_odd_traces(), tmp_path / "traces")
    return tmp_path / "traces"


def test_traces_are_filtered_by_their_flags(tmp_path: Path) -> None:
    call = ToolCall(name="bash", arguments='{"command": "git log --all"}')
    cheat = Message(role="assistant", author="model", tool_calls=(call,))
    write_traces([make_trace((cheat,), "cheats"), make_trace((), "honest")], tmp_path / "traces")
    foretrace.view(tmp_path / "traces", out=tmp_path / "v")
    index, names = read_data(tmp_path / "v", "index-0"), read_data(tmp_path / "v", "meta")["texts"]["flag"]
    flags = {key: {names[n] for n in found} for key, found in zip(index["key"], index["flags"], strict=True)}
    assert flags["cheats"] >= {"cheat", "cheat: history.read"}
    assert not any(name.startswith("cheat") for name in flags["honest"])
    (flag,) = read_data(tmp_path / "v", "traces-0")[index["place"][index["key"].index("cheats")]]["flags"]
    assert flag[1:3] == ["history.read", True] and flag[4] == "git log --all"


def test_a_trace_shows_what_ran_early_while_it_was_made(tmp_path: Path) -> None:
    trace = make_long_trace(3)
    write_traces([trace], tmp_path / "traces")
    fields = {"key": trace.key, "step": 3, "tool": "run_tests", "after_s": 0.2, "seconds": 1.0}
    lines = [{**fields, "used": True, "saved_s": 0.7}, {**fields, "used": False}, {**fields, "key": "x", "used": False}]
    (tmp_path / "traces" / "launches.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    foretrace.view(tmp_path / "traces", out=tmp_path / "v")
    early = [3, "run_tests", 0.2, 1.0]
    assert read_data(tmp_path / "v", "traces-0")[0]["early"] == [[*early, True, 0.7], [*early, False, 0.0]]
    (tmp_path / "traces" / "launches.jsonl").write_text("cut of")
    foretrace.view(tmp_path / "traces", out=tmp_path / "w")
    assert read_data(tmp_path / "w", "traces-0")[0]["early"] == []


def test_turns_have_means_of_what_is_known(tmp_path: Path) -> None:
    said = Message(role="assistant", author="model", content="Nothing to do.")
    write_traces([make_long_trace(2), make_trace((said,), "short")], tmp_path / "traces")
    foretrace.view(tmp_path / "traces", out=tmp_path / "v")
    meta = read_data(tmp_path / "v", "meta")
    assert meta["turns"] == [[[2, None, 2.0, 1.0], [1, None, 2.0, 1.0]]]  # attempts, tokens, model, tools


def test_a_title_is_the_task_and_not_what_stands_before_it(tmp_path: Path) -> None:
    words = "<uploaded_files>\n/testbed\n</uploaded_files>\nConsider:\n<pr_description>\n{}</pr_description>"
    texts = {
        "short": words.format("Fix it.\n### Steps"),
        "long": words.format("word " * 50),
        "heading": words.format("# Mend it.\n\nSoon."),
        "named": "We solve an issue.\nISSUE:\nIt breaks.\nHi! How so",
        "bare": "<pr_description>",
        "": " ",
    }
    for key, text in texts.items():
        write_traces([make_trace((Message(role="user", author="user", content=text),), key or "none")], tmp_path / "t")
    foretrace.view(tmp_path / "t", out=tmp_path / "v")
    index = read_data(tmp_path / "v", "index-0")
    titles = dict(zip(index["key"], index["title"], strict=True))
    assert (titles["short"], titles["bare"], titles["none"]) == ("Fix it.", "<pr_description>", "")
    assert (titles["heading"], titles["named"]) == ("Mend it.", "It breaks.")
    assert titles["long"].endswith("word …") and len(titles["long"]) <= 112


def test_a_single_file_says_what_it_leaves_out(traces: Path, tmp_path: Path) -> None:
    path = tmp_path / "r.html"
    report = write_view([traces], lambda: SinglePage(path, limit=200_000), lambda *_: None)
    index, meta = read_block(path, "index-0"), read_block(path, "meta")
    left = [key for key, chunk in zip(index["key"], index["chunk"], strict=True) if chunk == -1]
    assert report.left_out == meta["left_out"] == len(left) > 0 and "wide" in left
    assert all(read_block(path, f"traces-{chunk}") for chunk in index["chunk"] if chunk >= 0)
    assert path.stat().st_size < 400_000


def test_two_runs_stand_side_by_side(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_traces([make_trace((), "k")], tmp_path / name)
    foretrace.view([tmp_path / "a", tmp_path / "b"], out=tmp_path / "v")
    assert read_data(tmp_path / "v", "meta")["folders"] == ["a", "b"]
    assert read_data(tmp_path / "v", "index-0")["run"] == [0, 1]


def test_a_page_takes_the_place_of_a_page_only(traces: Path, tmp_path: Path) -> None:
    own, other = tmp_path / os.fsdecode(b"odd-\xff"), tmp_path / "other"
    assert foretrace.view(traces, out=own).listed == 6
    (own / "data" / "old.js").write_text("")
    foretrace.view(traces, out=own)
    assert not (own / "data" / "old.js").exists()
    other.mkdir()
    (other / "notes.txt").write_text("mine")
    with pytest.raises(StoreError, match="is not a page that foretrace wrote"):
        foretrace.view(traces, out=other)
    with pytest.raises(StoreError, match="is not a page that foretrace wrote"):
        foretrace.view(traces, single=other / "notes.txt")
    assert [p.name for p in other.iterdir()] == ["notes.txt"]
    assert not list(tmp_path.glob(".*.partial"))


def test_what_does_not_go_together_is_refused(traces: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="either"):
        foretrace.view(traces)
    with pytest.raises(UsageError, match="twice"):
        foretrace.view([traces, traces], out=tmp_path / "v")
    with pytest.raises(StoreError):
        foretrace.view(tmp_path / "nothing", out=tmp_path / "v")
    assert not (tmp_path / "v").exists()


def test_the_current_folder_is_no_place_for_a_page(
    traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    for place in (".", "..", tmp_path / "empty"):
        with pytest.raises(StoreError, match="holds the current folder; name one for the page"):
            foretrace.view(traces, out=place)
    assert (tmp_path / "empty").is_dir() and not list(tmp_path.glob(".*.partial"))


def test_a_trace_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """As a newer version might have written it."""
    write_traces([make_long_trace(2, key) for key in ("good", "worse")], tmp_path / "traces")
    for path in (tmp_path / "traces").glob("shard-*/*.parquet"):
        table = pq.read_table(path)
        newer = [r.replace(b'"user"', b'"critic"') if b'"worse"' in r else r for r in table["record"].to_pylist()]
        column = pa.array(newer, table["record"].type)
        pq.write_table(table.set_column(table.column_names.index("record"), "record", column), path)
    report = foretrace.view(tmp_path / "traces", out=tmp_path / "v")
    assert (report.listed, report.unreadable) == (1, 1)
    meta = read_data(tmp_path / "v", "meta")
    ((key, why),) = meta["unreadable"]
    assert key == "worse" and "critic" in why


def test_more_traces_than_a_file_can_list_are_refused(tmp_path: Path) -> None:
    write_traces([make_long_trace(1, f"k{n:04d}") for n in range(300)], tmp_path / "traces")
    with pytest.raises(UsageError, match="300 traces are too many for one file; write a folder with out='view'"):
        write_view([tmp_path / "traces"], lambda: SinglePage(tmp_path / "r.html", limit=100_000), lambda *_: None)
    assert not (tmp_path / "r.html").exists()


TEXTS = [MARKUP, ANSI, RTL, "\\", "'", '\\"', "\u2028", "\ud800 alone", "</ScRiPt", "<!--<script>", "", "\x00"]


@pytest.mark.parametrize("text", TEXTS)
def test_a_script_and_a_block_say_what_was_given(text: str) -> None:
    script, block = make_data_script("n", {text: [text]}), make_data_block("n", {text: [text]})
    inside = block.removeprefix('<script type="application/json" data-name="n">').removesuffix("</script>\n")
    assert "<" not in script + inside and "\u2028" not in inside
    assert read_script(script, "n") == json.loads(inside) == {text: [text]}


@pytest.mark.parametrize("record", [Trace, Prediction, PredictionsHeader, ScoreReport, ReplayReport])
def test_every_text_of_a_record_can_be_filled(record: type) -> None:
    filled = msgspec.to_builtins(msgspec.convert(fill(record), record))
    found = {text.split("»")[0].removeprefix("«") for text in list_texts(filled) if text.startswith("«")}
    assert found == set(list_names(record)) != set()


def test_every_text_of_a_trace_is_in_the_page_and_none_is_markup(tmp_path: Path) -> None:
    trace = make_filled_trace("a", success=True)
    write_traces([trace], tmp_path / "traces")
    foretrace.view(tmp_path / "traces", out=tmp_path / "v")
    foretrace.view(tmp_path / "traces", single=tmp_path / "r.html")
    texts = list_texts(msgspec.to_builtins(trace))
    wanted = {text for text in texts if "«" in text and text != trace.id}  # the store computes the id
    for facts in (read_data(tmp_path / "v", "traces-0")[0], read_block(tmp_path / "r.html", "traces-0")[0]):
        assert wanted <= set(list_texts(facts["trace"]))
    pages = [tmp_path / "r.html", *(tmp_path / "v").rglob("*.js"), tmp_path / "v" / "index.html"]
    for page in pages:
        if page.name != "view.js":
            text = page.read_text()
            assert [markup for markup in ("<script>w", "<img", "<svg", "<a href='j") if markup in text] == [], page
