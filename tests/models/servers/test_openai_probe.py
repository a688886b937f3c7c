"""Models that refuse parameters, as OpenAI's reasoning models do, are used without them, and never in silence."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aiohttp import web

from fakes.model_server import ModelServer
from foretrace.core.completion import Sampling
from foretrace.core.errors import ModelError, UsageError
from models.served import asking, at, model_at, probe

PATH = "/v1/chat/completions"
ONLY_ONE = (
    "Unsupported value: 'temperature' does not support 0.0 with this model. Only the default (1) value is supported."
)
OTHERS = {
    name: f"Unsupported parameter: '{name}' is not supported with this model." for name in ("top_p", "stop", "logprobs")
}
TOKENS = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
SAID = {"temperature": ONLY_ONE, "max_tokens": TOKENS} | OTHERS
PLAIN = Sampling(temperature=1.0, max_tokens=50, extra={"temperature": None})


class Picky(ModelServer):
    """Refuses some parameters, one a request."""

    refuses: tuple[str, ...] = ()

    async def _openai(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        for name in self.refuses:
            if name in body:
                error = {
                    "message": SAID[name],
                    "type": "invalid_request_error",
                    "param": name,
                    "code": "unsupported_value",
                }
                return web.json_response({"error": error}, status=400)
        return await super()._openai(request, body)


def picky(*refuses: str, **more: Any) -> Picky:
    server = Picky(**more)
    server.refuses = refuses
    return server


@pytest.mark.parametrize("name", SAID)
def test_each_refused_parameter_is_dropped_once_and_told(name: str) -> None:
    server = picky(name)
    found = probe("openai", server)
    assert list(found.reasons).count(name) == 1 and "upported" in found.reasons[name]
    assert sum(name in body for body in server.sent(PATH)) == 1  # asked with it, told, and never again
    assert "127.0.0.1" not in str(found.reasons)
    assert found.logprobs == (name != "logprobs")


def test_a_reasoning_model_is_used_without_all_that_it_refuses() -> None:
    async def use(server: ModelServer) -> None:
        async with model_at("openai", server.url) as model:
            found = await model.probe()
            assert {"temperature", "top_p", "stop", "logprobs", "max_tokens"} <= set(found.reasons)
            reply = await model.complete(asking(sampling=PLAIN, stop=("</code>", "<result>")))
        assert (reply.text, reply.finish, reply.stop) == ("<code>x", "stop_sequence", "</code>")
        sent = server.sent(PATH)[-1]
        assert sent["max_completion_tokens"] == 50 and not {*SAID} & set(sent)

    at(picky(*SAID, say=lambda asked: "<code>x</code> and <result> made up"), use)


def test_a_temperature_that_is_asked_for_is_not_left_out_in_silence() -> None:
    async def use(server: ModelServer) -> None:
        async with model_at("openai", server.url) as model:
            await model.probe()
            with pytest.raises(UsageError, match=r"takes no temperature: .*temperature='none'"):
                await model.complete(asking(sampling=Sampling(temperature=0.7)))
            with pytest.raises(UsageError, match="takes no top_p: leave top_p at 1"):
                await model.complete(asking(sampling=Sampling(temperature=1.0, top_p=0.9)))
            assert (await model.complete(asking(sampling=PLAIN))).text == "ok"
            assert (await model.complete(asking(sampling=Sampling(temperature=1.0)))).text == "ok"

    at(picky("temperature", "top_p"), use)


def refuse(said: str, status: int = 400, times: int = 1) -> ModelServer:
    server = ModelServer()
    server.fault(PATH, status=status, body=json.dumps({"error": {"message": said}}), times=times)
    return server


def test_other_refusals_are_told_from_those_of_a_parameter() -> None:
    thinks = refuse("Could not finish the message because max_tokens was reached: try again with higher max_tokens.")
    assert "max_tokens" not in probe("openai", thinks).reasons
    assert [body["max_tokens"] for body in thinks.sent(PATH)][:2] == [16, 1024]
    said = "You are not allowed to request logprobs from this model."
    found = probe("openai", refuse(said, status=403))  # which is no wrong key
    assert not found.logprobs and said in found.reasons["logprobs"]
    server = refuse("the messages are bad", times=-1)
    with pytest.raises(ModelError, match="the messages are bad") as caught:
        probe("openai", server)
    assert caught.value.kind == "bad_request" and len(server.sent(PATH)) == 2
