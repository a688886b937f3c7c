"""What an Atropos group says, and when to speak of groups that nobody gets; without Atropos."""

from __future__ import annotations

import pytest

from foretrace.core.errors import ForetraceError
from foretrace.core.trace import Outcome, Provenance, Task, Trace
from foretrace.envs.atropos.groups import ONE_SCORE, TOO_LONG, GroupMonitor, find_drop_reason, make_group
from foretrace.envs.rollouts import Rollout
from foretrace.envs.train_sequence import MASKED, UNKNOWN, TrainSequence
from foretrace.episodes.rollout import CONTEXT


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


def test_what_atropos_leaves_out_is_known() -> None:
    same, other = (
        make_group([rollout(), rollout()], {}, messages=False),
        make_group([rollout(), rollout(1)], {}, messages=False),
    )
    assert find_drop_reason(same, drop_one_score=True, max_tokens=-1) == ONE_SCORE and not find_drop_reason(
        same, drop_one_score=False, max_tokens=-1
    )
    assert find_drop_reason(other, drop_one_score=True, max_tokens=3) == TOO_LONG and not find_drop_reason(
        other, drop_one_score=True, max_tokens=4
    )


# --- groups that nobody gets


def test_groups_in_a_row_that_nobody_gets_are_told_once_with_cause_and_remedy() -> None:
    monitor = GroupMonitor(3)
    warnings = [monitor.record([rollout(), rollout(1)], ONE_SCORE, "max_tokens (30)") for _ in range(50)]
    assert [number for number, line in enumerate(warnings) if line] == [2]
    assert "3 groups in a row were not sent: 3 had one score, 0 were too long" in warnings[2]
    assert "of their 6 rollouts 0 were cut by length and 3 solved" in warnings[2] and "larger group_size" in warnings[2]
    monitor.record([rollout()], "", "")
    again = [monitor.record([rollout(cut=2)], ONE_SCORE, "max_tokens (30)") for _ in range(3)]
    assert again[2].endswith("; raise max_tokens (30)") and (monitor.sent, monitor.dropped[ONE_SCORE]) == (1, 53)


@pytest.mark.parametrize(
    ("one", "why"), [(rollout(cut=1), ONE_SCORE), (rollout(reason=CONTEXT), ONE_SCORE), (rollout(), TOO_LONG)]
)
def test_it_ends_where_lengths_let_nothing_through(one: Rollout, why: str) -> None:
    monitor = GroupMonitor(3)
    for _ in range(5):
        monitor.record([one, one], why, "max_tokens (30)")
    with pytest.raises(ForetraceError, match=r"no group could be sent: .* 12 rollouts 12 were cut .*raise max_tokens"):
        monitor.record([one, one], why, "max_tokens (30)")


def test_it_does_not_end_where_the_model_is_weak_or_something_was_sent() -> None:
    weak, once = GroupMonitor(1), GroupMonitor(1)
    once.record([rollout()], "", "")
    for _ in range(50):
        weak.record([rollout(cut=1), rollout()], ONE_SCORE, "")
        once.record([rollout(cut=1)], ONE_SCORE, "")
    assert weak.dropped.total() == once.dropped.total() == 50
