"""A model server within the limits of rollouts: the length of a sequence, requests at one time, and ids: what a server
left out is found again where that is certain, and said where it is not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.tokenizer import demo_tokenizer
from foretrace.core.completion import Capabilities, Completion, Request, Sampling
from foretrace.core.errors import ModelError, UsageError
from foretrace.core.trace import Usage
from foretrace.envs.rollout_model import RolloutModel
from foretrace.envs.tokenizer import check_tokenizer
from foretrace.episodes.episode import make_view
from foretrace.models.servers.demo import Demo
from foretrace.problems.builtin import Builtin
from foretrace.protocols.tools import Tools

MESSAGES = Tools().opening(make_view(next(Builtin().load())))
TOKENIZER = demo_tokenizer()
SHORT = Request(prompt_ids=(5, 6, 7), sampling=Sampling(max_tokens=50, seed=1))


def complete(model: Demo, *requests: Request, most: int = 9999, **settings: Any) -> list[Completion]:
    async def run() -> list[Completion]:
        settings.setdefault("gives_ids", True)
        async with RolloutModel(model, TOKENIZER, max_sequence_tokens=most, **settings) as limited:
            return await asyncio.gather(*map(limited.complete, requests))

    return asyncio.run(run())


class Saying(Demo):
    """A server with one reply."""

    def __init__(self, reply: Completion) -> None:
        super().__init__()
        self.reply = reply

    async def complete(self, request: Request) -> Completion:
        return self.reply


def test_a_rollout_model_leaves_room_for_the_end_and_refuses_where_there_is_none() -> None:
    assert len(complete(Demo(), SHORT, most=10)[0].token_ids) == 10 - 2 - 3
    with pytest.raises(ModelError) as caught:
        complete(Demo(), SHORT, most=5)
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

    model = Counting()
    complete(model, *[SHORT] * 6, slots=asyncio.Semaphore(2))
    assert model.most == 2


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20), st.booleans())
def test_ids_are_decoded_by_their_bytes_where_the_server_says_too_little(text: str, in_bytes: bool) -> None:
    """It may say nothing, or name each token by its number (vLLM's `--return-tokens-as-token-ids`)."""
    ids = tuple(TOKENIZER.encode(text))
    if in_bytes:
        ids = tuple(token for char in text for token in TOKENIZER.encode(char))
    silent = Saying(Completion(text=text, token_ids=ids, logprobs=(-1.0,) * len(ids), exact="token"))
    (found,) = complete(silent, SHORT)
    assert (found.token_ids, found.exact) == (ids, "token") and len(found.pieces) == len(ids)
    assert "".join(found.pieces) == text


def test_the_servers_words_stay_where_the_tokenizer_has_others() -> None:
    """It gives control tokens no text, and the server may name them."""
    ids = (*TOKENIZER.encode("é"), TOKENIZER.end_id, *TOKENIZER.encode("a"))
    pieces = (*TOKENIZER.decode_pieces(ids[:-2]), "<|im_end|>", "a")
    logprobs = (-1.0,) * len(ids)
    own = Completion(text="é<|im_end|>a", token_ids=ids, pieces=pieces, logprobs=logprobs, exact="token")
    assert complete(Saying(own), SHORT)[0].pieces == pieces


class WithoutIds(Demo):
    """The demo model as Ollama gives it: text, and logprobs of pieces; nothing of what a stop sequence cut off."""

    def __init__(self, change: Callable[[Completion], Completion] = lambda completion: completion) -> None:
        super().__init__()
        self.change = change
        self.last: Completion | None = None

    async def probe(self) -> Capabilities:
        return msgspec.structs.replace(await super().probe(), token_ids=False, token_prompts=False)

    async def complete(self, request: Request) -> Completion:
        assert request.prompt_ids is None and request.messages
        self.last = whole = await super().complete(request)
        count = length = 0
        while length < len(whole.text):
            length += len(whole.pieces[count])
            count += 1
        bare = msgspec.structs.replace(
            whole,
            token_ids=(),
            prompt_token_ids=None,
            pieces=whole.pieces[:count],
            logprobs=whole.logprobs[:count],
            exact="text",
        )
        return self.change(bare)


def complete_one(model: WithoutIds, seed: int = 0) -> Completion:
    prompt = tuple(TOKENIZER.apply_template(MESSAGES))
    request = Request(messages=MESSAGES, prompt_ids=prompt, sampling=Sampling(seed=seed, max_tokens=80))
    return complete(model, request, gives_ids=False)[0]


def moved(pieces: tuple[str, ...]) -> tuple[str, ...]:
    """As many pieces of the same text, cut elsewhere."""
    longest = max(range(len(pieces) - 1), key=lambda n: len(pieces[n]))
    cut = [*pieces]
    cut[longest], cut[longest + 1] = pieces[longest][:-1], pieces[longest][-1] + pieces[longest + 1]
    return tuple(cut)


def test_the_ids_that_a_server_left_out_are_found_again() -> None:
    """In most replies: a text may have been sampled in other pieces than the tokenizer cuts."""
    replies = 0
    for seed in range(6):
        model = WithoutIds()
        got = complete_one(model, seed)
        assert model.last is not None
        if "mismatch" in got.extra:
            assert got.token_ids == () == got.logprobs
            continue
        count = len(got.token_ids)
        assert count and got.token_ids == model.last.token_ids[:count] and got.logprobs == model.last.logprobs[:count]
        assert got.exact == "text" and got.prompt_token_ids == tuple(TOKENIZER.apply_template(MESSAGES))
        replies += 1
    assert replies >= 3


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda c: msgspec.structs.replace(c, pieces=(), logprobs=(), exact="none"), "no logprobs"),
        (lambda c: msgspec.structs.replace(c, reasoning="hm"), "thinking came apart"),
        (lambda c: msgspec.structs.replace(c, usage=Usage(prompt_tokens=1)), "another number of tokens"),
        (
            lambda c: msgspec.structs.replace(c, pieces=(c.text[:1], c.text[1:]), logprobs=(-1.0, -1.0)),
            "cuts the text otherwise",
        ),
        (lambda c: msgspec.structs.replace(c, pieces=moved(c.pieces)), "cuts the text otherwise"),
    ],
)
def test_where_it_is_not_certain_there_are_no_logprobs_and_it_is_said(
    change: Callable[[Completion], Completion], why: str
) -> None:
    got = complete_one(WithoutIds(change))
    assert got.token_ids == () == got.logprobs and why in got.extra["mismatch"]


def test_characters_of_several_tokens_are_whole_in_their_last() -> None:
    text = "ö🙂 ok"
    pieces = tuple(piece or "\ufffd" for piece in TOKENIZER.decode_pieces(TOKENIZER.encode(text)))

    def change(completion: Completion) -> Completion:
        return msgspec.structs.replace(completion, text=text, pieces=pieces, logprobs=(-1.0,) * len(pieces))

    got = complete_one(WithoutIds(change))
    assert got.token_ids == tuple(TOKENIZER.encode(text)) and "".join(got.pieces) == text


def test_the_check_of_the_tokenizer_works_without_ids() -> None:
    asyncio.run(check_tokenizer(TOKENIZER, WithoutIds()))
    other = WithoutIds(lambda c: msgspec.structs.replace(c, usage=Usage(prompt_tokens=1)))
    with pytest.raises(UsageError, match="is not the one of demo-model"):
        asyncio.run(check_tokenizer(TOKENIZER, other))
