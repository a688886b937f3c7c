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


def read_csv(path: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(Path(path).read_text("utf-8-sig"), newline="")))


def write_csv(path: str, rows: list[dict[str, Any]], delimiter: str = ",") -> None:
    """As a spreadsheet saves it."""
    with Path(path).open("w", encoding="utf-8-sig", newline="") as file:
        writer = csv.DictWriter(file, rows[0], delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)


def test_a_review_lists_the_least_sure_steps_first(run: Run, traces: Path) -> None:
    result = run("label", traces, "--review", "r.csv", "--lowest", 5)
    assert result.code == 0 and "5 steps in" in result.out and "no_step" in result.err
    rows = read_csv("r.csv")
    assert " ".join(rows[0]) == ("key id message_index source action rule confidence step observation correct_action")
    assert run("label", traces, "--out", "l.parquet", "--review", "r.jsonl").code == 0
    lines = [json.loads(line) for line in Path("r.jsonl").read_text().splitlines()]
    labels = pq.read_table("l.parquet").to_pylist()
    assert len(lines) == len(labels) == 12
    assert [row["confidence"] for row in lines] == sorted(label["confidence"] for label in labels)
    assert [row["key"] for row in lines[:5]] == [row["key"] for row in rows]
    first = next(row for row in lines if row["action"] == "file_write")
    assert first["step"].startswith('str_replace_editor: str_replace {"command": "str_replace"')
    assert first["observation"] == "The file has been edited." and first["correct_action"] == ""


def test_corrections_win_and_are_marked(run: Run, traces: Path) -> None:
    run("label", traces, "--review", "r.csv")
    rows = read_csv("r.csv")
    for row in rows:
        if row["key"] == KEY:
            row["correct_action"] = {"2": "retrieval", "4": "no_step"}.get(row["message_index"], "")
    write_csv("edited.csv", rows, delimiter=";")
    for workers in (1, 2):
        line = f"label traces --out l{workers}.parquet --corrections edited.csv --workers {workers} --json"
        facts = run(line).json
        assert facts["corrections"] == {"applied": 2, "left_empty": 10, "not_applied": {}, "warnings": []}
        labels = [row for row in pq.read_table(f"l{workers}.parquet").to_pylist() if row["key"] == KEY]
        found = [(r["action"], r["rule"], r["confidence"], r["corrected"]) for r in labels[:2]]
        assert found == [("retrieval", "corrected", 1.0, True), (None, "corrected", 1.0, True)]
        assert not labels[2]["corrected"] and facts["nonsteps"] == 1
    shown = run(f"show traces {KEY} --corrections edited.csv").out
    assert "[2] retrieval  corrected" in shown and "[4] not a step  corrected" in shown
    step = run(f"show traces {KEY} --step 2 --corrections edited.csv").out
    assert "  rule: A person corrected this label.\n" in step
    again = run("label traces --review again.csv --corrections edited.csv --json")
    assert again.json["review_steps"] == 10  # what a person has decided is not asked again


def test_corrections_that_cannot_be_applied_are_counted(run: Run, traces: Path) -> None:
    run("label", traces, "--review", "r.jsonl")
    lines = map(json.loads, Path("r.jsonl").read_text().splitlines())
    row = next(r for r in lines if r["key"] == KEY and r["message_index"] == 2) | {"correct_action": "verifier"}
    others = [{"message_index": 3}, {"message_index": 99}, {"key": "nobody"}, {"key": KEY[:-1] + "b"}]
    write_rows(Path("c.jsonl"), [row, *(row | other for other in others)])
    result = run("label", traces, "--out", "l.csv", "--corrections", "c.jsonl")
    assert result.code == 0 and re.search(r"^corrected +1$", result.out, re.M)
    assert f"1 correction not applied: the trace has changed since, such as row 5: {KEY[:-1]}b" in result.err
    assert "1 correction not applied: no trace has the key, such as row 4: nobody" in result.err
    assert "2 corrections not applied: the agent has no message there" in result.err


def test_hostile_text_is_no_formula_and_no_control_sequence(run: Run) -> None:
    row = chat_row(1, id="=HYPERLINK(1)")
    row["messages"][1]["tool_calls"][0]["function"]["name"] = "=cmd|' /C calc'!A0"
    row["messages"][2]["content"] = '\x1b[31m"red",\n-1\u202e\n'
    run("import chat", write_rows(Path("rows.jsonl"), [row]), "--out", "t")
    run("label t --review r.csv")
    rows, text = read_csv("r.csv"), Path("r.csv").read_text()
    assert not any(cell[:1] in ("=", "+", "-", "@") for r in rows for cell in r.values())
    assert "\x1b" not in text and "\u202e" not in text
    write_csv("c.csv", [r | {"correct_action": "BLOCKED"} for r in rows])
    assert re.search(r"^corrected +2$", run("label t --out l.csv --corrections c.csv").out, re.M)
    assert "\x1b" not in run("show t chat").out


def test_a_single_step_says_what_its_rule_means(run: Run, traces: Path) -> None:
    shown = run("show", traces, KEY, "--step", 4).out
    assert "  rule: It replaces text in a file with an editor.\n" in shown
    assert "  confidence: 0.9" in shown and "hand-labeled steps with this rule and action" in shown
    meanings = run("show", traces, KEY, "--step", 4, "--json").json["meanings"]
    assert meanings == {"tool.str_replace": "It replaces text in a file with an editor."}


def test_a_build_takes_corrections(run: Run, sample_traces: Path) -> None:
    run("label", sample_traces, "--review", "r.csv", "--lowest", 60)
    rows = [r | {"correct_action": "BLOCKED"} for r in read_csv("r.csv") if r["action"] == "retrieval"]
    rows.append(rows[0] | {"key": "nobody"})
    write_csv("c.csv", rows)
    line = f"build {sample_traces} --recipes proposer --outcomes all --workers 1 --json"
    plain = run(f"{line} --out plain").json["manifest"]
    manifest = run(f"{line} --out corrected --corrections c.csv").json["manifest"]
    assert "corrections" not in plain["settings"] and "steps_corrected" not in plain["counts"]
    assert manifest["counts"]["steps_corrected"] == len(rows) - 1 > 0
    assert len(manifest["settings"]["corrections"]) == 32
    assert any("1 correction not applied: no trace has the key, such as row" in each for each in manifest["warnings"])
    blocked = [sum(m["actions"][split]["BLOCKED"] for split in m["actions"]) for m in (plain, manifest)]
    assert blocked[1] > blocked[0]
