"""`foretrace import`, and `build` of sources: what is read, dropped or was there, as a user reads it."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import foretrace
from cli.conftest import Run, chat_row, swe_row, write_rows
from dataset import test_unread_calls
from foretrace import registry
from foretrace.core import plugins
from foretrace.core.errors import UsageError
from foretrace.core.store import read_traces
from foretrace.rows.files import FileRows
from foretrace.samples import sample_files
from sources.raw_rows import swe_rows, write_jsonl
from sources.session_formats import Talks, talk, write_talk


def test_counts_add_up_and_are_said(run: Run) -> None:
    rows: list[Any] = [swe_row("a__b.0123abcd.f__x", "1"), "{broken", swe_row("a__b.0123abcd.f__x", "2", resolved=None)]
    write_rows(Path("rows.jsonl"), rows)
    first = run("import swe_smith rows.jsonl --out t")
    assert first.code == 0
    assert "3 rows = 2 traces + 1 drop + 0 already there" in first.out
    assert "1 success, 0 failed, 1 unknown" in first.out and "bad_json: rows.jsonl row 1" in first.err
    again = run("import swe_smith rows.jsonl --out t --json")
    assert again.code == 0
    assert again.json | {"traces": 0, "already_there": 2, "dropped_before": 1, "rows": 3} == again.json
    again = run("import swe_smith rows.jsonl --out t")
    assert again.out.splitlines()[-1] == "3 rows = 0 traces + 0 drops + 2 already there + 1 dropped before"


def test_folder_of_files_is_read_by_name(run: Run) -> None:
    for folder in ("raw", "empty"):
        Path(folder).mkdir()
    for number in (2, 1):
        write_rows(Path(f"raw/{number}.jsonl"), [chat_row(number)])
    Path("raw/notes.txt").write_text("not a row")
    result = run("import chat raw --out t --json")
    assert (result.json["traces"], result.json["input"]) == (2, "2 files")
    assert "holds no file" in run("import chat empty --out u").err


def test_unknown_outcomes_come_with_a_hint(run: Run) -> None:
    write_rows(Path("rows.jsonl"), [chat_row(1)])
    said = run("import chat rows.jsonl --out t").err
    assert "--outcomes not_failed" in said and "--map success=COLUMN" in said
    write_rows(Path("more.jsonl"), [*map(chat_row, range(3)), {**chat_row(3), "resolved": True}])
    said = run("import chat more.jsonl --out more").err
    assert "3 of 4 traces do not say whether the attempt succeeded" in said
    said = run("import chat rows.jsonl --out named --map success=nope").err
    assert "there is no column nope" in said and "--map success=COLUMN" not in said


def test_calls_with_broken_arguments_are_counted(run: Run) -> None:
    asked = [{"role": "user", "content": "Capital?"}]
    for given in ("capital of France", '{"q": "capital of Fr'):
        content = f"Thought: Look.\nAction: Search\nAction Input: {given}"
        asked += [{"role": "assistant", "content": content}, {"role": "user", "content": "Observation: Paris"}]
    write_rows(Path("rows.jsonl"), [{"messages": asked}])
    result = run("import chat rows.jsonl --out t --json")
    assert "1 call of 2 could not be read completely" in result.err
    assert result.json["total"]["counts"]["broken_calls"] == 1


def test_settings_from_a_file_and_the_command_line_wins(run: Run, swe_file: Path) -> None:
    config = Path("c.toml")
    config.write_text('limit = 1\nout = "t"\nreplace = true\n')
    for more, rows in (("", 1), ("--limit 3", 3)):
        assert run(f"import swe_smith {swe_file} --config c.toml --json {more}").json["rows"] == rows
    write_rows(Path("chat.jsonl"), [{"turns": chat_row(1)["messages"]}])
    config.write_text('no-redact = true\n[map]\nmessages = "turns"\n')
    done = run("import chat chat.jsonl --config c.toml --out u")
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
def test_wrong_settings_files(run: Run, swe_file: Path, text: str, said: str) -> None:
    Path("c.toml").write_text(text)
    result = run("import swe_smith", swe_file, "--out", "t", "--config", "c.toml")
    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)
    assert result.err.startswith("foretrace: ") and said in result.err and not Path("t").exists()


def test_replace_takes_other_content(run: Run) -> None:
    file, line = Path("rows.jsonl"), "import swe_smith rows.jsonl --out t"
    write_rows(file, [swe_row("a__b.0123abcd.f__x", "1")])
    run(line)
    write_rows(file, [swe_row("a__b.0123abcd.f__x", "1", resolved=False), "[]"])
    refused = run(line)
    assert refused.code == 1 and "with other content; take this one with --replace); is this" in refused.err
    assert run(line, "--replace").code == 0
    (trace,) = read_traces("t")
    assert trace.outcome.success is False


def test_dataset_folder_stands_for_the_hub(run: Run, swe_file: Path) -> None:
    datasets = pytest.importorskip("datasets")
    rows = [json.loads(line) for line in swe_file.read_text().splitlines()]
    datasets.Dataset.from_list(rows).to_parquet("./hub/data/tool-00000-of-00001.parquet")
    result = run("import swe_smith:tool --repo ./hub --out t --limit 3 --json")
    assert (result.code, result.json["traces"]) == (0, 3)
    assert {t.provenance.split for t in read_traces("t")} == {"tool"}
    assert run("import swe_smith:tool --repo ./hub --out t --revision x").code == 2


FILES = sample_files()
BUILD = ("--out", "d", "--outcomes", "all", "--no-statistical-gates", "--recipes", "trajectories")


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setitem(plugins.BUILT_IN["source"], "talks", "sources.session_formats")
    folder = tmp_path / "logs"
    write_talk(folder / "a.jsonl", [*talk("1", 2), {"kind": "progress"}, {"kind": "novelty"}], tail='{"half')
    write_talk(folder / "b.jsonl", talk("2", 1))
    (folder / "rows").mkdir()
    write_jsonl(folder / "rows" / "rows.jsonl", swe_rows(3))
    (folder / "notes.md").write_text("# notes")
    return folder


def test_what_a_user_reads(run: Run, logs: Path) -> None:
    result = run("import auto logs --out t")
    assert result.code == 0, result.err
    lines = result.out.splitlines()
    assert [" ".join(line.split()) for line in (lines[0], *lines[2:4])] == [
        "source files traces drops turns calls because, e.g.",
        "talks 2 2 0 3 3 a record has talk and kind",
        "all 3 5 0 12 12",
    ]
    assert lines[1].startswith("swe_smith      1       3      0      9      9  messages, and the instance_id of a made")
    said = "3 of 3 times of tools are differences of time stamps and may hold a person's wait for a permission"
    assert said in result.err and "not recognized: 1 file" in lines
    assert any(line.split("  ")[0].endswith("notes.md") and "text without a JSON object" in line for line in lines)
    assert "talks: record types that its reader does not know: novelty 1" in lines
    assert not any("ignored" in line for line in lines)
    assert lines[-1] == "5 rows = 5 traces + 0 drops + 0 already there"
    assert run("import auto logs --out t").out.endswith("5 rows = 0 traces + 0 drops + 5 already there\n")
    write_talk(logs / "b.jsonl", talk("2", 2))
    assert run("import auto logs --out t").out.endswith("5 rows = 0 traces + 1 grown + 0 drops + 4 already there\n")


@pytest.mark.usefixtures("logs")
def test_the_source_may_be_left_out(run: Run) -> None:
    named, bare = run("import auto logs --out t"), run("import logs --out u")
    assert bare.code == 0 and bare.out == re.sub(r"\bt$", "u", named.out, flags=re.MULTILINE)
    facts = run("import logs/**/*.jsonl --out p --json").json
    assert facts["total"]["counts"]["traces"] == 5 == facts["traces"], "a pattern names files"
    assert facts["sources"]["talks"]["account"] == {
        "records": 11, "used": 8, "waiting": 1, "ignored": {"progress": 1}, "unknown": {"novelty": 1},
    }  # fmt: skip
    assert (facts["tool_times"], facts["tool_times_that_may_hold_waits"]) == (3, 3)
    missing = run("import ./nowhere.jsonl --out v")
    assert missing.code == 1 and "nowhere.jsonl: no such file or folder" in missing.err


def test_a_file_that_two_sources_know_leaves_the_others_imported(run: Run, logs: Path) -> None:
    mixed = write_talk(logs / "mixed.jsonl", [*talk("7", 1), *swe_rows(1)])
    result = run("import auto", logs, "--out", "t")
    assert result.code == 1
    assert result.out.splitlines()[-1] == "5 rows = 5 traces + 0 drops + 0 already there"
    assert "left out, since several sources know them: 1 file" in result.out
    assert f"{mixed}  swe_smith: messages, and the instance_id" in result.out and ", or talks: a record" in result.out
    last = result.err.splitlines()[-1]
    assert last.startswith(f"foretrace: {mixed}: may be swe_smith (") and "instead of auto" in last
    facts = run("import auto", logs, "--out", "t", "--json").json
    assert facts["found"]["ambiguous_files"][0]["may_be"].keys() == {"talks", "swe_smith"}
    alone = run("import auto", mixed, "--out", "u")
    assert alone.code == 1 and not alone.out and not Path("u").exists()
    assert run("import talks", mixed, "--out", "t").code == 0
    assert foretrace.import_source("auto", logs, out="t").found.ambiguous[0].path == mixed  # type: ignore[union-attr]


@pytest.mark.usefixtures("logs")
def test_a_named_source_looks_for_its_files_alone(run: Run) -> None:
    facts = run("import talks logs --out t --json").json
    assert (facts["traces"], facts["found"]["not_recognized"]) == (2, 2)
    taken = run("import talks logs/notes.md --out u")
    assert taken.code == 1 and "no agent turn in 1 records" in taken.err.splitlines()[-1]


@pytest.mark.parametrize(
    ("url", "revision"),
    [
        ("https://huggingface.co/datasets/a/b", None),
        ("hf://datasets/a/b/", None),
        ("hf://datasets/a/b@v1", "v1"),
        ("https://huggingface.co/datasets/a/b/tree/v1", "v1"),
    ],
)
def test_the_address_of_a_dataset_stands_for_its_repository(
    run: Run, monkeypatch: pytest.MonkeyPatch, url: str, revision: str | None
) -> None:
    asked: list[Any] = []

    def open_hub(source: Any, **where: Any) -> FileRows:
        asked.append((source and source.name, where["repo"], where["split"], where["revision"]))
        return FileRows(write_jsonl(Path("rows.jsonl"), swe_rows(1)))

    monkeypatch.setattr(registry, "open_hub", open_hub)
    assert run("import swe_smith", url, "--out", "t", "--json").json["traces"] == 1
    facts = run("import auto", url, "--split", "tool", "--out", "u", "--json").json
    assert facts["sources"].keys() == {"swe_smith"} and facts["traces"] == 1
    assert asked == [("swe_smith", "a/b", None, revision), (None, "a/b", "tool", revision)]


def test_rows_of_a_dataset_that_auto_cannot_take(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = FileRows(write_jsonl(Path("rows.jsonl"), [{"text": "x"}]))
    monkeypatch.setattr(registry, "open_hub", lambda source, **where: rows)
    refused = run("import auto hf://datasets/a/b --out t")
    assert refused.code == 1 and "a first record with text: rows of no known format" in refused.err
    beside = run("import auto hf://datasets/a/b . --out t")
    assert beside.code == 2 and "without a dataset of the Hub beside it" in beside.err


def test_a_source_itself_from_python(logs: Path) -> None:
    report = foretrace.import_source(Talks(), logs, out="t")
    assert report.traces == 2 and report.found is not None and report.found.unknown_count == 2
    with pytest.raises(UsageError, match="columns is for a source that is named"):
        foretrace.import_source(Talks(), logs, out="t", columns={"a": "b"})


@pytest.mark.parametrize("source", ["auto", "swe_smith"])
def test_lines_on_stdin(run: Run, monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    text = "".join(json.dumps(row) + "\n" for row in swe_rows(2)).encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    assert run("import", source, "-", "--out", "t", "--json").json["traces"] == 2
    assert {t.provenance.raw_file for t in read_traces("t")} == {"stdin.jsonl"}


def test_since_and_limit(run: Run, logs: Path) -> None:
    write_talk(logs / "old.jsonl", talk("9", 1, start=1_500_000_000))
    facts = run("import auto logs --out t --since 2020-01-01 --json").json
    assert (facts["traces"], facts["before_since"]) == (5, 1)
    assert run("import auto logs --out u --limit 2 --json").json["traces"] == 4  # of each of two sources


@pytest.mark.usefixtures("logs")
def test_build_imports_with_auto(run: Run) -> None:
    result = run("build auto=logs --out d --outcomes all --recipes trajectories --json")
    assert result.json["imported"][0]["sources"].keys() == {"swe_smith", "talks"}
    assert "not recognized: 1 file, e.g. " in result.err


def test_the_command_says_what_to_do(tmp_path: Path, run: Run) -> None:
    rows = test_unread_calls.write_rows(tmp_path)
    done = run("import chat", rows, "--out", "traces")
    assert "unread call:" in done.err and "--call-pattern REGEX" in done.err and "unread calls, chat" in done.out
    failed = run("build traces --out out")
    assert failed.code == 3 and "--allow-unread" in failed.err and "--call-pattern REGEX" in failed.err
    wrong = run("import chat", rows, "--out", "traces", "--call-pattern", "(")
    assert wrong.code == 2 and "--call-pattern" in wrong.err


def test_each_source_has_its_limit(run: Run) -> None:
    sources = (f"swe_smith:mine={FILES['swe_smith:tool']}", f"chat={FILES['chat']}")
    done = run("build", *sources, "--limit", 2, "--limit", "swe_smith:mine=3", "--limit", "chat=1", *BUILD, "--json")
    assert [each["rows"] for each in done.json["imported"]] == [3, 1]
    splits = {trace.provenance.source: trace.provenance.split for trace in read_traces("d-traces")}
    assert splits["swe_smith"] == "mine"


def test_import_takes_the_same_name(run: Run) -> None:
    file = FILES["swe_smith:tool"]
    for out, words in (("t", [f"swe_smith:mine={file}"]), ("u", ["swe_smith:mine", file])):
        assert run("import", *words, "--out", out).code == 0
    one, other = ([trace.key for trace in read_traces(folder)] for folder in ("t", "u"))
    assert one == other and all("/mine" in key for key in one)


def test_unknown_outcomes_that_are_left_out_come_with_the_option_that_takes_them(run: Run) -> None:
    write_rows(Path("rows.jsonl"), [{**chat_row(0), "resolved": True}, *map(chat_row, range(1, 4))])
    line = "build chat=rows.jsonl --out d --no-statistical-gates --recipes trajectories --split 1/0/0"
    done = run(line)
    assert "3 of 4 attempts do not say whether they succeeded" in done.err and "outcomes=not_failed" in done.err
    assert "traces_unknown: 3" in done.out and "traces_in_two_inputs" not in done.out
    assert "do not say" not in run(f"{line} --outcomes not_failed").err
