"""What an Atropos group says, without Atropos."""

from __future__ import annotations

from foretrace.core.trace import Outcome, Provenance, Task, Trace
from foretrace.envs.atropos.groups import make_group
from foretrace.envs.rollouts import Rollout
from foretrace.envs.train_sequence import MASKED, UNKNOWN, TrainSequence


def rollout(
    reward: float = 0.0, *, cut: int = 0, length: int = 3, reason: str = "", inexact: int = 0, trained: bool = True
) -> Rollout:
    trace = Trace(
        key="k",
        task=Task(id="t", group="t"),
        messages=(),
        outcome=Outcome(
            reward=reward, success=reward >= 1, exit_reason=reason or None, metrics={"cut_replies": float(cut)}
        ),
        provenance=Provenance(origin="generated", source="s"),
    )
    ids = list(range(1, length + 1))
    masks, logprobs = ([MASKED, *ids[1:]], [UNKNOWN] + [-0.5] * (length - 1)) if trained else ([], [])
    messages = [{"role": "user", "content": "q"}]
    return Rollout(trace, TrainSequence(ids, masks, logprobs, messages, length - 1 if trained else 0, inexact, False))


def test_a_rollout_with_any_cut_reply_has_no_advantage() -> None:
    group = make_group([rollout(cut=1), rollout(), rollout(trained=False)], {}, messages=False)
    assert group["overrides"] == [{"set_advantage_to_zero": True}, {}, {"set_advantage_to_zero": True}]


def test_tokens_without_sure_logprobs_are_said() -> None:
    group = make_group([rollout(inexact=5), rollout()], {}, messages=False)
    assert group["overrides"] == [{"inexact_tokens": 5}, {}]


def test_a_group_has_no_key_without_a_value() -> None:
    group = make_group([rollout(1.1), rollout(-1.2)], {"top_p": 1.0}, messages=False)
    assert set(group) == {"tokens", "masks", "scores", "inference_logprobs", "generation_params"}
    assert group["scores"] == [1.0, -1.0] and group["generation_params"] == {"top_p": 1.0}
    assert make_group([rollout()], {}, messages=True)["messages"] == [[{"role": "user", "content": "q"}]]
