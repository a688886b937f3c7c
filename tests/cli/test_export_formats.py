"""`foretrace export`: what the summary says was lost, and formats that there are not."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from cli.conftest import Run
from exports.any_traces import SAID
from exports.test_export_traces import named, store
from exports.test_otlp import TIMED
from exports.test_row_formats import SYSTEM, USER, make
from foretrace.core.trace import Outcome, Sampled


def test_the_summary_names_each_field_that_was_lost(run: Run, tmp_path: Path) -> None:
    sampled = Sampled(token_ids=(1, 2), logprobs=(-0.5, -0.25), exact="token")
    said = msgspec.structs.replace(SAID, sampled=sampled, started=None)
    traces = store(tmp_path / "t", make(SYSTEM, USER, *TIMED, said, outcome=Outcome(success=True, reward=1.0)))
    made = run("export", traces, "--format", "openai", "--out", tmp_path / "o.jsonl", "--json").json
    wanted = {
        "messages.logprobs": 1, "messages.token_ids": 1, "results.tool_s": 1, "messages.model_s": 1,
        "messages.reasoning": 1, "results.is_error": 1, "traces.reward": 1, "traces.success": 1, "traces.key": 1,
    }  # fmt: skip
    assert wanted.items() <= made["lost"].items() and made["kept"] == {}
    assert not {"traces.tools", "calls.id", "results.tool_call_ids", "results.prefix"} & made["lost"].keys()
    text = run("export", traces, "--format", "openai", "--out", tmp_path / "o.jsonl").out
    lost = {line.split("  ")[0]: line for line in text.splitlines() if line.startswith("lost, ")}
    assert "logprobs 1" in lost["lost, messages"] and "tool_s 1" in lost["lost, results"]
    made = run("export", traces, "--format", "otlp", "--out", tmp_path / "h.jsonl", "--json").json
    assert made["lost"] == {"messages.logprobs": 1, "messages.token_ids": 1} and made["kept"]["traces.reward"] == 1
    made = run("export", traces, "--format", "atif", "--out", tmp_path / "a", "--json").json
    assert made["lost"]["traces.reward"] == 1 and "messages.logprobs" not in made["lost"] and made["kept"] == {}
    assert run("export", traces, "--format", "jsonl", "--out", tmp_path / "w.jsonl", "--json").json["lost"] == {}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing", "unknown format 'nothing': choose one of jsonl, chat, inline, openai"),
        ("harbor_tasks", ", otlp, harbor-tasks, or module:Class"),
        ("os:path", "'os:path' is not a format: it has no 'name'"),
    ],
)
def test_formats_that_there_are_not(run: Run, name: str, message: str, tmp_path: Path) -> None:
    traces = store(tmp_path / "t", named("k"))
    done = run("export", traces, "--format", name, "--out", tmp_path / "o.jsonl")
    assert done.code == 2 and message in done.err and len(done.err.strip().splitlines()) == 1
    assert not (tmp_path / "o.jsonl").exists()
