"""`foretrace import`: what goes in comes out, is dropped, or was there; wrong use is refused before any work."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import Run, chat_row, swe_row, write_rows
from foretrace.core.store import read_traces


def test_counts_add_up_and_are_said(run: Run, tmp_path: Path) -> None:
    rows: list[Any] = [swe_row("a__b.0123abcd.f__x", "1"), "{broken", swe_row("a__b.0123abcd.f__x", "2", resolved=None)]
    file = write_rows(tmp_path / "rows.jsonl", rows)
    first = run("import", "swe_smith", file, "--out", tmp_path / "t")
    assert first.code == 0
    assert "3 rows = 2 traces + 1 drop + 0 already there" in first.out
    assert "1 success, 0 failed, 1 unknown" in first.out
    assert "bad_json: rows.jsonl row 1" in first.err
    again = run("import", "swe_smith", file, "--out", tmp_path / "t", "--json")
    assert again.code == 0
    assert again.json | {"traces": 0, "already_there": 2, "dropped_before": 1, "rows": 3} == again.json
    again = run("import", "swe_smith", file, "--out", tmp_path / "t")
    assert again.out.splitlines()[-1] == "3 rows = 0 traces + 0 drops + 2 already there + 1 dropped before"


def test_folder_of_files_is_read_by_name(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "raw"
    folder.mkdir()
    for number in (2, 1):
        write_rows(folder / f"{number}.jsonl", [chat_row(number)])
    (folder / "notes.txt").write_text("not a row")
    result = run("import", "chat", folder, "--out", tmp_path / "t", "--json")
    assert (result.json["traces"], result.json["input"]) == (2, "2 files")
    (tmp_path / "empty").mkdir()
    assert "holds no file" in run("import", "chat", tmp_path / "empty", "--out", tmp_path / "u").err


def test_unknown_outcomes_come_with_a_hint(run: Run, tmp_path: Path) -> None:
    file = write_rows(tmp_path / "rows.jsonl", [chat_row(1)])
    result = run("import", "chat", file, "--out", tmp_path / "t")
    assert "--outcomes not_failed" in result.err and "--map success=COLUMN" in result.err
    rows = write_rows(tmp_path / "more.jsonl", [*map(chat_row, range(3)), {**chat_row(3), "resolved": True}])
    result = run("import", "chat", rows, "--out", tmp_path / "more")
    assert "3 of 4 traces do not say whether the attempt succeeded" in result.err
    result = run("import", "chat", file, "--out", tmp_path / "named", "--map", "success=nope")
    assert "there is no column nope" in result.err and "--map success=COLUMN" not in result.err


def test_calls_with_broken_arguments_are_counted(run: Run, tmp_path: Path) -> None:
    asked = [{"role": "user", "content": "Capital?"}]
    for given in ("capital of France", '{"q": "capital of Fr'):
        content = f"Thought: Look.\nAction: Search\nAction Input: {given}"
        asked += [{"role": "assistant", "content": content}, {"role": "user", "content": "Observation: Paris"}]
    file = write_rows(tmp_path / "rows.jsonl", [{"messages": asked}])
    result = run("import", "chat", file, "--out", tmp_path / "t")
    assert "1 call of 2 could not be read completely" in result.err
    result = run("import", "chat", file, "--out", tmp_path / "u", "--json")
    assert result.json["total"]["counts"]["broken_calls"] == 1


def test_columns_are_mapped(run: Run, tmp_path: Path) -> None:
    row = {"turns": chat_row(1)["messages"], "case": "one", "ok": True}
    file = write_rows(tmp_path / "rows.jsonl", [row])
    mapping = ["--map", "messages=turns", "--map", "instance=case", "--map", "success=ok", "--license", "MIT"]
    assert run("import", "chat", file, "--out", tmp_path / "t", *mapping).code == 0
    (trace,) = read_traces(tmp_path / "t")
    assert (trace.task.id, trace.outcome.success, trace.provenance.license) == ("one", True, "MIT")


def test_a_mistyped_column_of_messages_is_an_error(run: Run, tmp_path: Path) -> None:
    file = write_rows(tmp_path / "rows.jsonl", [chat_row(1), chat_row(2)])
    result = run("import", "chat", file, "--out", tmp_path / "t", "--map", "messages=turnz")
    assert result.code == 1 and "there is no column turnz; the row has messages, tools" in result.err.splitlines()[-1]


def test_settings_from_a_file_and_the_command_line_wins(run: Run, swe_file: Path, tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text(f'limit = 1\nout = "{tmp_path / "t"}"\nreplace = true\n')
    assert run("import", "swe_smith", swe_file, "--config", config, "--json").json["rows"] == 1
    more = run("import", "swe_smith", swe_file, "--config", config, "--limit", 3, "--json")
    assert more.json["rows"] == 3
    chat = write_rows(tmp_path / "chat.jsonl", [{"turns": chat_row(1)["messages"]}])
    config.write_text('no-redact = true\n[map]\nmessages = "turns"\n')
    done = run("import", "chat", chat, "--config", config, "--out", tmp_path / "u")
    assert done.code == 0 and "not looked through for secrets" in done.err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("limitt = 1", "unknown key 'limitt'"),
        ("limit = 1.5", "'--limit'"),
        ("limit = 'x'", "'--limit'"),
        ("limit = [1]", "takes one value"),
        ("limit =", "is not TOML"),
        ("config = 'other.toml'", "unknown key 'config'"),
    ],
)
def test_wrong_settings_files(run: Run, swe_file: Path, tmp_path: Path, text: str, said: str) -> None:
    config = tmp_path / "c.toml"
    config.write_text(text)
    result = run("import", "swe_smith", swe_file, "--out", tmp_path / "t", "--config", config)
    assert (result.code, result.out) == (2, "")
    assert said in result.err
    assert result.err.startswith("foretrace: ")
    assert result.err.count("\n") == 1
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["swe_smith", "nowhere.jsonl"], 1, "nowhere.jsonl: no such file"),
        (["nothing_like_it", "{file}"], 2, "nothing_like_it: no such file or source"),
        (["no.such.module:Class", "{file}"], 2, "cannot load source"),
        (["json:JSONDecoder", "{file}"], 2, "is not a source"),
        (["swe_smith:", "{file}"], 2, "no split behind the colon"),
        (["chat", "{file}", "--map", "messages"], 2, "FIELD=COLUMN"),
        (["chat", "{file}", "--map", "nofield=x"], 2, "unknown field 'nofield'"),
        (["chat", "{file}", "--map", "messages=x", "--map", "messages=y"], 2, "twice"),
        (["chat"], 2, "name files, or --repo"),
        (["swe_smith", "{file}", "--map", "messages=x"], 2, "has no --map"),
        (["swe_smith", "{file}", "--call-pattern", "x"], 2, "has no --call-pattern"),
        (["swe_smith", "{file}", "--revision", "abc"], 2, "would be ignored for local files"),
        (["swe_smith", "{file}", "--repo", "a/b"], 2, "would be ignored for local files"),
        (["swe_smith:tool", "--split", "xml"], 2, "two splits"),
        (["swe_smith", "--repo", "./nowhere"], 1, "no such folder"),
        (["swe_smith", "{file}", "--limit", "0"], 2, "--limit"),
        (["swe_smith", "{file}", "--nonsense"], 2, "--nonsense"),
        ([], 2, "SOURCE"),
    ],
)
def test_wrong_use_is_one_line(
    run: Run, swe_file: Path, tmp_path: Path, arguments: list[str], code: int, said: str
) -> None:
    result = run("import", *(a.format(file=swe_file) for a in arguments), "--out", tmp_path / "t", "--json")
    assert result.code == code
    assert said in result.err
    assert result.err.splitlines()[-1].startswith("foretrace: ")
    if code == 2:
        assert (result.out, result.err.count("\n")) == ("", 1)


def test_traces_folder_is_no_raw_input(run: Run, traces: Path, tmp_path: Path) -> None:
    result = run("import", "jsonl", traces, "--out", tmp_path / "t")
    assert result.code == 2
    assert "is a traces folder already" in result.err


def test_nothing_imported_is_a_failure(run: Run, tmp_path: Path) -> None:
    result = run("import", "chat", write_rows(tmp_path / "rows.jsonl", []), "--out", tmp_path / "t")
    assert result.code == 1
    assert "holds no rows" in result.err


def test_a_missing_column_names_the_option(run: Run, tmp_path: Path) -> None:
    rows = [{"dialogue": []}, {"messages": [{"role": "assistant", "content": "x"}]}]
    result = run("import", "chat", write_rows(tmp_path / "rows.jsonl", rows), "--out", tmp_path / "t")
    said = "there is no column messages; the row has dialogue; name the one that holds the messages: --map messages="
    assert result.code == 0 and f"dropped, missing_column: rows.jsonl row 0: {said}COLUMN\n" in result.err


def test_replace_takes_other_content(run: Run, tmp_path: Path) -> None:
    file = write_rows(tmp_path / "rows.jsonl", [swe_row("a__b.0123abcd.f__x", "1")])
    run("import", "swe_smith", file, "--out", tmp_path / "t")
    write_rows(file, [swe_row("a__b.0123abcd.f__x", "1", resolved=False)])
    refused = run("import", "swe_smith", file, "--out", tmp_path / "t")
    assert refused.code == 1
    assert "with other content; take this one with --replace); is this" in refused.err
    write_rows(file, [swe_row("a__b.0123abcd.f__x", "1", resolved=False), "[]"])
    assert run("import", "swe_smith", file, "--out", tmp_path / "t", "--replace").code == 0
    (trace,) = read_traces(tmp_path / "t")
    assert trace.outcome.success is False


def test_replaced_rows_stand_in_the_sum(run: Run, tmp_path: Path) -> None:
    rows = [swe_row("a__b.0123abcd.f__x", str(n % 2), resolved=n > 3) for n in range(6)]
    result = run("import", "swe_smith", write_rows(tmp_path / "rows.jsonl", rows), "--out", tmp_path / "t", "--replace")
    assert result.out.splitlines()[-1] == "6 rows = 2 traces + 2 replaced + 0 drops + 2 already there"
    assert len(list(read_traces(tmp_path / "t"))) == 2


def test_an_import_that_found_nothing_leaves_no_folder(run: Run, tmp_path: Path) -> None:
    result = run("import", "swe_smith", write_rows(tmp_path / "rows.jsonl", ["{broken"]), "--out", tmp_path / "t")
    assert result.code == 1 and "nothing was imported" in result.err
    assert not (tmp_path / "t").exists()


def test_dataset_folder_stands_for_the_hub(run: Run, swe_file: Path, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    folder = tmp_path / "hub"
    rows = [json.loads(line) for line in swe_file.read_text().splitlines()]
    datasets.Dataset.from_list(rows).to_parquet(folder / "data" / "tool-00000-of-00001.parquet")
    result = run("import", "swe_smith:tool", "--repo", folder, "--out", tmp_path / "t", "--limit", 3, "--json")
    assert result.code == 0
    assert result.json["traces"] == 3
    assert {t.provenance.split for t in read_traces(tmp_path / "t")} == {"tool"}
    refused = run("import", "swe_smith:tool", "--repo", folder, "--out", tmp_path / "t", "--revision", "x")
    assert refused.code == 2
