"""`foretrace import`, and `build` of sources: what is read, dropped or was there, as a user reads it."""

from __future__ import annotations

import io
import json
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


FILES = sample_files()
BUILD = ("--out", "d", "--outcomes", "all", "--no-statistical-gates", "--recipes", "trajectories")


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


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


def test_what_a_user_reads(run: Run, logs: Path, tmp_path: Path) -> None:
    result = run("import", "auto", logs, "--out", tmp_path / "t")
    assert result.code == 0, result.err
    lines = result.out.splitlines()
    assert lines[0].split() == ["source", "files", "traces", "drops", "turns", "calls", "because,", "e.g."]
    assert lines[1].startswith("swe_smith      1       3      0      9      9  messages, and the instance_id of a made")
    assert lines[2].split() == ["talks", "2", "2", "0", "3", "3", "a", "record", "has", "talk", "and", "kind"]
    assert lines[3].split() == ["all", "3", "5", "0", "12", "12"]
    assert "not recognized: 1 file" in lines
    said = "3 of 3 times of tools are differences of time stamps and may hold a person's wait for a permission"
    assert said in result.err
    assert any(line.split("  ")[0].endswith("notes.md") and "text without a JSON object" in line for line in lines)
    assert "talks: record types that its reader does not know: novelty 1" in lines
    assert not any("ignored" in line for line in lines)
    assert lines[-1] == "5 rows = 5 traces + 0 drops + 0 already there"
    again = run("import", "auto", logs, "--out", tmp_path / "t")
    assert again.out.splitlines()[-1] == "5 rows = 0 traces + 0 drops + 5 already there"
    write_talk(logs / "b.jsonl", talk("2", 2))
    grown = run("import", "auto", logs, "--out", tmp_path / "t")
    assert grown.out.splitlines()[-1] == "5 rows = 0 traces + 1 grown + 0 drops + 4 already there"


def test_the_source_may_be_left_out(run: Run, logs: Path, tmp_path: Path) -> None:
    named, bare = run("import", "auto", logs, "--out", tmp_path / "t"), run("import", logs, "--out", tmp_path / "u")
    assert bare.code == 0 and bare.out == named.out.replace(str(tmp_path / "t"), str(tmp_path / "u"))
    facts = run("import", logs / "**" / "*.jsonl", "--out", tmp_path / "p", "--json").json
    assert facts["total"]["counts"]["traces"] == 5 == facts["traces"], "a pattern names files"
    assert facts["sources"]["talks"]["account"] == {
        "records": 11, "used": 8, "waiting": 1, "ignored": {"progress": 1}, "unknown": {"novelty": 1},
    }  # fmt: skip
    assert (facts["tool_times"], facts["tool_times_that_may_hold_waits"]) == (3, 3)
    missing = run("import", tmp_path / "nowhere.jsonl", "--out", tmp_path / "v")
    assert missing.code == 1 and "nowhere.jsonl: no such file or folder" in missing.err


def test_a_file_that_two_sources_know_leaves_the_others_imported(run: Run, logs: Path, tmp_path: Path) -> None:
    mixed = write_talk(logs / "mixed.jsonl", [*talk("7", 1), *swe_rows(1)])
    result = run("import", "auto", logs, "--out", tmp_path / "t")
    assert result.code == 1
    assert result.out.splitlines()[-1] == "5 rows = 5 traces + 0 drops + 0 already there"
    assert "left out, since several sources know them: 1 file" in result.out
    assert f"{mixed}  swe_smith: messages, and the instance_id" in result.out and ", or talks: a record" in result.out
    last = result.err.splitlines()[-1]
    assert last.startswith(f"foretrace: {mixed}: may be swe_smith (") and "instead of auto" in last
    facts = run("import", "auto", logs, "--out", tmp_path / "t", "--json").json
    assert facts["found"]["ambiguous_files"][0]["may_be"].keys() == {"talks", "swe_smith"}
    alone = run("import", "auto", mixed, "--out", tmp_path / "u")
    assert alone.code == 1 and not alone.out and not (tmp_path / "u").exists()
    assert run("import", "talks", mixed, "--out", tmp_path / "t").code == 0
    assert foretrace.import_source("auto", logs, out=tmp_path / "t").found.ambiguous[0].path == mixed  # type: ignore[union-attr]


def test_a_named_source_looks_for_its_files_alone(run: Run, logs: Path, tmp_path: Path) -> None:
    facts = run("import", "talks", logs, "--out", tmp_path / "t", "--json").json
    assert (facts["traces"], facts["found"]["not_recognized"]) == (2, 2)
    taken = run("import", "talks", logs / "notes.md", "--out", tmp_path / "u")
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
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, revision: str | None
) -> None:
    asked: list[Any] = []

    def open_hub(source: Any, **where: Any) -> FileRows:
        asked.append((source and source.name, where["repo"], where["split"], where["revision"]))
        return FileRows(write_jsonl(tmp_path / "rows.jsonl", swe_rows(1)))

    monkeypatch.setattr(registry, "open_hub", open_hub)
    assert run("import", "swe_smith", url, "--out", tmp_path / "t", "--json").json["traces"] == 1
    facts = run("import", "auto", url, "--split", "tool", "--out", tmp_path / "u", "--json").json
    assert facts["sources"].keys() == {"swe_smith"} and facts["traces"] == 1
    assert asked == [("swe_smith", "a/b", None, revision), (None, "a/b", "tool", revision)]


def test_rows_of_a_dataset_that_auto_cannot_take(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = FileRows(write_jsonl(tmp_path / "rows.jsonl", [{"text": "x"}]))
    monkeypatch.setattr(registry, "open_hub", lambda source, **where: rows)
    out = ("--out", tmp_path / "t")
    refused = run("import", "auto", "hf://datasets/a/b", *out)
    assert refused.code == 1 and "a first record with text: rows of no known format" in refused.err
    beside = run("import", "auto", "hf://datasets/a/b", tmp_path, *out)
    assert beside.code == 2 and "without a dataset of the Hub beside it" in beside.err


def test_a_source_itself_from_python(logs: Path, tmp_path: Path) -> None:
    report = foretrace.import_source(Talks(), logs, out=tmp_path / "t")
    assert report.traces == 2 and report.found is not None and report.found.unknown_count == 2
    with pytest.raises(UsageError, match="columns is for a source that is named"):
        foretrace.import_source(Talks(), logs, out=tmp_path / "t", columns={"a": "b"})


def test_lines_on_stdin(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for source in ("auto", "swe_smith"):
        text = "".join(json.dumps(row) + "\n" for row in swe_rows(2)).encode()
        stdin: Any = io.TextIOWrapper(io.BytesIO(text))
        monkeypatch.setattr(sys, "stdin", stdin)
        assert run("import", source, "-", "--out", tmp_path / source, "--json").json["traces"] == 2
    assert {t.provenance.raw_file for t in read_traces(tmp_path / "auto")} == {"stdin.jsonl"}


def test_since_and_limit(run: Run, logs: Path, tmp_path: Path) -> None:
    write_talk(logs / "old.jsonl", talk("9", 1, start=1_500_000_000))
    facts = run("import", "auto", logs, "--out", tmp_path / "t", "--since", "2020-01-01", "--json").json
    assert (facts["traces"], facts["before_since"]) == (5, 1)
    facts = run("import", "auto", logs, "--out", tmp_path / "u", "--limit", "2", "--json").json
    assert facts["traces"] == 4  # of each of two sources


def test_build_imports_with_auto(run: Run, logs: Path, tmp_path: Path) -> None:
    options = ("--outcomes", "all", "--recipes", "trajectories", "--json")
    result = run("build", f"auto={logs}", "--out", tmp_path / "d", *options)
    assert result.json["imported"][0]["sources"].keys() == {"swe_smith", "talks"}
    assert "not recognized: 1 file, e.g. " in result.err


def test_the_command_says_what_to_do(tmp_path: Path, run: Run) -> None:
    rows, traces = test_unread_calls.write_rows(tmp_path), tmp_path / "traces"
    done = run("import", "chat", rows, "--out", traces)
    assert "unread call:" in done.err and "--call-pattern REGEX" in done.err
    assert "unread calls, chat" in done.out
    failed = run("build", traces, "--out", tmp_path / "out")
    assert failed.code == 3 and "--allow-unread" in failed.err and "--call-pattern REGEX" in failed.err
    wrong = run("import", "chat", rows, "--out", traces, "--call-pattern", "(")
    assert wrong.code == 2 and "--call-pattern" in wrong.err


def test_each_source_has_its_limit(run: Run) -> None:
    sources = (f"swe_smith:mine={FILES['swe_smith:tool']}", f"chat={FILES['chat']}")
    done = run("build", *sources, "--limit", 2, "--limit", "swe_smith:mine=3", "--limit", "chat=1", *BUILD, "--json")
    assert [each["rows"] for each in done.json["imported"]] == [3, 1]
    splits = {trace.provenance.source: trace.provenance.split for trace in read_traces("d-traces")}
    assert splits["swe_smith"] == "mine"


def test_import_takes_the_same_name(run: Run) -> None:
    for number, words in enumerate(
        [(f"swe_smith:mine={FILES['swe_smith:tool']}",), ("swe_smith:mine", FILES["swe_smith:tool"])]
    ):
        assert run("import", *words, "--out", f"t{number}").code == 0
    one, other = ([trace.key for trace in read_traces(f"t{number}")] for number in (0, 1))
    assert one == other and all("/mine" in key for key in one)


def test_unknown_outcomes_that_are_left_out_come_with_the_option_that_takes_them(run: Run, tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", [{**chat_row(0), "resolved": True}, *map(chat_row, range(1, 4))])
    more = ("--out", "d", "--no-statistical-gates", "--recipes", "trajectories", "--split", "1/0/0")
    done = run("build", f"chat={rows}", *more)
    assert "3 of 4 attempts do not say whether they succeeded" in done.err and "outcomes=not_failed" in done.err
    assert "traces_unknown: 3" in done.out and "traces_in_two_inputs" not in done.out
    assert "do not say" not in run("build", f"chat={rows}", *more, "--outcomes", "not_failed").err
