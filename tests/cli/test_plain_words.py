"""What is shown and refused is said in plain words, and nothing is said that says nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cli.conftest import Run, chat_row, write_rows
from core.test_store import make
from foretrace.cli.display.dataset import show_dataset
from foretrace.cli.output import Output
from foretrace.core.store import write_traces
from foretrace.core.trace import Message, Provenance, Task, Trace
from foretrace.dataset.report import BuildReport

replace = msgspec.structs.replace


def generated(sample: int, task: str = "p/one", **changes: Any) -> Trace:
    made = Provenance(
        origin="generated",
        source="p",
        model="openai:m",
        protocol="tools",
        sampling={"temperature": 0.5, "top_k": None, "hints": False},
        seed=3,
        sample=sample,
        **changes,
    )
    trace = replace(make(sample), key=f"generated/{task}/abc/{sample}", task=Task(id=task, group=task), provenance=made)
    return replace(trace, outcome=replace(trace.outcome, reward=0.25))


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    folder = tmp_path / "ds"
    folder.mkdir()
    manifest = {"settings": {}, "configs": {}, "gates": [], "drops": {"eval": {"repeated_step": 0}}}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def commands(folder: Path, out: Path) -> list[list[object]]:
    """All verbs that take a traces folder."""
    generate = ["--problems", "builtin", "--limit", 1, "--protocol", "tools", "--model", "demo", "--quiet"]
    return [
        ["show", folder],
        ["label", folder, "--out", out / "l.csv"],
        ["ceiling", folder],
        ["replay", folder, "--predictions", out / "p.jsonl"],
        ["effects", folder, "--out", out / "effects.json"],
        ["export", folder, "--format", "jsonl", "--out", out / "e.jsonl"],
        ["build", folder, "--out", out / "b"],
        ["generate", *generate, "--out", folder],
    ]


def test_a_dataset_is_called_one(run: Run, dataset: Path, tmp_path: Path) -> None:
    for command in commands(dataset, tmp_path):
        done = run(*command)
        assert (done.code, done.out, done.err) == (
            1,
            "",
            f"foretrace: {dataset}: is a dataset, not a traces folder\n",
        ), command
    assert [p.name for p in dataset.iterdir()] == ["manifest.json"]


def test_a_file_is_called_one(run: Run, traces: Path, tmp_path: Path) -> None:
    file = traces / "manifest.json"
    for command in commands(file, tmp_path):
        done = run(*command)
        assert done.code in (1, 2) and done.out == ""
        assert done.err.startswith(f"foretrace: {file}: is a file; ") and "folder" in done.err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--keep", "best"], "'--keep': 'best' is not one of 'all', 'success', 'ideal'"),
        (["--limit", "0"], "'--limit': 0 is not in the range x>=1"),
        (["--limit", "x"], "'--limit': 'x' is not a valid integer"),
        (["--top-p", "2"], "'--top-p': 2.0 is not in the range 0<=x<=1"),
        (["--top-p", "x"], "'--top-p': 'x' is not a valid float"),
        (["--config", "nog.toml"], "'--config': nog.toml: cannot read: No such file or directory"),
    ],
)
def test_a_wrong_value_is_one_line_that_names_the_option(run: Run, options: list[str], said: str) -> None:
    done = run("generate", *options)
    assert done.code == 2 and done.err.count("\n") == 1
    assert done.err.startswith(f"foretrace: Invalid value for {said}")
    assert done.err.endswith(" (see `foretrace generate --help`)\n")


def test_what_was_replaced_is_said(run: Run, traces: Path, tmp_path: Path) -> None:
    label = ["label", traces, "--out", tmp_path / "l.csv"]
    export = ["export", traces, "--format", "chat", "--out", tmp_path / "e.jsonl"]
    for command in (label, export):
        assert "is replaced)" not in run(*command).out
        assert "(the file that was there is replaced)\n" in run(*command).out
        assert run(*command, "--json").json["replaced"] is True


def test_the_list_says_what_made_a_trace(run: Run, tmp_path: Path) -> None:
    write_traces([generated(n) for n in (10, 2)] + [generated(0, "p/a")], tmp_path / "t")
    first, *rows = run("show", tmp_path / "t").out.splitlines()
    assert first.split() == [
        *("key", "first", "words", "task", "model", "protocol", "seed", "sample", "steps", "success", "reward")
    ]
    assert [row.split()[0] for row in rows] == [f"generated/p/{end}" for end in ("a/abc/0", "one/abc/2", "one/abc/10")]
    assert rows[1].split()[-7:] == ["openai:m", "tools", "3", "2", "1", "yes", "0.2500"]
    shown = run("show", tmp_path / "t", "--json").json["shown"]
    assert shown[0]["protocol"] == "tools" and shown[0]["sample"] == 0


def test_the_list_has_no_column_that_says_nothing(run: Run, tmp_path: Path) -> None:
    run("import", "chat", write_rows(tmp_path / "r.jsonl", [chat_row(1)]), "--out", tmp_path / "t")
    assert run("show", tmp_path / "t").out.split("\n")[0].split() == ["key", "first", "words", "steps", "success"]


def test_the_list_has_date_project_and_first_words(run: Run, tmp_path: Path) -> None:
    said = Message(
        role="user", author="user", content="Mend the\nbug " + 20 * "at length ", started="2026-02-03T04:05:06Z"
    )
    made = msgspec.structs.replace(generated(0), messages=(said,), extra={"cwd": "/home/ann/shop"})
    write_traces([made], tmp_path / "t")
    shown = run("show", tmp_path / "t").out
    assert "  2026-02-03 04:05  shop     Mend the bug at length at length at length at length at len…  " in shown
    facts = run("show", tmp_path / "t", "--json").json["shown"][0]
    assert (facts["date"], facts["project"]) == ("2026-02-03T04:05:06", "shop")
    assert facts["first_words"].startswith("Mend the bug at length")


def test_the_header_says_how_it_was_made_and_leaves_out_what_is_not_known(run: Run, tmp_path: Path) -> None:
    write_traces([generated(2)], tmp_path / "t")
    head = run("show", tmp_path / "t", "generated").out.splitlines()[3:6]
    assert head == [
        "source   p, license not known",
        "agent    model openai:m, protocol tools",
        "sampling hints false, temperature 0.5, seed 3, sample 2",
    ]


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
