"""Sampled ids that become a completion, without TRL."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from envs.tokenizer import demo_tokenizer
from foretrace.core.completion import Request, Sampling
from foretrace.core.errors import UsageError
from foretrace.envs.trl.generation import Generation, RequestBatcher, make_completion


def request(longest: int = 100) -> Request:
    return Request(prompt_ids=(5,), stop=("</code>",), sampling=Sampling(max_tokens=longest))


def read(text: str, longest: int = 100) -> Any:
    tokenizer = demo_tokenizer()
    ids = tokenizer.encode(text, special=True)
    return make_completion(request(longest), Generation(ids, [-0.5] * len(ids)), tokenizer), ids


def test_a_completion_ends_at_a_stop_sequence_an_end_or_its_limit():
    completion, ids = read("x = 1</code> and more")
    assert (completion.text, completion.finish, completion.stop) == ("x = 1", "stop_sequence", "</code>")
    assert completion.token_ids == tuple(ids[: ids.index(1007) + 1])
    completion, ids = read("done<|im_end|><|endoftext|><|endoftext|>")
    assert (completion.text, completion.finish, completion.token_ids) == ("done", "stop", tuple(ids[:-2]))
    completion, ids = read("one two three four", 2)
    assert (completion.finish, completion.token_ids) == ("length", tuple(ids[:2]))
    completion, ids = read("ended by an end of its own<|endoftext|>")
    assert (completion.finish, completion.token_ids) == ("stop", tuple(ids))
    with pytest.raises(UsageError, match="2 ids and 1 logprobs"):
        make_completion(request(), Generation([5, 6], [-1.0]), demo_tokenizer())


def test_a_batch_is_in_the_order_of_the_episodes():
    async def ask() -> list[int]:
        batcher = RequestBatcher(2)
        asked = [asyncio.create_task(batcher.ask(number, request())) for number in (1, 0)]
        await asyncio.sleep(0)
        numbers = [one.number for one in batcher.batches.get_nowait() or ()]
        for task in asked:
            task.cancel()
        return numbers

    assert asyncio.run(ask()) == [0, 1]
