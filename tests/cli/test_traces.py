"""`label`, `show`, `export`, `view`, `schema`, `sources`: what can be read out of a traces folder."""

from __future__ import annotations

import csv
import gzip
import io
import json
import webbrowser
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest

from cli.conftest import Run, call, chat_row, write_rows
from core.test_store import make
from exports.any_traces import SAID
from exports.test_export_traces import store
from exports.test_otlp import TIMED
from exports.test_row_formats import SYSTEM, USER
from exports.test_row_formats import make as make_talk
from foretrace.actions.taxonomy import ActionType
from foretrace.cli.display.dataset import show_dataset
from foretrace.cli.output import Output
from foretrace.core.files import atomic_file, only_writer
from foretrace.core.store import read_trace, read_traces, write_traces
from foretrace.core.trace import Message, Outcome, Parent, Provenance, Sampled, Task, ToolCall, Trace
from foretrace.dataset.report import BuildReport

COLUMNS = [
    *("key", "id", "source", "raw_file", "raw_row", "message_index", "raw_index"),
    *("action", "rule", "confidence", "corrected", "effect", "state_version", "failed", "flags", "tool", "n_calls"),
    *("task", "group"),
]


def test_labels_hold_every_step(run: Run, traces: Path) -> None:
    result = run("label", traces, "--out", "l.parquet")
    assert result.code == 0 and "assistant messages  12\n" in result.out
    assert [line.split()[0] for line in result.out.splitlines()[1:10]] == [str(action) for action in ActionType]
    table = pq.read_table("l.parquet")
    assert table.column_names == COLUMNS
    rows = [r for r in table.to_pylist() if r["key"].endswith(".a")]
    assert [(r["raw_row"], r["message_index"], r["action"], r["tool"]) for r in rows] == [
        (0, 2, "file_read", "bash"),
        (0, 4, "file_write", "str_replace_editor"),
        (0, 6, "final_answer", "submit"),
    ]
    assert rows[0]["group"] == "owner/one"
    for name in ("l.jsonl", "l.csv", "l.jsonl.gz"):
        assert run("label", traces, "--out", name, "--json").json["steps"] == 12
    expected, lines = table.to_pylist(), Path("l.jsonl").read_text()
    assert [json.loads(line) for line in lines.splitlines()] == expected
    assert gzip.decompress(Path("l.jsonl.gz").read_bytes()).decode() == lines
    assert [r["rule"] for r in csv.DictReader(Path("l.csv").read_text().splitlines())] == [r["rule"] for r in expected]


def test_empty_folder_gives_an_empty_file(run: Run) -> None:
    write_traces([], "t")
    for name in ("l.parquet", "l.csv"):
        assert run("label t --out", name).code == 0
    assert pq.read_table("l.parquet").column_names == COLUMNS
    assert Path("l.csv").read_text().strip() == ",".join(COLUMNS)
    assert run("label t --review r.csv --json").json["review_steps"] == 0
    assert run("label t --out c.csv --corrections r.csv --json").json["corrections"]["applied"] == 0
    assert run("show t").out == "no traces\n"


def test_two_writers_of_one_file(run: Run, traces: Path) -> None:
    with atomic_file(Path("l.csv")):
        result = run("label", traces, "--out", "l.csv")
    assert result.code == 1 and "another process is writing it" in result.err
    with only_writer(traces):
        assert run("label", traces, "--out", "l.csv").code == 0, "reading does not wait for a writer"


def test_list_is_cut_unless_all(run: Run) -> None:
    run("import chat", write_rows(Path("r.jsonl"), [chat_row(n) for n in range(53)]), "--out", "t")
    cut = run("show t")
    assert len(cut.out.splitlines()) == 51 and "50 of 53" in cut.err
    assert len(run("show t --all").out.splitlines()) == 54


def test_list_is_by_date(run: Run) -> None:
    days = {"a": None, "b": "2026-01-03", "c": "2026-01-01", "d": "2026-01-02"}
    for key, day in days.items():
        said = Message(role="assistant", author="model", started=day and f"{day}T00:00:00+00:00")
        write_traces([make(1, key=key, task=Task(id=key, group=key), messages=(said,))], "t")
    assert [row["key"] for row in run("show t --json").json["shown"]] == ["a", "c", "d", "b"]


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
        "      new_str:\n        | x = 2\n        | y = 3",
        "[6] final_answer",
    ):
        assert part in result.out
    other = "swe_smith@local/tool:other"
    assert "other__three" in run("show", traces, other).out
    assert read_trace(traces, other).key.startswith(other)
    assert run("show", traces, other, "--json").json["trace"]["task"]["id"].startswith("other")
    step = run("show", traces, other, "--step", 4)
    assert "[4] file_write" in step.out and "cat a.py" not in step.out
    assert run("show", traces, other, "--step", 4, "--json").json["label"]["action"] == "file_write"


def test_parent_and_notices_of_the_program(run: Run) -> None:
    notice = Message(role="user", author="environment", content="<context>")
    messages = (notice, Message(role="user", author="user", content="go"))
    write_traces([make(1, key="main/child", messages=messages, parent=Parent(key="main", call_id="call_1"))], "t")
    shown = run("show t main/child").out
    for part in ("parent   main, call call_1", "[0] user, environment\n  <context>", "[1] user\n  go"):
        assert part in shown


def test_long_texts_are_shortened_unless_full(run: Run) -> None:
    row = chat_row(1)
    row["messages"][2]["content"] = "\n".join(f"line {n}" for n in range(40)) + "\n" + "x" * 500
    run("import chat", write_rows(Path("r.jsonl"), [row]), "--out", "t")
    short, full = run("show t chat").out, run("show t chat --full").out
    assert "... 31 lines ..." in short and "320 characters more" in short and "line 20" not in short
    assert "line 20" in full and "x" * 500 in full


def test_traces_cannot_steer_the_terminal(run: Run) -> None:
    row = chat_row(1, instance="a\x1b[2Jb\n[bold]c")
    row["messages"][1]["tool_calls"] = [call("sh\x1b[31m", {"k\x07": "a\rb\x1b]0;t\x07", "l": "x\n\u202ey"})]
    row["messages"][2]["content"] = "\x1b[31mred\x9b31m [red]markup[/red]"
    run("import chat", write_rows(Path("r.jsonl"), [row]), "--out", "t")
    for line in ("show t", "show t chat", "show t chat --full"):
        result = run(line)
        assert result.code == 0 and not set("\x1b\x07\r\x9b\u202e") & set(result.out)
    assert "\\x1b[31mred\\x9b31m [red]markup[/red]" in run("show t chat").out


@pytest.mark.parametrize("name", ["e.jsonl", "e.jsonl.gz", "e.jsonl.zst"])
def test_exported_traces_come_back(run: Run, traces: Path, name: str) -> None:
    assert run("export", traces, "--format", "jsonl", "--out", name, "--json").json["traces"] == 4
    assert run("import jsonl", name, "--out", "back").code == 0
    assert list(read_traces("back")) == list(read_traces(traces))


def test_schema(run: Run) -> None:
    assert "messages" in json.loads(run("schema").out)["$defs"]["Trace"]["properties"]
    assert run("schema", "tool_call", "--json").json["$ref"].endswith("ToolCall")


def test_sources(run: Run) -> None:
    listed = {s["name"]: s for s in run("sources", "--json").json["sources"]}
    assert {"chat", "jsonl", "swe_smith", "toolbench"} <= set(listed)
    text = run("sources").out
    assert "SWE-bench/SWE-smith-trajectories" in text and "auto knows it by the step in a row's id" in text
    assert all(s["about"].endswith(".") for s in listed.values())  # none ends in the middle of a sentence


def test_flags_stand_beside_the_labels(run: Run) -> None:
    call = ToolCall(name="bash", arguments='{"command": "git log --all\\n"}')
    message = Message(role="assistant", author="model", tool_calls=(call,))
    write_traces([make(1, key="k", messages=(message,))], "t")
    assert "flagged history.read" in run("label t --out l.csv").out
    (row,) = csv.DictReader(Path("l.csv").read_text().splitlines())
    assert row["flags"] == "history.read"
    assert run("label t --out l.jsonl --json").json["flags"] == {row["flags"]: 1}
    assert "cheat history.read: It looks at commits" in run("show t k --step 0").out
    assert "cheat history.read  git log --all" in run("show t k").out
    assert [flag["rule"] for flag in run("show t k --step 0 --json").json["flags"]] == ["history.read"]


def generated(sample: int, task: str = "p/one", **changes: Any) -> Trace:
    settings = {"temperature": 0.5, "top_k": None, "hints": False}
    origin: Any = {"origin": "generated", "source": "p", "model": "openai:m", "protocol": "tools", "sampling": settings}
    made = Provenance(**origin, seed=3, sample=sample)
    outcome = msgspec.structs.replace(make(sample).outcome, reward=0.25)
    named: Any = {"key": f"generated/{task}/abc/{sample}", "task": Task(id=task, group=task)}
    return msgspec.structs.replace(make(sample), **named, provenance=made, outcome=outcome, **changes)


FOLDER_COMMANDS = (
    "show {}",
    "label {} --out l.csv",
    "ceiling {}",
    "replay {} --predictions p.jsonl",
    "effects {} --out effects.json",
    "export {} --format jsonl --out e.jsonl",
    "build {} --out b",
    "generate --problems builtin --limit 1 --protocol tools --model demo --quiet --out {}",
)
"""All verbs that take a traces folder."""


def test_what_is_no_traces_folder_is_called_what_it_is(run: Run, traces: Path, sample_dataset: Path) -> None:
    places = {sample_dataset: "is a dataset, not a traces folder\n", traces / "manifest.json": "is a file; "}
    for place, said in places.items():
        for line in FOLDER_COMMANDS:
            done = run(line.format(place))
            assert done.code in (1, 2) and not done.out and done.err.startswith(f"foretrace: {place}: {said}"), line


@pytest.mark.parametrize("line", ["label {} --out l.csv", "export {} --format chat --out e.jsonl"])
def test_what_was_replaced_is_said(run: Run, traces: Path, line: str) -> None:
    line = line.format(traces)
    assert "is replaced)" not in run(line).out
    assert "(the file that was there is replaced)\n" in run(line).out
    assert run(line, "--json").json["replaced"] is True


def test_the_list_says_what_made_a_trace(run: Run) -> None:
    write_traces([generated(n) for n in (10, 2)] + [generated(0, "p/a")], "t")
    first, *rows = run("show t").out.splitlines()
    assert " ".join(first.split()) == "key first words task model protocol seed sample steps success reward"
    assert [row.split()[0] for row in rows] == [f"generated/p/{end}" for end in ("a/abc/0", "one/abc/2", "one/abc/10")]
    assert rows[1].split()[-7:] == ["openai:m", "tools", "3", "2", "1", "yes", "0.2500"]
    shown = run("show t --json").json["shown"]
    assert shown[0]["protocol"] == "tools" and shown[0]["sample"] == 0
    assert run("show t generated/p/a").out.splitlines()[3:6] == [
        "source   p, license not known",
        "agent    model openai:m, protocol tools",
        "sampling hints false, temperature 0.5, seed 3, sample 0",
    ]


def test_the_list_has_date_project_and_first_words(run: Run) -> None:
    text = "Mend the\nbug " + 20 * "at length "
    said = Message(role="user", author="user", content=text, started="2026-02-03T04:05:06Z")
    write_traces([generated(0, messages=(said,), extra={"cwd": "/home/ann/shop"})], "t")
    shown = run("show t").out
    assert "  2026-02-03 04:05  shop     Mend the bug at length at length at length at length at len…  " in shown
    facts = run("show t --json").json["shown"][0]
    assert (facts["date"], facts["project"]) == ("2026-02-03T04:05:06", "shop")
    assert facts["first_words"].startswith("Mend the bug at length")


def test_a_built_dataset_repeats_no_verdict_and_shows_no_zero(capfd: pytest.CaptureFixture[str]) -> None:
    gate = {"name": "shortcut/x/length", "verdict": "undecided", "figures": {}, "detail": "x/length: UNDECIDED at n=18"}
    drops = {"proposer": {"attempt_not_wanted": 0, "repeated_step": 2}, "eval": {"attempt_not_wanted": 0}}
    show_dataset(Output(), BuildReport({"gates": [gate], "drops": drops}), Path("ds"))
    shown = capfd.readouterr().out
    assert "shortcut/x/length  UNDECIDED  at n=18\n" in shown
    assert "  proposer: repeated_step 2\n" in shown and "attempt_not_wanted" not in shown and "eval" not in shown


@pytest.mark.parametrize("verb", [[], ["import"], ["generate"], ["build"], ["score"], ["replay"], ["push"]])
def test_help_fits_a_terminal_and_has_no_private_words(
    run: Run, monkeypatch: pytest.MonkeyPatch, verb: list[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = run(*verb, "--help").out
    assert max(map(len, text.splitlines())) <= 80 and "..." not in text.partition("\n")[2]
    for words in ("raw rows", "eval slice", "Of the sampling", "in flight", "of a family", "none sends none", "prove "):
        assert words not in " ".join(text.split())


def test_view_writes_a_folder_or_one_file(run: Run, traces: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = run("view", traces, "--out", "v", "--json").json
    assert done["page"] == str(Path("v/index.html")) and done["left_out"] == 0
    for _ in range(2):  # its own file may be written again
        shown = run("view", traces, "--single", "r.html")
        assert shown.code == 0 and "page    r.html\n" in shown.out
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    assert run("view", traces, "--out", "v", "--open").code == 0
    assert opened == [Path("v/index.html").resolve().as_uri()]


def test_the_summary_names_each_field_that_was_lost(run: Run) -> None:
    sampled = Sampled(token_ids=(1, 2), logprobs=(-0.5, -0.25), exact="token")
    said = msgspec.structs.replace(SAID, sampled=sampled, started=None)
    store(Path("t"), make_talk(SYSTEM, USER, *TIMED, said, outcome=Outcome(success=True, reward=1.0)))
    made = run("export t --format openai --out o.jsonl --json").json
    wanted = (
        "messages.logprobs messages.token_ids results.tool_s messages.model_s messages.reasoning results.is_error "
        "traces.reward traces.success traces.key"
    )
    assert dict.fromkeys(wanted.split(), 1).items() <= made["lost"].items() and made["kept"] == {}
    assert not {"traces.tools", "calls.id", "results.tool_call_ids", "results.prefix"} & made["lost"].keys()
    text = run("export t --format openai --out o.jsonl").out
    lost = {line.split("  ")[0]: line for line in text.splitlines() if line.startswith("lost, ")}
    assert "logprobs 1" in lost["lost, messages"] and "tool_s 1" in lost["lost, results"]
    made = run("export t --format otlp --out h.jsonl --json").json
    assert made["lost"] == {"messages.logprobs": 1, "messages.token_ids": 1} and made["kept"]["traces.reward"] == 1
    made = run("export t --format atif --out a --json").json
    assert made["lost"]["traces.reward"] == 1 and "messages.logprobs" not in made["lost"] and made["kept"] == {}
    assert run("export t --format jsonl --out w.jsonl --json").json["lost"] == {}
