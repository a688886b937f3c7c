"""Replies of vLLM and SGLang have the ids and logprobs that were sampled, wherever their characters were cut."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fakes.vllm_server import DESCRIPTION, SglangServer, VllmServer
from foretrace.core.completion import ChatMessage, Completion, Request, Sampling
from foretrace.core.errors import ModelError
from foretrace.models.demo_model.tokenizer import ChatTokenizer
from models.served import model_at

TOKENIZER = ChatTokenizer(DESCRIPTION)
IDS = {data: number for number, data in enumerate(TOKENIZER.token_bytes) if data}
ANY_TEXT = st.text(
    st.characters(exclude_categories=["Cs"]) | st.sampled_from("aé✅\u0301\U0001f469\u200d"), max_size=20
)
MESSAGES = (ChatMessage("user", "hi"),)


def sampled_ids(text: str, places: list[int]) -> list[int]:
    """Ids of a text, of which some tokens were cut into their bytes."""
    ids: list[int] = []
    for number, token in enumerate(TOKENIZER.encode(text)):
        data = TOKENIZER.token_bytes[token]
        ids += [IDS[bytes([byte])] for byte in data] if number in places and data else [token]
    return ids


def ask(
    sampled: list[int], *, corrects: bool = False, per_event: int = 1, chat: bool = False, **more: object
) -> Completion:
    async def run() -> Completion:
        server = VllmServer(sample=lambda prompt: sampled, corrects=corrects, pieces=per_event)
        async with server, model_at("openai", server.url) as model:
            await model.probe()
            prompt = None if chat else tuple(await model.render(MESSAGES))  # type: ignore[attr-defined]
            return await model.complete(Request(messages=MESSAGES, prompt_ids=prompt, **more))  # type: ignore[arg-type]

    return asyncio.run(run())


@given(ANY_TEXT, st.lists(st.integers(0, 20)), st.booleans(), st.integers(1, 3), st.booleans())
@example("fine ✅", [], False, 1, False)
@example("naïve", [], False, 1, True)
def test_every_reply_is_exact(text: str, places: list[int], corrects: bool, per_event: int, chat: bool) -> None:
    sampled = [*sampled_ids(text, places), TOKENIZER.end_id]
    found = ask(sampled, corrects=corrects, per_event=per_event, chat=chat, stop=("</run>",)) if text else None
    if found is None:
        return
    assert (found.exact, found.text, found.token_ids) == ("token", text, tuple(sampled))
    assert found.logprobs == tuple(-token / 1000 for token in sampled)
    assert len(found.pieces) == len(sampled) and "".join(found.pieces).startswith(text)


@pytest.mark.parametrize("corrects", [False, True])
def test_the_tokens_of_a_stop_sequence_stay(corrects: bool) -> None:
    sampled = TOKENIZER.encode("✅ naïve</code>")
    found = ask(sampled, corrects=corrects, stop=("</code>",))
    assert (found.text, found.finish, found.stop, found.exact) == ("✅ naïve", "stop_sequence", "</code>", "token")
    assert found.token_ids == tuple(sampled) and "".join(found.pieces) == "✅ naïve</code>"


def test_what_does_not_fit_is_asked_for_once_more() -> None:
    found = ask(TOKENIZER.encode("ok ✅"), sampling=Sampling(max_tokens=4096))
    assert found.extra["max_tokens"] == 4095 - len(found.prompt_token_ids or ()) and found.exact == "token"


def test_a_prompt_that_leaves_no_room_is_an_overflow() -> None:
    with pytest.raises(ModelError) as failed:
        ask([5], sampling=Sampling(max_tokens=5000, extra={"max_tokens": 5000}))
    assert failed.value.kind == "overflow"


def test_sglang_is_as_exact_and_its_chat_is_not_asked_for_ids() -> None:
    async def run() -> None:
        sampled = [*TOKENIZER.encode("naïve ✅</code>"), TOKENIZER.end_id]
        async with SglangServer(sample=lambda prompt: sampled) as server, model_at("openai", server.url) as model:
            found = await model.probe()
            assert found.token_ids and found.token_prompts and "refused in chat" in found.reasons["return_token_ids"]
            prompt = tuple(await model.render(MESSAGES))  # type: ignore[attr-defined]
            exact = await model.complete(Request(prompt_ids=prompt, stop=("</code>",)))
            assert (exact.text, exact.stop, exact.exact) == ("naïve ✅", "</code>", "token")
            assert exact.token_ids == tuple(sampled[:-1]) and "".join(exact.pieces) == "naïve ✅</code>"
            whole = await model.complete(Request(prompt_ids=prompt))
            assert (whole.finish, whole.exact, whole.token_ids) == ("stop", "token", tuple(sampled))
            chat = await model.complete(Request(messages=MESSAGES))
            assert (chat.text, chat.exact) == ("naïve ✅</code>", "text") and len(chat.pieces) == len(chat.logprobs)

    asyncio.run(run())
