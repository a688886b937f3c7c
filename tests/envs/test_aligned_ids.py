"""A server without ids: what it left out is found again where that is certain, and said where it is not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import pytest

from envs.tokenizer import demo_tokenizer
from foretrace.core.completion import Capabilities, ChatMessage, Completion, Request, Sampling
from foretrace.core.errors import UsageError
from foretrace.core.trace import Usage
from foretrace.envs.rollout_model import RolloutModel
from foretrace.episodes.episode import make_view
from foretrace.models.servers.demo import Demo
from foretrace.problems.builtin import Builtin
from foretrace.protocols.tools import Tools

MESSAGES = Tools().opening(make_view(next(Builtin().load())))


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


def complete_one(model: WithoutIds, messages: tuple[ChatMessage, ...] = MESSAGES, seed: int = 0) -> Completion:
    async def run() -> Completion:
        tokenizer = demo_tokenizer()
        sampling = Sampling(temperature=1.0, seed=seed, max_tokens=80)
        request = Request(messages=messages, prompt_ids=tuple(tokenizer.apply_template(messages)), sampling=sampling)
        async with RolloutModel(model, tokenizer, gives_ids=False, max_sequence_tokens=9999) as aligned:
            return await aligned.complete(request)

    return asyncio.run(run())


def moved(pieces: tuple[str, ...]) -> tuple[str, ...]:
    """As many pieces of the same text, cut elsewhere."""
    longest = max(range(len(pieces) - 1), key=lambda n: len(pieces[n]))
    cut = [*pieces]
    cut[longest], cut[longest + 1] = pieces[longest][:-1], pieces[longest][-1] + pieces[longest + 1]
    return tuple(cut)


@pytest.mark.parametrize("seed", range(6))
def test_the_ids_that_a_server_left_out_are_found_again(seed: int) -> None:
    model = WithoutIds()
    got = complete_one(model, seed=seed)
    assert model.last is not None
    if "mismatch" in got.extra:  # it may have sampled a text in other pieces than the tokenizer cuts
        assert got.token_ids == () == got.logprobs
        return
    count = len(got.token_ids)
    assert count and got.token_ids == model.last.token_ids[:count] and got.logprobs == model.last.logprobs[:count]
    assert got.exact == "text" and got.prompt_token_ids == tuple(demo_tokenizer().apply_template(MESSAGES))


def test_most_replies_are_found_again() -> None:
    assert sum("mismatch" not in complete_one(WithoutIds(), seed=seed).extra for seed in range(6)) >= 3


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
    tokenizer = demo_tokenizer()
    pieces = tuple(piece or "\ufffd" for piece in tokenizer.decode_pieces(tokenizer.encode(text)))

    def change(completion: Completion) -> Completion:
        return msgspec.structs.replace(completion, text=text, pieces=pieces, logprobs=(-1.0,) * len(pieces))

    got = complete_one(WithoutIds(change))
    assert got.token_ids == tuple(tokenizer.encode(text)) and "".join(got.pieces) == text


def test_the_check_of_the_tokenizer_works_without_ids() -> None:
    from foretrace.envs.tokenizer import check_tokenizer

    async def run(change: Callable[[Completion], Completion]) -> None:
        async with WithoutIds(change) as model:
            await check_tokenizer(demo_tokenizer(), model)

    asyncio.run(run(lambda c: c))
    with pytest.raises(UsageError, match="is not the one of demo-model"):
        asyncio.run(run(lambda c: msgspec.structs.replace(c, usage=Usage(prompt_tokens=1))))
