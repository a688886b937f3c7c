"""A model server within the limits of rollouts: the length of a sequence, and requests at one time."""

from __future__ import annotations

import asyncio

import pytest

from envs.tokenizer import demo_tokenizer
from foretrace.core.completion import Completion, Request, Sampling
from foretrace.core.errors import ModelError
from foretrace.envs.rollout_model import RolloutModel
from foretrace.models.servers.demo import Demo


def test_a_rollout_model_leaves_room_for_the_end_and_refuses_where_there_is_none() -> None:
    async def run(longest: int) -> int:
        async with Demo() as model:
            limited = RolloutModel(
                model, demo_tokenizer(), asyncio.Semaphore(2), gives_ids=True, max_sequence_tokens=longest
            )
            request = Request(prompt_ids=(5, 6, 7), sampling=Sampling(max_tokens=50, seed=1))
            return len((await limited.complete(request)).token_ids)

    assert asyncio.run(run(10)) == 10 - 2 - 3
    with pytest.raises(ModelError) as caught:
        asyncio.run(run(5))
    assert caught.value.kind == "overflow"


def test_a_rollout_model_asks_within_its_slots() -> None:
    class Counting(Demo):
        now = most = 0

        async def complete(self, request: Request) -> Completion:
            self.now += 1
            self.most = max(self.most, self.now)
            try:
                return await super().complete(request)
            finally:
                self.now -= 1

    async def run() -> int:
        tokens = demo_tokenizer()
        async with Counting() as model:
            limited = RolloutModel(model, tokens, asyncio.Semaphore(2), gives_ids=True, max_sequence_tokens=100)
            request = Request(prompt_ids=(5, 6, 7), sampling=Sampling(max_tokens=3))
            await asyncio.gather(*(limited.complete(request) for _ in range(6)))
            return model.most

    assert asyncio.run(run()) == 2
