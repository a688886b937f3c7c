"""inspect_ai logs: archives and documents, measured calls, scores, attachments, damage."""

from __future__ import annotations

import gzip
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
import zstandard

from foretrace.core.errors import SourceError
from foretrace.sources.formats.inspect_ai import InspectAI
from sources.formats.reading import count, read, read_one, recognize, write_document

HEADER = {
    "version": 2, "status": "success",
    "eval": {"run_id": "run", "task": "swe", "task_id": "t", "model": "openai/gpt", "created": "2026-01-01",
             "solver": "react", "model_generate_config": {"temperature": 0.5}},
}  # fmt: skip


def model_event(message_id: str, seconds: float | None = 1.5, **more: Any) -> dict[str, Any]:
    choice = {"message": {"id": message_id, "role": "assistant", "content": ""}, "stop_reason": "tool_calls"}
    usage = {"input_tokens": 5, "output_tokens": 2, "input_tokens_cache_read": 3}
    tool = {"name": "bash", "description": "run", "parameters": {"type": "object", "properties": {}}}
    return {"event": "model", "timestamp": "2026-01-01T00:00:01+00:00", "completed": "2026-01-01T00:00:03+00:00",
            "working_time": seconds, "tools": [tool], "output": {"choices": [choice], "usage": usage},
            **more}  # fmt: skip


def sample(**more: Any) -> dict[str, Any]:
    call = {"id": "c1", "function": "bash", "arguments": {"cmd": "ls"}, "type": "function"}
    parts = [{"type": "reasoning", "reasoning": "hm"}, {"type": "text", "text": "look"}]
    messages = [
        {"id": "1", "role": "system", "content": "attachment://abc"},
        {"id": "2", "role": "user", "content": "go", "source": "input"},
        {"id": "3", "role": "assistant", "content": parts, "tool_calls": [call], "source": "generate"},
        {"id": "4", "role": "tool", "content": "", "tool_call_id": "c1", "function": "bash",
         "error": {"type": "timeout", "message": "too long"}},
        {"id": "5", "role": "assistant", "content": "done", "source": "generate"},
    ]  # fmt: skip
    tool = {
        "event": "tool",
        "id": "c1",
        "function": "bash",
        "timestamp": "2026-01-01T00:00:03+00:00",
        "working_time": 0.5,
    }
    events = [{"event": "sample_init"}, model_event("3"), tool, model_event("5", None), model_event("grader")]
    return {"id": "o__r-1", "epoch": 1, "uuid": "u1", "target": "x", "messages": messages, "events": events,
            "attachments": {"abc": "be good"}, "scores": {"tests": {"value": "C"}}, **more}  # fmt: skip


def write_eval(path: Path, *samples: dict[str, Any], finished: bool = True) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("_journal/start.json", json.dumps({k: HEADER[k] for k in ("version", "eval")}))
        for each in samples:
            archive.writestr(f"samples/{each['id']}_epoch_{each['epoch']}.json", json.dumps(each))
        archive.writestr("summaries.json", "[]")
        if finished:
            archive.writestr("header.json", json.dumps(HEADER))
    return path


@pytest.mark.parametrize("form", ["eval", "running", "json"])
def test_both_forms(form: str, tmp_path: Path) -> None:
    path = tmp_path / f"log.{form}"
    if form == "json":
        write_document(path, {**HEADER, "samples": [sample()]})
    else:
        write_eval(path, sample(), finished=form == "eval")
    trace, account = read_one("inspect_ai", path)
    assert list(recognize(path)) == ["inspect_ai"]
    assert count(trace) == {"turns": 2, "calls": 1, "results": 1} and account.used == 8
    system, _, reply, ran, last = trace.messages
    assert (system.content, reply.content, reply.reasoning) == ("be good", "look", "hm")
    assert (reply.model_s, last.model_s, ran.tool_s) == (1.5, 2.0, 0.5), "working time, else from beginning to end"
    assert {m.model_s_source for m in (reply, last)} == {ran.tool_s_source} == {"runner"}
    assert (ran.content, ran.is_error) == ("too long", True) and trace.tools[0].name == "bash"
    assert account.ignored == {"sample_init event": 1, "model call that is not a message of the sample": 1}
    assert (trace.task.id, trace.task.group, trace.outcome.success) == ("o__r-1", "o/r", True)
    assert trace.provenance.model == "openai/gpt" and trace.provenance.sampling == {"temperature": 0.5}
    assert reply.sampled and reply.sampled.usage and reply.sampled.usage.prompt_tokens == 8


@pytest.mark.parametrize(
    ("scores", "success", "reward"),
    [({"a": {"value": "I"}}, False, 0.0), ({"a": {"value": "P"}}, None, 0.5), ({"a": {"value": True}}, True, 1.0),
     ({"a": {"value": 0.25}}, None, 0.25), ({"a": {"value": 1}, "b": {"value": 0}}, None, None),
     ({"a": {"value": {"x": 1}}}, None, None), (None, None, None)],
)  # fmt: skip
def test_scores(scores: Any, success: bool | None, reward: float | None, tmp_path: Path) -> None:
    outcome = read_one("inspect_ai", write_eval(tmp_path / "a.eval", sample(scores=scores)))[0].outcome
    assert (outcome.success, outcome.reward) == (success, reward)


def test_examples_and_cached_calls(tmp_path: Path) -> None:
    raw = sample(events=[model_event("5", cache="read")])
    raw["messages"][2]["source"] = "input"
    trace, _ = read_one("inspect_ai", write_eval(tmp_path / "a.eval", raw))
    assert trace.messages[2].author == "demo" and trace.messages[4].model_s is None


def test_packed_with_zstandard(tmp_path: Path) -> None:
    """As Python 3.14 and newer write it: method 93, which older ones do not know."""
    body = json.dumps(sample()).encode()
    path = tmp_path / "a.eval"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("_journal/start.json", json.dumps(HEADER))
        archive.writestr("samples/a_epoch_1.json", zstandard.compress(body))
    data = bytearray(path.read_bytes())
    name = b"samples/a_epoch_1.json"
    local, central = data.index(name) - 30, data.rindex(name) - 46
    data[local + 8 : local + 10] = data[central + 10 : central + 12] = (93).to_bytes(2, "little")
    path.write_bytes(data)
    assert count(read_one("inspect_ai", path)[0])["turns"] == 2


def test_damage(tmp_path: Path) -> None:
    path = write_eval(tmp_path / "a.eval", sample(), {"id": "x", "epoch": 1, "messages": [3]})
    traces, (drop,), account = read("inspect_ai", path)
    assert len(traces) == 1 and drop.reason == "no_agent_turn" and account.dropped == {"not_an_object": 1}
    data = bytearray(path.read_bytes())
    at = data.index(b"samples/o__r-1") + 60
    data[at : at + 40] = b"x" * 40
    path.write_bytes(data)
    assert {d.reason for d in read("inspect_ai", path)[1]} == {"truncated_file", "no_agent_turn"}
    path.write_bytes(data[: len(data) // 2])
    assert list(recognize(path)) == ["inspect_ai"]
    with pytest.raises(SourceError, match="still being written"):
        list(InspectAI().read_traces(path, account))


def test_numbers_that_json_does_not_know(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    text = json.dumps({**HEADER, "samples": [sample(scores={"a": {"value": float("nan")}})]})
    path.write_text(text)
    assert read_one("inspect_ai", path)[0].outcome.reward is None
    path.write_text(json.dumps({**HEADER, "samples": None}))
    assert read("inspect_ai", path)[1][0].reason == "no_agent_turn"


def test_half_a_character_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps({**HEADER, "samples": [sample(input="cut \ud83d")]}))
    assert read_one("inspect_ai", path)[0].messages


def test_packed_and_unreadable_documents(tmp_path: Path) -> None:
    packed = tmp_path / "a.json.gz"
    packed.write_bytes(gzip.compress(json.dumps({**HEADER, "samples": [sample()]}).encode()))
    assert count(read_one("inspect_ai", packed)[0])["turns"] == 2
    packed.write_bytes(packed.read_bytes()[:-9])
    assert read("inspect_ai", packed)[1][0].reason == "truncated_file"
    deep = tmp_path / "a.json"
    deep.write_text(json.dumps(HEADER)[:-1] + ', "samples": ' + "[" * 100_000)
    assert read("inspect_ai", deep)[1][0].reason == "bad_json"


def test_ids_with_slashes_and_samples_in_pieces(tmp_path: Path) -> None:
    path = write_eval(tmp_path / "a.eval", sample(id="HumanEval/0"))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("samples/HumanEval/1_epoch_1/sample.json", "{}")
    traces, (drop,), _ = read("inspect_ai", path)
    assert len(traces) == 1 and (drop.reason, "HumanEval/1" in drop.detail) == ("sample_in_pieces", True)
