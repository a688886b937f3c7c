"""What `import foretrace` offers is what the command does: the same settings, and the same words for what was found."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import click
import pytest

import foretrace
from cli.conftest import Run
from foretrace.cli.main import app
from foretrace.cli.options import Command
from foretrace.core.errors import UsageError


def test_reports_print_as_the_command_prints_them(run: Run, traces: Path, tmp_path: Path) -> None:
    said = {
        "ceiling": (run("ceiling", traces), foretrace.ceiling(traces)),
        "view": (run("view", traces, "--out", tmp_path / "v"), foretrace.view(traces, out=tmp_path / "v")),
        "label": (
            run("label", traces, "--out", tmp_path / "l.csv"),
            foretrace.label_folder(traces, out=tmp_path / "m.csv"),
        ),
        "export": (
            run("export", traces, "--format", "chat", "--out", tmp_path / "e.jsonl"),
            foretrace.export(traces, format="chat", out=tmp_path / "f.jsonl"),
        ),
        "scrub": (
            run("scrub", traces, "--out", tmp_path / "s"),
            foretrace.scrub(traces, out=tmp_path / "t"),
        ),
    }
    other_names = {"m.csv": "l.csv", "f.jsonl": "e.jsonl", str(tmp_path / "t"): str(tmp_path / "s")}
    for name, (done, report) in said.items():
        printed = str(report)
        for ours, theirs in other_names.items():
            printed = printed.replace(ours, theirs)
        assert printed == done.out.rstrip("\n"), name
        assert repr(report).startswith(f"{type(report).__name__}("), name


def test_one_trace_is_read_by_how_its_key_begins(traces: Path) -> None:
    keys = [trace.key for trace in foretrace.read_traces(traces)]
    assert foretrace.read_trace(traces, keys[0]).key == keys[0]
    with pytest.raises(foretrace.ForetraceError, match="no trace with key"):
        foretrace.read_trace(traces, "nothing")


@pytest.mark.parametrize("name", foretrace.__all__)
def test_what_takes_a_path_takes_text_too(name: str) -> None:
    function = getattr(foretrace, name)
    if not inspect.isfunction(function):
        pytest.skip("is not a function")
    for parameter in inspect.signature(function).parameters.values():
        words = re.findall(r"\w+", str(parameter.annotation))
        assert "Path" not in words or "str" in words, parameter


def test_label_refuses_a_folder_in_one_line() -> None:
    with pytest.raises(UsageError, match="label takes a Trace, not a str; for a traces folder call label_folder"):
        foretrace.label("traces")  # type: ignore[arg-type]


def test_times_can_be_assumed_by_a_table(traces: Path) -> None:
    found = foretrace.ceiling(traces, assume_times={"model": 6, "tool": 0.5})
    assert found == foretrace.ceiling(traces, assume_times="model=6,tool=0.5") and found.assumed_steps
    with pytest.raises(UsageError, match="give tool too"):
        foretrace.ceiling(traces, assume_times={"model": 6})


def test_labels_are_not_predictions(run: Run, traces: Path, tmp_path: Path) -> None:
    foretrace.label_folder(traces, out=tmp_path / "l.parquet")
    done = run("replay", traces, "--predictions", tmp_path / "l.parquet")
    assert done.err.endswith("l.parquet line 1: is not a prediction: it has no key or no step\n")


@pytest.mark.parametrize("command", sorted(app.commands))
def test_every_option_has_help_and_a_default_without_two_brackets(run: Run, command: str) -> None:
    assert "[default: (" not in run(command, "--help").out
    found = app.commands[command]
    if isinstance(found, Command):
        found.get_params(click.Context(found, **app.context_settings))
        assert all(found.about.get(each.name or "") for each in found.own), command
