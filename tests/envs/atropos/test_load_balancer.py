"""Which model server a rollout goes to, without Atropos."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

from envs.tokenizer import demo_tokenizer
from foretrace.envs.atropos.load_balancer import LoadBalancer
from foretrace.envs.rollout_model import RolloutModel
from foretrace.models.servers.demo import Demo


class Clock:
    """Seconds that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def balance(*slots: int, clock: Clock | None = None) -> tuple[LoadBalancer, list[RolloutModel]]:
    made = [
        RolloutModel(Demo(), demo_tokenizer(), asyncio.Semaphore(count), gives_ids=True, max_sequence_tokens=99)
        for count in slots
    ]
    return LoadBalancer(zip(made, slots, strict=True), clock or Clock()), made


def roll(many: LoadBalancer, dead: RolloutModel | None, count: int) -> list[RolloutModel]:
    """The servers of some rollouts one after the other, of which one server fails all that it gets."""
    taken: list[RolloutModel] = []
    for _ in range(count):
        with many.choose() as model:
            taken.append(model)
        many.record_end(model, "refused" if model is dead else None)
    return taken


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


def test_a_dead_server_gets_no_more_and_is_tried_again_later() -> None:
    clock = Clock()
    many, (dead, live) = balance(8, 8, clock=clock)
    taken = roll(many, dead, 20)
    assert (taken.count(dead), taken.count(live)) == (2, 18)
    for pause_s in (10.0, 20.0, 40.0):
        clock.now += pause_s
        assert roll(many, dead, 20).count(dead) == 1, "one rollout, by which it is tried again"
    clock.now += 80.0
    assert roll(many, None, 20).count(dead) > 1, "it answers again"
    assert dead in roll(many, None, 2)


def test_only_one_rollout_tries_a_server_again() -> None:
    clock = Clock()
    many, (dead, _) = balance(8, 8, clock=clock)
    roll(many, dead, 20)
    clock.now += 10.0
    with ExitStack() as stack:
        taken = [stack.enter_context(many.choose()) for _ in range(16)]
    assert taken.count(dead) == 1


def test_rollouts_that_were_under_way_when_a_server_died_count_once() -> None:
    clock = Clock()
    many, (dead, _) = balance(8, 8, clock=clock)
    for _ in range(8):
        many.record_end(dead, "stream")
    clock.now += 10.0
    assert dead in roll(many, None, 2)


def test_what_is_not_the_servers_fault_takes_none_out() -> None:
    many, (one, two) = balance(8, 8)
    for kind in ("sandbox", "overflow", "busy", "protocol") * 2:
        many.record_end(one, kind)
    assert one in roll(many, None, 2) and two in roll(many, None, 2)


def test_where_all_are_dead_all_are_asked() -> None:
    many, made = balance(8, 8)
    for model in made * 2:
        many.record_end(model, "refused")
    with many.choose() as one, many.choose() as two:
        assert {id(one), id(two)} == set(map(id, made))
