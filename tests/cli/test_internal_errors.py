"""An error inside a rule, a source or a reader costs what it would have found on that record, and the run goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from cli.conftest import Run, chat_row, write_rows
from foretrace.actions import flags, label_steps
from foretrace.clean import redact
from foretrace.core.store import read_traces
from foretrace.core.trace import ToolCall
from foretrace.dataset.filters.copies import CopyFilter
from foretrace.evaluation import ceiling
from foretrace.report import traces_page

PLUGINS = """
import sys
from foretrace.dataset.recipes.base import COMMON_COLUMNS, Config
from foretrace.exports.jsonl import Jsonl
from foretrace.sources.chat import Chat

class Rows(Chat):
    name = "rows"
    def to_trace(self, row, at):
        if at.row == 1:
            raise KeyError("no such thing")
        return super().to_trace(row, at)

class Exits(Chat):
    name = "exits"
    def to_trace(self, row, at):
        return sys.exit(3) if at.row == 1 else super().to_trace(row, at)

class ExitsWhenMade(Chat):
    def __init__(self, *_):
        sys.exit(3)

class Lines(Jsonl):
    name = "lines"
    def write(self, family):
        if "town 1" in family.trace.messages[0].content:
            raise ValueError("not this one")
        return super().write(family)

CONFIG = Config(name="steps", columns={**COMMON_COLUMNS}, about="Steps.")

class Steps:
    configs = (CONFIG,)
    def rows(self, task):
        for attempt in task.attempts:
            if "town 1" in attempt.trace.messages[0].content:
                raise ValueError("not this one")
            for target in attempt.targets:
                yield CONFIG.make_row(attempt.make_common_values(target.index))
"""


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("broken_plugins.py").write_text(PLUGINS)
    monkeypatch.syspath_prepend(Path.cwd())
    write_rows(Path("rows.jsonl"), [chat_row(number) for number in range(4)])


@pytest.mark.parametrize("name", ["Exits", "ExitsWhenMade"])
@pytest.mark.usefixtures("rows")
def test_a_source_that_exits_does_not_set_the_exit_code(run: Run, name: str) -> None:
    done = run(f"import broken_plugins:{name} rows.jsonl --out t")
    assert done.code == 1 and "unexpected SystemExit: 3" in done.err


@pytest.fixture
def key(run: Run, rows: None) -> str:
    """The key of one of the traces in the folder `weather`: that on which something fails."""
    assert run("import chat rows.jsonl --out weather").code == 0
    return next(trace.key for trace in read_traces("weather") if "town 1" in trace.messages[0].content)


def fail_in(monkeypatch: pytest.MonkeyPatch, module: object, name: str, town: str = '"town": 1') -> None:
    """Let a function of a module fail on what names this town."""
    usual = getattr(module, name)

    def call(*given: object, **named: object) -> object:
        if any(town in (each.arguments if isinstance(each, ToolCall) else str(each)) for each in given):
            raise LookupError("no such rule")
        return usual(*given, **named)

    monkeypatch.setattr(module, name, call)


def last_line(text: str) -> str:
    return text.strip().splitlines()[-1]


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.usefixtures("rows")
def test_a_source_that_fails_on_a_row(run: Run, workers: int) -> None:
    line = f"import broken_plugins:Rows rows.jsonl --workers {workers}"
    result = run(f"{line} --out out --json")
    assert result.code == 1 and result.json["traces"] == 3 and result.json["drops"] == {"internal_error": 1}
    said = last_line(result.err)
    assert said.startswith("foretrace: internal_error 1: rows on rows.jsonl row 1: KeyError: 'no such thing'")
    assert said.endswith("the rest is done; run again with --debug to see where")
    again = run(f"{line} --out again --debug")
    assert "Traceback" in again.err and 'raise KeyError("no such thing")' in again.err


@pytest.mark.parametrize("workers", [1, 2])
def test_a_recipe_that_fails_on_a_task(key: str, run: Run, workers: int) -> None:
    recipes = "--recipes broken_plugins:Steps --recipes trajectories"
    result = run(f"build weather --out data --outcomes all {recipes} --workers {workers} --json")
    assert result.code == 1 and f"internal_error 1: recipe steps on {key}: " in last_line(result.err)
    assert json.loads(Path("data/manifest.json").read_text())["drops"]["steps"] == {"internal_error": 1}
    keys = {row["key"] for file in Path("data/steps").iterdir() for row in pq.read_table(file).to_pylist()}
    assert keys == {trace.key for trace in read_traces("weather")} - {key}


def test_a_format_that_fails_on_a_trace(key: str, run: Run) -> None:
    result = run("export weather --format broken_plugins:Lines --out out.jsonl --json")
    assert result.code == 1 and f"internal_error 1: lines on {key}: " in last_line(result.err)
    assert (result.json["written"], result.json["dropped"]) == (3, {"internal_error": 1})
    assert len(Path("out.jsonl").read_text().splitlines()) == 3


@pytest.mark.parametrize("module", [label_steps, flags])
def test_a_rule_that_fails_on_a_step(key: str, run: Run, monkeypatch: pytest.MonkeyPatch, module: object) -> None:
    of_labels = module is label_steps
    fail_in(monkeypatch, module, "classify_call" if of_labels else "_check_call")
    lines = ["label weather --out labels.jsonl", "view weather --out page", f"show weather {key}"]
    lines.append(f"show weather {key} --json")
    if of_labels:  # flags are a filter's affair
        lines.append("build weather --out data --outcomes all --recipes trajectories")
    for line in lines:
        result = run(line)
        said = f"internal_error 1: {'labels' if of_labels else 'flags'} on {key}: LookupError: no such rule"
        assert result.code == 1 and said in last_line(result.err), line
    labels = [json.loads(text) for text in Path("labels.jsonl").read_text().splitlines()]
    failed = [row["key"] for row in labels if row["rule"] == "nonstep.internal_error"]
    assert len(labels) == 8 and failed == ([key] if of_labels else [])


def test_a_measure_that_fails_on_a_trace(key: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (ceiling, traces_page):
        fail_in(monkeypatch, module, "time_steps", "town 1?")
    result = run("ceiling weather --json")
    assert result.code == 1 and result.json["traces"] == 3
    assert f"internal_error 1: ceiling on {key}: " in last_line(result.err)
    result = run("view weather --json")
    assert result.code == 1 and (result.json["listed"], result.json["unreadable"]) == (3, 1)
    assert f"internal_error 1: page on {key}: " in last_line(result.err)


def test_a_scanner_that_fails_on_a_trace(key: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_in(monkeypatch, redact, "_list_placeholders", "town 1")
    fail_in(monkeypatch, redact, "_rewrite", "town 1")
    monkeypatch.setattr(redact, "_list_known", lambda _: {"town": "token"})
    result = run("scrub weather --out clean --json")
    assert result.code == 1 and result.json["written"] == 3 and result.json["drops"] == {"internal_error": 1}
    assert f"internal_error 1: redact on {key}: LookupError (" in last_line(result.err)


def test_a_trace_that_a_filter_cannot_look_at_is_left_out(key: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_in(monkeypatch, CopyFilter, "examine", "town 1?")
    result = run("build weather --out dataset --outcomes all --no-statistical-gates --workers 1")
    said = f"internal_error 1: filter {CopyFilter.name} on {key}: LookupError"
    assert result.code == 1 and said in last_line(result.err)
    found = json.loads(Path("dataset/manifest.json").read_text())["filters"]["internal_error"]
    assert found["left_out"] == 1 and list(found["by_source"].values()) == [{"internal_error": 1}]
    rows = [row for file in Path("dataset").glob("*/*.parquet") for row in pq.read_table(file).to_pylist()]
    assert rows and all(row["key"] != key for row in rows)
