"""Demonstrations in a browser or on a phone: Mind2Web, WebLINX, AndroidControl."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import foretrace
from foretrace.actions.label_steps import label_trace
from foretrace.actions.taxonomy import Effect
from foretrace.core.store import read_traces
from foretrace.core.trace import Trace
from foretrace.rows.base import RowRef
from foretrace.sources.chat import Chat

TOLD = ["[button]  Rent -> CLICK", "[textbox]  City -> TYPE: Oslo", "[combobox]  Size -> SELECT: Small"]


def operation(op: str, value: str = "") -> dict[str, Any]:
    return {"op": op, "original_op": op, "value": value}


EPISODE = {
    "annotation_id": "a1", "website": "cars", "confirmed_task": "Rent a small car in Oslo.", "action_reprs": TOLD,
    "actions": [
        {"action_uid": "u", "cleaned_html": f"<p>{n}</p>", "raw_html": "<html/>", "operation": each,
         "neg_candidates": [], "pos_candidates": [{"tag": "a", "backend_node_id": f"{n}7"}]}
        for n, each in enumerate([operation("CLICK"), operation("TYPE", "Oslo"), operation("SELECT", "Small")])
    ],
}  # fmt: skip
STEP = {
    "annotation_id": "a1", "confirmed_task": "Rent a small car in Oslo.", "action_reprs": TOLD, "action_uid": "u",
    "target_action_index": "1", "target_action_reprs": TOLD[1], "operation": json.dumps(operation("TYPE", "Oslo")),
    "cleaned_html": "<p>1</p>", "raw_html": "<html/>", "pos_candidates": ['{"backend_node_id": "17"}'],
    "neg_candidates": ["{}"], "screenshot": {"bytes": b"\x89PNG", "path": None}, "website": "cars",
}  # fmt: skip
NAVIGATOR = {
    "demo": "aaa", "turn": 5, "action": 'click(uid="b1")',
    "action_history": 'say(speaker="instructor", utterance="Hi")',
    "utterances": "[00:05] Open the page.", "candidates": "(uid = b1) a", "clean_html": "<a/>", "viewport": "746h x 9w",
}  # fmt: skip
PHONE = {
    "episode_id": 7, "goal": "Turn on the alarm.", "step_instructions": ["Open the clock", "Tap it"],
    "actions": ['{"action_type": "open_app", "app_name": "Clock"}', {"action_type": "click", "x": 5, "y": 9}],
    "accessibility_trees": ["home", "clock"], "screenshots": [b"\x89PNG", b"\x89PNG"],
}  # fmt: skip


def read(row: dict[str, Any]) -> Trace:
    trace = Chat().to_trace(row, RowRef(0))
    assert isinstance(trace, Trace)
    return trace


def calls(trace: Trace) -> list[tuple[str, dict[str, Any]]]:
    return [(c.name, json.loads(c.arguments)) for m in trace.messages for c in m.tool_calls]


def test_a_task_of_mind2web() -> None:
    trace = read(EPISODE)
    assert [(m.role, m.author) for m in trace.messages] == [
        ("user", "user"), ("user", "environment"), ("assistant", "model"), ("tool", "environment"),
        ("assistant", "model"), ("tool", "environment"), ("assistant", "model"),
    ]  # fmt: skip
    assert calls(trace) == [
        ("click", {"element": "[button]  Rent", "node": "07"}),
        ("type", {"element": "[textbox]  City", "node": "17", "text": "Oslo"}),
        ("select", {"element": "[combobox]  Size", "node": "27", "option": "Small"}),
    ]
    assert trace.task.id == "a1" and trace.extra == {"website": "cars", "annotation_id": "a1"}


def test_a_step_of_mind2web_does_not_know_what_comes() -> None:
    trace = read(STEP)
    shown = trace.messages[1]
    assert calls(trace) == [("type", {"element": "[textbox]  City", "node": "17", "text": "Oslo"})]
    assert "Rent -> CLICK" in shown.content and "Oslo" not in shown.content and "Small" not in shown.content
    assert shown.author == "environment" and shown.parts[0].sha256 and "screenshot" not in trace.extra
    other = read({**STEP, "target_action_index": "2", "operation": json.dumps(operation("SELECT", "Small"))})
    assert other.task.id == trace.task.id == "a1" and other.key != trace.key


def test_a_turn_of_weblinx() -> None:
    trace = read(NAVIGATOR)
    assert calls(trace) == [("click", {"uid": "b1"})] and trace.task.id == "aaa"
    assert trace.messages[0].content == "[00:05] Open the page." and "<a/>" in trace.messages[1].content
    said = read({**NAVIGATOR, "action": 'say(speaker="navigator", utterance="Done.")'})
    assert calls(said) == [] and said.messages[-1].content == "Done." and said.task.id == "aaa"


def test_an_episode_of_android_control() -> None:
    trace = read(PHONE)
    assert calls(trace) == [("open_app", {"app_name": "Clock"}), ("click", {"x": 5, "y": 9})]
    assert [m.content for m in trace.messages] == ["Turn on the alarm.", "home", "Open the clock", "clock", "Tap it"]
    assert trace.task.id == "7"


def test_no_action_on_a_screen_is_a_pure_read() -> None:
    names = ["click", "long_press", "input_text", "open_app", "navigate_back", "navigate_home", "scroll", "type"]
    names += ["select", "hover", "enter", "load", "submit", "text_input", "change", "tabcreate", "paste", "swipe"]
    for name in names:
        row = {"goal": "Go.", "step_instructions": [""], "actions": [{"action_type": name, "text": "x"}]}
        (label,) = [each for each in label_trace(read(row)) if each.action]
        assert label.effect is not Effect.PURE_READ, name


def test_odd_rows_are_no_demonstrations() -> None:
    for change in (
        {"actions": [{"operation": 5}]}, {"actions": ["x"]}, {"actions": []}, {"confirmed_task": 3},
        {"actions": [{"operation": "{"}]},
    ):  # fmt: skip
        assert _is_refused({**EPISODE, **change})
    assert _is_refused({**NAVIGATOR, "action": "not a call"}) and _is_refused({**NAVIGATOR, "action": "f(" * 5000})
    assert _is_refused({**STEP, "target_action_index": "99"}) and _is_refused({**PHONE, "actions": [{}]})


def test_what_is_on_the_screen_in_the_end() -> None:
    """An episode has a screen more than actions; it was lost."""
    trace = read({**PHONE, "accessibility_trees": ["home", "clock", "alarm on"]})
    assert [m.content for m in trace.messages if m.role == "tool"] == ["clock", "alarm on"]


def _is_refused(row: dict[str, Any]) -> bool:
    try:
        return not isinstance(Chat().to_trace(row, RowRef(0)), Trace)
    except ValueError:
        return True


def test_import_knows_them(tmp_path: Path) -> None:
    rows = [EPISODE, {k: v for k, v in STEP.items() if k != "screenshot"}, NAVIGATOR]
    rows.append({k: v for k, v in PHONE.items() if k != "screenshots"})
    page = {"action_uid": "u", "raw_html": "x" * 400_000, "operation": operation("CLICK")}
    rows.append({"confirmed_task": "Long.", "annotation_id": "a2", "action_reprs": TOLD[:1], "actions": [page]})
    for number, row in enumerate(rows):
        (tmp_path / f"{number}.jsonl").write_text(json.dumps(row) + "\n")
    foretrace.import_source("auto", tmp_path, out=tmp_path / "traces")
    assert len(list(read_traces(tmp_path / "traces"))) == 5
