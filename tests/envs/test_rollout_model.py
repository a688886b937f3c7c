"""A model server within the limits of rollouts: the length of a sequence, and requests at one time."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.tokenizer import demo_tokenizer
from foretrace.core.completion import Completion, Request, Sampling
from foretrace.core.errors import ModelError
from foretrace.envs.rollout_model import RolloutModel
from foretrace.models.servers.demo import Demo


def test_a_rollout_model_leaves_room_for_the_end_and_refuses_where_there_is_none() -> None:
    async def run(longest: int) -> int:
        async with Demo() as model:
            limited = RolloutModel(model, demo_tokenizer(), gives_ids=True, max_sequence_tokens=longest)
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
            slots = asyncio.Semaphore(2)
            limited = RolloutModel(model, tokens, gives_ids=True, max_sequence_tokens=100, slots=slots)
            request = Request(prompt_ids=(5, 6, 7), sampling=Sampling(max_tokens=3))
            await asyncio.gather(*(limited.complete(request) for _ in range(6)))
            return model.most

    assert asyncio.run(run()) == 2


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20), st.booleans())
def test_ids_are_decoded_by_their_bytes_where_the_server_says_too_little(text: str, in_bytes: bool) -> None:
    """It may say nothing, or name each token by its number (vLLM's `--return-tokens-as-token-ids`)."""
    tokenizer = demo_tokenizer()
    ids = tuple(tokenizer.encode(text))
    if in_bytes:
        ids = tuple(token for char in text for token in tokenizer.encode(char))

    class Silent(Demo):
        async def complete(self, request: Request) -> Completion:
            return Completion(text=text, token_ids=ids, logprobs=(-1.0,) * len(ids), exact="token")

    async def run() -> Completion:
        async with Silent() as model:
            asked = RolloutModel(model, tokenizer, gives_ids=True, max_sequence_tokens=100)
            return await asked.complete(Request(prompt_ids=(5, 6, 7)))

    found = asyncio.run(run())
    assert (found.token_ids, found.exact) == (ids, "token") and len(found.pieces) == len(ids)
    assert "".join(found.pieces) == text


def test_the_servers_words_stay_where_the_tokenizer_has_others() -> None:
    """It gives control tokens no text, and the server may name them."""
    tokenizer = demo_tokenizer()
    ids = (*tokenizer.encode("é"), tokenizer.end_id, *tokenizer.encode("a"))
    pieces = (*tokenizer.decode_pieces(ids[:-2]), "<|im_end|>", "a")

    class Naming(Demo):
        async def complete(self, request: Request) -> Completion:
            own = Completion(text="é<|im_end|>a", token_ids=ids, pieces=pieces, exact="token")
            return msgspec.structs.replace(own, logprobs=(-1.0,) * len(ids))

    async def run() -> Completion:
        async with Naming() as model:
            asked = RolloutModel(model, tokenizer, gives_ids=True, max_sequence_tokens=100)
            return await asked.complete(Request(prompt_ids=(5, 6, 7)))

    assert asyncio.run(run()).pieces == pieces
