"""`foretrace import auto`: tables, notes and JSON of a mixed folder, in the words that a user reads."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

import foretrace
from cli.conftest import Run
from foretrace import registry
from foretrace.core import plugins
from foretrace.core.errors import UsageError
from foretrace.core.store import read_traces
from foretrace.rows.files import FileRows
from sources.raw_rows import swe_rows, write_jsonl
from sources.session_formats import Talks, talk, write_talk


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
    missing = run("import", tmp_path / "nowhere.jsonl", "--out", tmp_path / "v")
    assert missing.code == 1 and "nowhere.jsonl: no such file or folder" in missing.err
    assert "nowhere: no such file or source" in run("import", "nowhere", "--out", tmp_path / "v").err


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


def test_json_is_one_object_with_everything(run: Run, logs: Path, tmp_path: Path) -> None:
    facts = run("import", "auto", logs, "--out", tmp_path / "t", "--json").json
    assert [file["source"] for file in facts["found"]["files"]] == ["talks", "talks", "swe_smith"]
    assert facts["found"]["not_recognized_files"][0]["seen"] == "text without a JSON object"
    assert facts["sources"]["talks"]["account"] == {
        "records": 11,
        "used": 8,
        "waiting": 1,
        "ignored": {"progress": 1},
        "unknown": {"novelty": 1},
    }
    assert facts["sources"]["talks"]["counts"]["timed_calls"] == {"stamps": 3}
    assert facts["total"]["counts"]["traces"] == 5 == facts["traces"]
    assert (facts["tool_times"], facts["tool_times_that_may_hold_waits"]) == (3, 3)


def test_times_that_may_hold_a_wait_are_said(run: Run, logs: Path, tmp_path: Path) -> None:
    said = run("import", "auto", logs, "--out", tmp_path / "t").err
    assert "3 of 3 times of tools are differences of time stamps and may hold a person's wait for a permission" in said
    rows = run("import", "swe_smith", logs / "rows" / "rows.jsonl", "--out", tmp_path / "u")
    assert rows.code == 0 and "time stamps" not in rows.err


def test_a_named_source_looks_for_its_files_alone(run: Run, logs: Path, tmp_path: Path) -> None:
    facts = run("import", "talks", logs, "--out", tmp_path / "t", "--json").json
    assert (facts["traces"], facts["found"]["not_recognized"]) == (2, 2)
    taken = run("import", "talks", logs / "notes.md", "--out", tmp_path / "u")
    assert taken.code == 1 and "no agent turn in 1 records" in taken.err.splitlines()[-1]


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--map", "a=b"], 2, "--map"),
        (["--split", "x"], 2, "--split is for rows on the Hub"),
        (["--since", "soon"], 2, "--since soon: write a date"),
        (["--since", "2999-01-01"], 1, "were last changed before"),
    ],
)
def test_settings_that_do_not_fit(
    run: Run, logs: Path, tmp_path: Path, options: list[str], code: int, said: str
) -> None:
    result = run("import", "auto", logs, "--out", tmp_path / "t", *options)
    assert result.code == code and said in result.err and len(result.err.splitlines()) == 1
    assert not (tmp_path / "t").exists()


def test_patterns(run: Run, logs: Path, tmp_path: Path) -> None:
    facts = run("import", "auto", str(logs / "**" / "*.jsonl"), "--out", tmp_path / "t", "--json").json
    assert facts["traces"] == 5
    assert "no file has a name like this" in run("import", "auto", str(logs / "*.x"), "--out", tmp_path / "u").err


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
    assert "hf://datasets/OWNER/NAME" in run("import", "auto", "https://example.org/x.jsonl", *out).err


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


def test_a_plugin_of_ones_own_in_two_processes(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from foretrace.sources import importing

    monkeypatch.setattr(importing, "_MIN_POOL_BYTES", 0)
    files = [write_talk(tmp_path / "in" / f"{n}.jsonl", talk(str(n), 1)) for n in range(5)]
    name = "sources.session_formats:Talks"
    for workers in ("1", "2"):
        result = run("import", name, *files, "--out", tmp_path / workers, "--workers", workers, "--json")
        assert result.json["traces"] == 5
    assert list(read_traces(tmp_path / "1")) == list(read_traces(tmp_path / "2"))


def test_the_list_says_how_files_are_recognized(run: Run) -> None:
    listed = run("sources").out
    assert "auto knows it by the step in a row's id" in listed
    assert {one["name"] for one in run("sources", "--json").json["sources"] if one["recognized"]} >= {
        "chat",
        "jsonl",
        "swe_smith",
        "toolbench",
    }


def test_build_imports_with_auto(run: Run, logs: Path, tmp_path: Path) -> None:
    options = ("--outcomes", "all", "--recipes", "trajectories", "--json")
    result = run("build", f"auto={logs}", "--out", tmp_path / "d", *options)
    assert result.json["imported"][0]["sources"].keys() == {"swe_smith", "talks"}
    assert "not recognized: 1 file, e.g. " in result.err
    assert "name the files or folders" in run("build", "auto", "--out", tmp_path / "e").err
