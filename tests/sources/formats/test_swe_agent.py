"""SWE-agent's .traj files: demonstrations, text actions, times, replies asked for again, several attempts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from foretrace.actions.label_steps import label_trace
from sources.formats.reading import count, outline, read_one, write_document


def step(response: str, action: str, seconds: float, observation: str = "ok") -> dict[str, Any]:
    return {"action": action, "observation": observation, "response": response, "thought": "", "state": {},
            "execution_time": seconds, "query": [], "extra_info": {}}  # fmt: skip


def message(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, "agent": "main", **more}


FENCED = "Look.\n\n```\nls -a\n```"


def document(*history: dict[str, Any], steps: list[dict[str, Any]] | None = None, **more: Any) -> dict[str, Any]:
    info = {"exit_status": "submitted", "submission": "diff", "swe_agent_version": "1.1.0"}
    return {"environment": "main", "trajectory": steps or [], "history": list(history), "info": info, **more}


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
