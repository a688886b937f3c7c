"""Episodes of the verifiers library: branches, tokens, measured calls, rewards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from foretrace.core.trace import Message, Outcome, Provenance, Task, ToolCall, Trace, Usage
from foretrace.envs.train_sequence import make_sequence
from sources.formats.reading import SHARED, count, needs_shared, outline, read, read_one, recognize, write_lines

FILE = SHARED / "formats" / "verifiers_v1" / "traces.jsonl"


@needs_shared
def test_counts_and_times() -> None:
    trace, account = read_one("verifiers_traces", FILE)
    assert list(recognize(FILE)) == ["verifiers_traces"] and account.used == 5
    assert count(trace) == {"turns": 2, "calls": 1, "results": 1}
    assert [m.model_s for m in trace.messages] == [None, None, 2.5, None, 0.75]
    assert all(m.tool_s is None for m in trace.messages), "the gap holds the harness too"
    assert (trace.outcome.reward, trace.outcome.success, trace.outcome.exit_reason) == (1.0, None, "agent_completed")
    assert trace.task.id == "count:k1" and trace.tools[0].name == "bash" and trace.provenance.model == "m"
    sampled = trace.messages[2].sampled
    assert sampled and sampled.usage == Usage(prompt_tokens=40, completion_tokens=20)


def node(parent: int | None, role: str, content: str, sampled: bool = False, **more: Any) -> dict[str, Any]:
    message = {"role": role, "content": content, **more.pop("message", {})}
    made = {"message": message, "sampled": sampled, "timestamp": 1.8e9}
    return made | ({} if parent is None else {"parent": parent}) | more


def episode(*nodes: dict[str, Any], **more: Any) -> dict[str, Any]:
    trace = {"id": "t", "task": {"type": "T", "data": {"x": 1}, "key": "k"}, "nodes": list(nodes), "calls": [],
             "rewards": {}, "metrics": {}, "errors": [], "ok": True, **more}  # fmt: skip
    return {"id": "e", "env": {"id": "env"}, "traces": [trace], "errors": []}


def test_each_branch_is_an_attempt_whose_turns_count_once(tmp_path: Path) -> None:
    graph = episode(
        node(None, "user", "go"), node(0, "assistant", "a", True), node(1, "user", "left"),
        node(2, "assistant", "b", True), node(1, "user", "right"), node(4, "assistant", "c", True),
    )  # fmt: skip
    traces, _, account = read("verifiers_traces", write_lines(tmp_path / "t", [graph]))
    assert [[who[1:] for who in outline(t)] for t in traces] == [
        [("user", "go"), ("model", "a"), ("user", "left"), ("model", "b")],
        [("user", "go"), ("demo", "a"), ("user", "right"), ("model", "c")],
    ]
    assert [t.key for t in traces] == ["verifiers_traces@t", "verifiers_traces@t/5"] and account.used == 6
    assert traces[0].task == traces[1].task and sum(count(t)["turns"] for t in traces) == 3


def test_tokens_add_up_to_what_the_model_saw(tmp_path: Path) -> None:
    """What a node adds to the sequence: scaffold of the template first, then the model's own."""
    nodes = [
        node(None, "user", "go", token_ids=[1, 2], mask=[False, False]),
        node(0, "assistant", "a", True, token_ids=[3, 4, 5], mask=[False, True, True], logprobs=[-0.5, -0.25]),
        node(1, "tool", "r", token_ids=[6], mask=[False], message={"tool_call_id": "c"}),
        node(2, "assistant", "b", True, token_ids=[7, 8], mask=[False, True], logprobs=[-1.0]),
    ]
    calls = [{"node": n, "time": {}, "finish_reason": "stop"} for n in (1, 3)]
    trace, _ = read_one("verifiers_traces", write_lines(tmp_path / "t", [episode(*nodes, calls=calls)]))
    first, result, second = (m.sampled for m in trace.messages[1:])
    assert (
        first and (first.prompt_token_ids, first.token_ids) == ((1, 2, 3), (4, 5)) and first.logprobs == (-0.5, -0.25)
    )
    assert result and result.token_ids == (6, 7) and second and second.token_ids == (8,)
    made = make_sequence(trace, 8, [8])
    assert made is not None and made.tokens == [1, 2, 3, 4, 5, 6, 7, 8]
    assert made.masks == [-100, -100, -100, 4, 5, -100, -100, 8] and made.inexact == 0


def test_an_episode_of_our_own_environment_is_the_trace_that_generate_makes(tmp_path: Path) -> None:
    call = ToolCall(id="c", name="python", arguments="{}")
    own = Trace(
        key="generated/builtin/x/1/0",
        task=Task(id="builtin/x", group="builtin/x", kind="problem"),
        messages=(
            Message(role="user", author="user", content="go", raw_index=0),
            Message(role="assistant", author="model", content="a", tool_calls=(call,), raw_index=1),
            Message(role="tool", author="environment", content="r", tool_call_ids=("c",), raw_index=2),
        ),
        outcome=Outcome(success=True, reward=1.0),
        provenance=Provenance(origin="generated", source="builtin", protocol="interleaved_tools"),
    )
    nodes = [
        node(None, "user", "go", token_ids=[1, 2], mask=[False, False]),
        node(0, "assistant", "a", True, token_ids=[3, 4], mask=[False, True], logprobs=[-0.5]),
        node(1, "user", "elsewhere"),
        node(0, "assistant", "without thoughts", True),
    ]
    info = {"foretrace": {"outcome": {}, "trace": msgspec.to_builtins(own)}, "more": 1}
    trace, account = read_one("verifiers_traces", write_lines(tmp_path / "t", [episode(*nodes, info=info)]))
    assert account.used == 4 and trace.key == "verifiers_traces@t" and trace.extra["info"] == {"more": 1}
    assert (trace.task, trace.outcome) == (own.task, own.outcome) and trace.provenance.protocol == "interleaved_tools"
    assert [(m.role, m.tool_calls) for m in trace.messages] == [(m.role, m.tool_calls) for m in own.messages]
    sampled = trace.messages[1].sampled
    assert sampled and sampled.token_ids == (4,) and sampled.prompt_token_ids == (1, 2, 3)
    given_up = node(0, "assistant", "another", True, token_ids=[3, 7], mask=[False, True], logprobs=[-0.5])
    nodes = [nodes[0], given_up, nodes[1]]
    trace, _ = read_one("verifiers_traces", write_lines(tmp_path / "u", [episode(*nodes, info=info)]))
    sampled = trace.messages[1].sampled
    assert sampled and sampled.token_ids == (4,), "not those of a reply that was given up"


def test_episodes_without_traces_and_circles(tmp_path: Path) -> None:
    failed = {"id": "e", "env": {}, "traces": [], "errors": [{"type": "Boot", "message": "no box"}]}
    circle = episode(node(1, "user", "go"), node(0, "assistant", "a", True))
    (trace,), (drop,), account = read("verifiers_traces", write_lines(tmp_path / "t", [failed, circle]))
    assert "no box" in drop.detail and account.ignored == {"episode without a trace": 1}
    assert outline(trace) == [("user", "user", "go"), ("assistant", "model", "a")]
