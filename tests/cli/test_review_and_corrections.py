"""From unsure labels to a person's corrections and back: `label --review`, `--corrections`, `show`, `build`."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from cli.conftest import Run, chat_row, write_rows

KEY = "swe_smith@local/tool:owner__one.0123abcd.func__aaa.a"


def read_csv(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(path.read_text("utf-8-sig"), newline="")))


def write_csv(path: Path, rows: list[dict[str, Any]], delimiter: str = ",", newline: str = "\r\n") -> Path:
    """As a spreadsheet saves it."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, rows[0], delimiter=delimiter, lineterminator=newline)
    writer.writeheader()
    writer.writerows(rows)
    path.write_text(text.getvalue(), "utf-8-sig", newline="")
    return path


def test_a_review_lists_the_least_sure_steps_first(run: Run, traces: Path, tmp_path: Path) -> None:
    result = run("label", traces, "--review", tmp_path / "r.csv", "--lowest", 5)
    assert result.code == 0 and "5 steps in" in result.out and "no_step" in result.err
    rows = read_csv(tmp_path / "r.csv")
    assert list(rows[0]) == [
        *("key", "id", "message_index", "source", "action", "rule", "confidence", "step", "observation"),
        "correct_action",
    ]
    assert run("label", traces, "--out", tmp_path / "l.parquet", "--review", tmp_path / "r.jsonl").code == 0
    lines = [json.loads(line) for line in (tmp_path / "r.jsonl").read_text().splitlines()]
    labels = pq.read_table(tmp_path / "l.parquet").to_pylist()
    assert len(lines) == len(labels) == 12
    assert [row["confidence"] for row in lines] == sorted(label["confidence"] for label in labels)
    assert [row["key"] for row in lines[:5]] == [row["key"] for row in rows]
    first = next(row for row in lines if row["action"] == "file_write")
    assert first["step"].startswith('str_replace_editor: str_replace {"command": "str_replace"')
    assert first["observation"] == "The file has been edited." and first["correct_action"] == ""


def test_corrections_win_and_are_marked(run: Run, traces: Path, tmp_path: Path) -> None:
    run("label", traces, "--review", tmp_path / "r.csv")
    rows = read_csv(tmp_path / "r.csv")
    for row in rows:
        if row["key"] == KEY:
            row["correct_action"] = {"2": "retrieval", "4": "no_step"}.get(row["message_index"], "")
    edited = write_csv(tmp_path / "edited.csv", rows, delimiter=";")
    for workers in (1, 2):
        out = tmp_path / f"l{workers}.parquet"
        result = run("label", traces, "--out", out, "--corrections", edited, "--workers", workers, "--json")
        assert result.json["corrections"] == {"applied": 2, "left_empty": 10, "not_applied": {}, "warnings": []}
        labels = [row for row in pq.read_table(out).to_pylist() if row["key"] == KEY]
        found = [(r["action"], r["rule"], r["confidence"], r["corrected"]) for r in labels[:2]]
        assert found == [("retrieval", "corrected", 1.0, True), (None, "corrected", 1.0, True)]
        assert not labels[2]["corrected"] and result.json["nonsteps"] == 1
    shown = run("show", traces, KEY, "--corrections", edited)
    assert "[2] retrieval  corrected" in shown.out and "[4] not a step  corrected" in shown.out
    assert run("show", traces, "--corrections", edited).code == 2  # needs a KEY
    assert (
        "  rule: A person corrected this label.\n" in run("show", traces, KEY, "--step", 2, "--corrections", edited).out
    )
    again = run("label", traces, "--review", tmp_path / "again.csv", "--corrections", edited, "--json")
    assert again.json["review_steps"] == 10  # what a person has decided is not asked again


def test_corrections_that_cannot_be_applied_are_counted(run: Run, traces: Path, tmp_path: Path) -> None:
    run("label", traces, "--review", tmp_path / "r.jsonl")
    row = next(r for r in map(json.loads, (tmp_path / "r.jsonl").open()) if r["key"] == KEY and r["message_index"] == 2)
    row["correct_action"] = "verifier"
    rows = [
        row,
        row | {"message_index": 3},
        row | {"message_index": 99},
        row | {"key": "nobody"},
        row | {"key": KEY[:-1] + "b"},
    ]
    write_rows(tmp_path / "c.jsonl", rows)
    result = run("label", traces, "--out", tmp_path / "l.csv", "--corrections", tmp_path / "c.jsonl")
    assert result.code == 0 and re.search(r"^corrected +1$", result.out, re.M)
    assert f"1 correction not applied: the trace has changed since, such as row 5: {KEY[:-1]}b" in result.err
    assert "1 correction not applied: no trace has the key, such as row 4: nobody" in result.err
    assert "2 corrections not applied: the agent has no message there" in result.err


def test_hostile_text_is_no_formula_and_no_control_sequence(run: Run, tmp_path: Path) -> None:
    row = chat_row(1, id="=HYPERLINK(1)")
    row["messages"][1]["tool_calls"][0]["function"]["name"] = "=cmd|' /C calc'!A0"
    row["messages"][2]["content"] = '\x1b[31m"red",\n-1\u202e\n'
    run("import", "chat", write_rows(tmp_path / "rows.jsonl", [row]), "--out", tmp_path / "t")
    run("label", tmp_path / "t", "--review", tmp_path / "r.csv")
    assert not any(cell[:1] in ("=", "+", "-", "@") for r in read_csv(tmp_path / "r.csv") for cell in r.values())
    assert "\x1b" not in (tmp_path / "r.csv").read_text() and "\u202e" not in (tmp_path / "r.csv").read_text()
    rows = [r | {"correct_action": "BLOCKED"} for r in read_csv(tmp_path / "r.csv")]
    done = run(
        "label", tmp_path / "t", "--out", tmp_path / "l.csv", "--corrections", write_csv(tmp_path / "c.csv", rows)
    )
    assert re.search(r"^corrected +2$", done.out, re.M)
    assert "\x1b" not in run("show", tmp_path / "t", "chat").out


def test_a_single_step_says_what_its_rule_means(run: Run, traces: Path) -> None:
    shown = run("show", traces, KEY, "--step", 4).out
    assert "  rule: It replaces text in a file with an editor.\n" in shown
    assert "  confidence: 0.9" in shown and "hand-labeled steps with this rule and action" in shown
    meanings = run("show", traces, KEY, "--step", 4, "--json").json["meanings"]
    assert meanings == {"tool.str_replace": "It replaces text in a file with an editor."}


def test_a_build_takes_corrections(run: Run, sample_traces: Path, tmp_path: Path) -> None:
    quick = ["--recipes", "proposer", "--outcomes", "all", "--workers", 1]
    run("label", sample_traces, "--review", tmp_path / "r.csv", "--lowest", 60)
    rows = [r | {"correct_action": "BLOCKED"} for r in read_csv(tmp_path / "r.csv") if r["action"] == "retrieval"]
    rows.append(rows[0] | {"key": "nobody"})
    edited = write_csv(tmp_path / "c.csv", rows)
    plain = run("build", sample_traces, "--out", tmp_path / "plain", *quick, "--json").json["manifest"]
    manifest = run(
        "build", sample_traces, "--out", tmp_path / "corrected", *quick, "--corrections", edited, "--json"
    ).json["manifest"]
    assert "corrections" not in plain["settings"] and "steps_corrected" not in plain["counts"]
    assert manifest["counts"]["steps_corrected"] == len(rows) - 1 > 0
    assert len(manifest["settings"]["corrections"]) == 32
    assert any("1 correction not applied: no trace has the key, such as row" in each for each in manifest["warnings"])
    blocked = [sum(m["actions"][split]["BLOCKED"] for split in m["actions"]) for m in (plain, manifest)]
    assert blocked[1] > blocked[0]
    assert run("build", sample_traces, "--out", tmp_path / "x", "--corrections", tmp_path / "no.csv").code == 1
