"""SWE-agent's .traj files: demonstrations, text actions, times, replies asked for again, several attempts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from foretrace.actions.label_steps import label_trace
from sources.formats.reading import SHARED, count, needs_shared, outline, read, read_one, recognize, write_document


def step(response: str, action: str, seconds: float, observation: str = "ok") -> dict[str, Any]:
    return {"action": action, "observation": observation, "response": response, "thought": "", "state": {},
            "execution_time": seconds, "query": [], "extra_info": {}}  # fmt: skip


def message(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, "agent": "main", **more}


FENCED = "Look.\n\n```\nls -a\n```"


def document(*history: dict[str, Any], steps: list[dict[str, Any]] | None = None, **more: Any) -> dict[str, Any]:
    info = {"exit_status": "submitted", "submission": "diff", "swe_agent_version": "1.1.0"}
    return {"environment": "main", "trajectory": steps or [], "history": list(history), "info": info, **more}


@needs_shared
def test_real_files() -> None:
    """Each step of `trajectory` is an action that was measured or not; turns are counted from the histories."""
    path = SHARED / "traces" / "swe_agent_traj" / "rows.jsonl"
    traces, drops, account = read("swe_agent", path)
    assert list(recognize(path)) == ["swe_agent"] and not drops
    assert account.used == account.records == 138
    assert [count(t)["turns"] for t in traces] == [11, 11, 11, 15, 12, 5]
    assert [t.provenance.raw_row for t in traces] == list(range(6))
    first = traces[0]
    assert first.task.id == "marshmallow-code__marshmallow-1867" and first.task.group == "marshmallow-code/marshmallow"
    ran = [s["execution_time"] for s in json.loads(path.read_text().splitlines()[0])["trajectory"]]
    assert [m.tool_s for m in first.messages if m.role == "tool"] == ran and len(ran) == 11
    assert {m.tool_s_source for m in first.messages if m.role == "tool"} == {"runner"}
    assert first.outcome.exit_reason == "submitted" and first.outcome.success is None


def test_demonstrations_are_no_steps(tmp_path: Path) -> None:
    shown = [message("user", "demo task", is_demo=True), message("assistant", FENCED, is_demo=True),
             message("user", "demo result", is_demo=True)]  # fmt: skip
    path = write_document(
        tmp_path / "t.traj",
        document(message("system", "s"), *shown, message("user", "go"), message("assistant", FENCED)),
    )
    trace, _ = read_one("swe_agent", path)
    assert outline(trace) == [
        ("system", "user", "s"), ("user", "demo", "demo task"), ("assistant", "demo", FENCED),
        ("tool", "environment", "demo result"), ("user", "user", "go"), ("assistant", "model", FENCED),
    ]  # fmt: skip
    assert [label.action is None for label in label_trace(trace)] == [True, False] and count(trace)["turns"] == 1


@pytest.mark.parametrize(
    ("ended", "status"),
    [("submitted", "done"), ("submitted (exit_cost)", "limit"), ("exit_context", "limit"), ("exit_error", "error"),
     (None, "done")],
)  # fmt: skip
def test_how_it_ended(ended: str | None, status: str, tmp_path: Path) -> None:
    made = document(message("user", "go"), message("assistant", FENCED), message("user", "ok"),
                    message("assistant", "Exit due to cost limit"))  # fmt: skip
    made["info"]["exit_status"] = ended
    trace, _ = read_one("swe_agent", write_document(tmp_path / "t.traj", made))
    assert (trace.outcome.status, trace.outcome.exit_reason) == (status, ended)
    assert trace.messages[-1].author == "environment" and trace.messages[-1].train is False
    assert trace.extra["info"]["submission"] == "diff"
