"""Which model server a rollout goes to, without Atropos."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

from envs.tokenizer import demo_tokenizer
from foretrace.envs.atropos.load_balancer import LoadBalancer
from foretrace.envs.rollout_model import RolloutModel
from foretrace.models.servers.demo import Demo


def balance(*slots: int) -> tuple[LoadBalancer, list[RolloutModel]]:
    made = [
        RolloutModel(Demo(), demo_tokenizer(), asyncio.Semaphore(count), gives_ids=True, max_sequence_tokens=99)
        for count in slots
    ]
    return LoadBalancer(zip(made, slots, strict=True)), made


def test_rollouts_at_one_time_go_to_the_servers_by_their_slots() -> None:
    many, (one, two) = balance(8, 4)
    with ExitStack() as stack:
        taken = [stack.enter_context(many.choose()) for _ in range(12)]
    assert (taken.count(one), taken.count(two)) == (8, 4)


def test_rollouts_one_after_the_other_go_to_all_servers() -> None:
    many, (one, two) = balance(8, 8)
    taken: list[RolloutModel] = []
    for _ in range(10):
        with many.choose() as model:
            taken.append(model)
    assert taken.count(one) == taken.count(two) == 5


def test_a_server_that_has_more_to_do_is_passed_over() -> None:
    many, (one, two) = balance(4, 4)
    with many.choose() as busy:
        assert busy is one
        for _ in range(3):
            with many.choose() as model:
                assert model is two


def test_a_limit_holds_for_all_servers() -> None:
    many, made = balance(1, 1)
    many.limit_sequences(7)
    assert [model.max_sequence_tokens for model in made] == [7, 7]
