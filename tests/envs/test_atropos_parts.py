"""What the Atropos environment is made of, without Atropos: which server a rollout goes to, what a group says, and when
to speak of groups that nobody gets."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

import pytest

from envs.tokenizer import demo_tokens
from foretrace.core.errors import ForetraceError
from foretrace.core.trace import Outcome, Provenance, Task, Trace
from foretrace.envs.atropos.evaluation import table
from foretrace.envs.atropos.groups import ONE_SCORE, TOO_LONG, Sent, group_of, why_left_out
from foretrace.envs.atropos.load_balancer import Lanes
from foretrace.envs.metrics import was_cut
from foretrace.envs.rollouts import Lane, Rolled
from foretrace.envs.train_sequence import MASKED, UNKNOWN, TrainSequence
from foretrace.episodes.rollout import CONTEXT
from foretrace.models.servers.demo import Demo


def lanes(*slots: int) -> tuple[Lanes, list[Lane]]:
    made = [Lane(Demo(), demo_tokens(), asyncio.Semaphore(count), ids=True, most=99) for count in slots]
    return Lanes(zip(made, slots, strict=True)), made


def rolled(
    reward: float = 0.0, *, cut: int = 0, length: int = 3, reason: str = "", inexact: int = 0, trained: bool = True
) -> Rolled:
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
    return Rolled(trace, TrainSequence(ids, masks, logprobs, messages, length - 1 if trained else 0, inexact, False))


# --- servers


def test_rollouts_at_one_time_go_to_the_servers_by_their_slots() -> None:
    many, (one, two) = lanes(8, 4)
    with ExitStack() as stack:
        taken = [stack.enter_context(many.taken()) for _ in range(12)]
    assert (taken.count(one), taken.count(two)) == (8, 4)


def test_rollouts_one_after_the_other_go_to_all_servers() -> None:
    many, (one, two) = lanes(8, 8)
    taken: list[Lane] = []
    for _ in range(10):
        with many.taken() as lane:
            taken.append(lane)
    assert taken.count(one) == taken.count(two) == 5


def test_a_server_that_has_more_to_do_is_passed_over() -> None:
    many, (one, two) = lanes(4, 4)
    with many.taken() as busy:
        assert busy is one
        for _ in range(3):
            with many.taken() as lane:
                assert lane is two


def test_a_limit_holds_for_all_servers() -> None:
    many, made = lanes(1, 1)
    many.limit(7)
    assert [lane.most for lane in made] == [7, 7]


# --- groups


def test_a_rollout_with_any_cut_reply_has_no_advantage() -> None:
    group = group_of([rolled(cut=1), rolled(), rolled(trained=False)], {}, messages=False)
    assert group["overrides"] == [{"set_advantage_to_zero": True}, {}, {"set_advantage_to_zero": True}]


def test_tokens_without_sure_logprobs_are_said() -> None:
    group = group_of([rolled(inexact=5), rolled()], {}, messages=False)
    assert group["overrides"] == [{"inexact_tokens": 5}, {}]


def test_a_group_has_no_key_without_a_value() -> None:
    group = group_of([rolled(1.1), rolled(-1.2)], {"top_p": 1.0}, messages=False)
    assert set(group) == {"tokens", "masks", "scores", "inference_logprobs", "generation_params"}
    assert group["scores"] == [1.0, -1.0] and group["generation_params"] == {"top_p": 1.0}
    assert group_of([rolled()], {}, messages=True)["messages"] == [[{"role": "user", "content": "q"}]]


def test_what_atropos_leaves_out_is_known() -> None:
    same, other = (
        group_of([rolled(), rolled()], {}, messages=False),
        group_of([rolled(), rolled(1)], {}, messages=False),
    )
    assert why_left_out(same, one_score=True, most=-1) == ONE_SCORE and not why_left_out(same, one_score=False, most=-1)
    assert why_left_out(other, one_score=True, most=3) == TOO_LONG and not why_left_out(other, one_score=True, most=4)


# --- groups that nobody gets


def test_groups_in_a_row_that_nobody_gets_are_told_once_with_cause_and_remedy() -> None:
    sent = Sent(3)
    said = [sent.add([rolled(), rolled(1)], ONE_SCORE, "max_tokens (30)") for _ in range(50)]
    assert [number for number, line in enumerate(said) if line] == [2]
    assert "3 groups in a row were not sent: 3 had one score, 0 were too long" in said[2]
    assert "of their 6 rollouts 0 were cut by length and 3 solved" in said[2] and "larger group_size" in said[2]
    sent.add([rolled()], "", "")
    again = [sent.add([rolled(cut=2)], ONE_SCORE, "max_tokens (30)") for _ in range(3)]
    assert again[2].endswith("; raise max_tokens (30)") and (sent.groups, sent.left_out[ONE_SCORE]) == (1, 53)


@pytest.mark.parametrize(
    ("one", "why"), [(rolled(cut=1), ONE_SCORE), (rolled(reason=CONTEXT), ONE_SCORE), (rolled(), TOO_LONG)]
)
def test_it_ends_where_lengths_let_nothing_through(one: Rolled, why: str) -> None:
    sent = Sent(3)
    for _ in range(5):
        sent.add([one, one], why, "max_tokens (30)")
    with pytest.raises(ForetraceError, match=r"no group could be sent: .* 12 rollouts 12 were cut .*raise max_tokens"):
        sent.add([one, one], why, "max_tokens (30)")


def test_it_does_not_end_where_the_model_is_weak_or_something_was_sent() -> None:
    weak, once = Sent(1), Sent(1)
    once.add([rolled()], "", "")
    for _ in range(50):
        weak.add([rolled(cut=1), rolled()], ONE_SCORE, "")
        once.add([rolled(cut=1)], ONE_SCORE, "")
    assert weak.left_out.total() == once.left_out.total() == 50


def test_an_episode_without_room_for_a_reply_was_cut() -> None:
    assert [was_cut(one.trace) for one in (rolled(), rolled(cut=1), rolled(reason=CONTEXT))] == [False, True, True]


def test_metrics_are_a_line_each() -> None:
    assert table({"eval/accuracy": 0.25, "eval/failed/refused": 2}) == (
        "eval/accuracy            0.25\neval/failed/refused         2"
    )
