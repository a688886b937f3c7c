"""A reply that does not fit into the context beside its prompt is asked for once more, as long as there is room."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fakes.model_server import ModelServer
from fakes.vllm_server import VllmServer
from foretrace.core.completion import Completion, Sampling
from foretrace.core.errors import ModelError
from foretrace.models.server_errors import parse_overflow
from models.served import PATHS, asking, at, model_at

OPENAI = "This model's maximum context length is 8192 tokens. However, you requested "
VLLM = "This model's maximum context length is 4096 tokens. However, you requested "
TABLE = {
    OPENAI + "9000 tokens (4904 in the messages, 4096 in the completion).": (8192, 4904),
    VLLM + "4000 output tokens and your prompt contains 230 input tokens, for a total of 4230 tokens.": (4096, 230),
    VLLM + "4000 output tokens and your prompt contains at least 97 input tokens.": (4096, None),
    "Requested token count exceeds the model's maximum context length of 4096 tokens. You requested a total of 4119 "
    "tokens: 23 tokens from the input messages and 4096 tokens for the completion.": (4096, 23),
    "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 23 `inputs` tokens and 4096 "
    "`max_new_tokens`": (4096, 23),
    "This endpoint's maximum context length is 4096 tokens. However, you requested about 4119 tokens (23 of text "
    "input, 4096 in the output).": (4096, 23),
    "This model's maximum context length is 8192 tokens. However, your messages resulted in 8202 tokens.": None,
    "request (9000 tokens) exceeds the available context size (4096 tokens)": None,
    "max_tokens is too large: 100000. This model supports at most 16384 completion tokens": None,
}


@pytest.mark.parametrize("said", TABLE)
def test_what_servers_say(said: str) -> None:
    assert parse_overflow(said) == TABLE[said]


def ask(
    said: str, *, ids: bool = False, most: int = 4096, status: int = 400, times: int = 1, **more: Any
) -> tuple[Any, list[int]]:
    """What came of a request that was refused with these words, and the lengths of a reply that were asked for."""

    async def use(server: ModelServer) -> Completion | ModelError:
        server.fault(PATHS["openai"], status=status, body=json.dumps({"error": {"message": said}}), times=times)
        async with model_at("openai", server.url) as model:
            try:
                return await model.complete(asking(sampling=Sampling(max_tokens=most, extra=more)))
            except ModelError as error:
                return error

    server = VllmServer() if ids else ModelServer()
    return at(server, use), [body["max_tokens"] for body in server.sent(PATHS["openai"])]


@pytest.mark.parametrize("said", [said for said, found in TABLE.items() if found and found[1] == 23])
def test_it_is_asked_once_more_for_what_fits(said: str) -> None:
    done, asked = ask(said, status=422 if "validation" in said else 400)
    assert asked == [4096, 4072] and done.text == "ok" and done.extra == {"max_tokens": 4072}


@pytest.mark.parametrize("said", [said for said, found in TABLE.items() if found and found[1] is None])
def test_a_prompt_that_was_not_counted_is_counted_where_the_server_can(said: str) -> None:
    done, asked = ask(said, ids=True)
    assert asked == [4096, done.extra["max_tokens"]] and 4050 < asked[1] < 4095
    error, asked = ask(said)
    assert (error.kind, asked) == ("overflow", [4096])


FITS = next(said for said, found in TABLE.items() if found == (4096, 23))
TIGHT = "This model's maximum context length is 100 tokens. You requested 90 tokens ({} in the messages, 50 in "


@pytest.mark.parametrize(
    ("said", "how", "lengths"),
    [
        (f"{TIGHT.format(35)}the completion).", {"most": 80}, [80, 64]),
        (f"{TIGHT.format(36)}the completion).", {"most": 80}, [80]),  # too little is left
        (f"{TIGHT.format(200)}the completion).", {"most": 80}, [80]),
        (f"{TIGHT.format(10)}the completion).", {"most": 80}, [80]),  # it would need no refusal
        (FITS, {"times": -1}, [4096, 4072]),  # once more only
        (FITS, {"max_tokens": 5000}, [5000]),  # the user has set the name
    ],
)
def test_what_leaves_no_room_is_an_overflow(said: str, how: dict[str, Any], lengths: list[int]) -> None:
    done, asked = ask(said, **how)
    assert asked == lengths and (lengths == [80, 64] or done.kind == "overflow")


SHARED = '{"error":{"code":500,"message":"Context size has been exceeded.","type":"server_error"}}'
"""What llama-server sends to all requests under way where its slots share one context that is full."""


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("kind", ["llamacpp", "openai"])
@pytest.mark.parametrize(("times", "wanted"), [(2, ["crowded", "crowded"]), (-1, None)])
def test_a_shared_context_that_is_full_is_an_overload_and_at_last_an_overflow(
    kind: str, streamed: bool, times: int, wanted: list[str] | None
) -> None:
    """Fewer requests at a time fit into it, and if not even one does, its own attempt ends and not the run."""

    async def use(server: ModelServer) -> None:
        server.like_llama = True
        if streamed:
            server.stream_error = f"data: {SHARED}\n\n".encode()
            server.fault(PATHS[kind], how="error", times=times)
        else:
            server.fault(PATHS[kind], status=500, body=SHARED, times=times)
        async with model_at(kind, server.url) as model:
            if wanted is not None:
                assert (await model.complete(asking())).extra["retried"] == wanted
                return
            with pytest.raises(ModelError, match=r"share one context.*-c N.*concurrency") as caught:
                await model.complete(asking())
            assert (caught.value.kind, caught.value.retryable) == ("overflow", False)
            assert len(server.sent(PATHS[kind])) == 5

    at(ModelServer(), use)
