"""R2E-Gym rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sources.formats.reading import SHARED, count, needs_shared, read, read_one, recognize, write_lines

FILE = SHARED / "formats" / "r2e_gym" / "SYNTHETIC_trajectory.jsonl"


@needs_shared
def test_counts_and_times() -> None:
    trace, account = read_one("r2e_gym", FILE)
    assert list(recognize(FILE)) == ["r2e_gym"] and account.used == 3
    assert count(trace) == {"turns": 3, "calls": 3, "results": 3}
    assert sum(m.model_s or 0 for m in trace.messages) == pytest.approx(7.0)
    assert sum(m.tool_s or 0 for m in trace.messages) == pytest.approx(0.6)
    assert {m.model_s_source for m in trace.messages if m.model_s} == {"runner"}
    assert trace.messages[-1].tool_s is None, "nothing ran"
    assert (trace.task.id, trace.task.group, trace.outcome.success) == ("o__r-1", "o/r", True)
    assert [m.content for m in trace.messages[:2]] == ["You are a programming agent", "Fix it"]


def row(**more: Any) -> dict[str, Any]:
    step = {"thought": "look", "action": "<function=ls>\n</function>", "observation": "a.py", "llm_exec_time": 1.0,
            "env_exec_time": 0.5}  # fmt: skip
    facts = {"problem_statement": "Fix", "docker_image": "x/pandas:1", "agent_args": {}}
    return {"trajectory_steps": [step], **facts, **more}


def test_steps_without_a_call_and_attempts_apart(tmp_path: Path) -> None:
    talk = row(trajectory_steps=[{"thought": "hm", "action": "", "observation": "give an action", "llm_exec_time": 2}])
    twice = [talk, json.loads(json.dumps(talk).replace('": 2', '": 3')), row(trajectory_steps=[])]
    traces, (drop,), _ = read("r2e_gym", write_lines(tmp_path / "t", twice))
    assert traces[0].key != traces[1].key and traces[0].task == traces[1].task
    assert traces[0].messages[-1].author == "environment" and traces[0].messages[-1].role == "user"
    assert drop.reason == "no_agent_turn"
