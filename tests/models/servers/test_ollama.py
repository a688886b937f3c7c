"""Ollama's interface, refereed by the types of its official client: what is sent, and every answer that they allow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from aiohttp import web

from fakes.model_server import ModelServer
from foretrace.core.completion import Sampling
from foretrace.core.errors import ModelError
from models.served import asking, at, model_at, probe

types = pytest.importorskip("ollama._types", reason="the official client of Ollama is not installed")
pytestmark = pytest.mark.integration  # which install it
KNOWN = {"/api/chat": types.ChatRequest, "/api/generate": types.GenerateRequest, "/api/show": types.ShowRequest}
ONLY_SERVER = {"truncate", "shift", "_debug_render_only"}
"""Fields that the server has and the client lacks (`api/types.go`)."""
ONLY_SERVER_OPTIONS = {"min_p"}


@dataclass
class Listing(ModelServer):
    """Lists its models with some of the fields."""

    fields: tuple[str, ...] = ("name", "model")

    async def _tags(self, request: web.Request, body: dict[str, Any]) -> web.Response:
        listed = {"name": "toy:latest", "model": "toy:latest", "size": 1, "digest": "0" * 64}
        own = {name: value for name, value in listed.items() if name in self.fields}
        types.ListResponse.model_validate({"models": [own]})
        return web.json_response({"models": [own]})


@pytest.mark.parametrize("fields", [("name", "model"), ("model",), ("name",)])
def test_a_model_is_listed_under_either_field(fields: tuple[str, ...]) -> None:
    assert probe("ollama", Listing(fields=fields)).logprobs
    with pytest.raises(ModelError, match="it has toy:latest"):
        probe("ollama", Listing(fields=fields), name="toi")


def test_a_model_that_is_listed_without_a_name_is_none() -> None:
    with pytest.raises(ModelError, match="it has none"):
        probe("ollama", Listing(fields=("size",)))


def test_each_request_is_one_of_the_official_client() -> None:
    async def use(server: ModelServer) -> None:
        settings = {"options": {"think": "false", "keep_alive": "5m"}, "context_length": 2000}
        async with model_at("ollama", server.url, **settings) as model:
            await model.probe()
            full = Sampling(temperature=0.5, top_p=0.9, top_k=20, max_tokens=5, seed=7, extra={"repeat_last_n": 3})
            for sampling in (Sampling(), full):
                await model.complete(asking(sampling=sampling, stop=("</code>",)))
                await model.complete(asking(sampling=sampling, prefill="<think>", logprobs=False))

    server = ModelServer()
    at(server, use)
    seen = [(one.path, one.body) for one in server.requests if one.method == "POST"]
    assert {path for path, _ in seen} == set(KNOWN)
    for path, body in seen:
        KNOWN[path].model_validate(body)
        assert set(body) <= set(KNOWN[path].model_fields) | ONLY_SERVER
        types.Options.model_validate(body.get("options", {}))
        assert set(body.get("options", {})) <= set(types.Options.model_fields) | ONLY_SERVER_OPTIONS
        for message in body.get("messages", ()):
            assert set(message) <= set(types.Message.model_fields)


def test_the_official_client_reads_the_test_server() -> None:
    async def use(server: ModelServer) -> None:
        async with model_at("ollama", server.url) as model:
            for path, form in (("/api/tags", types.ListResponse), ("/api/show", types.ShowResponse)):
                body = None if path == "/api/tags" else {"model": "toy"}
                answer = await model.http.request_json("GET" if body is None else "POST", path, body, dict[str, Any])
                form.model_validate(answer)
            session, asked = model.http.open_session(), {"model": "toy", "messages": [], "logprobs": True}
            async with session.post(f"{server.url}/api/chat", json=asked) as response:
                events = [types.ChatResponse.model_validate_json(line) async for line in response.content]
        assert "".join(event.message.content or "" for event in events) == "ok ✅" and events[-1].done

    at(ModelServer(say=lambda asked: "ok ✅"), use)
