"""What the tests of the adapters share: a model of each kind at one fake server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from fakes.model_server import ModelServer
from foretrace.core.completion import ChatMessage, Request, Sampling
from foretrace.models.adapter import Adapter
from foretrace.models.base import Server
from foretrace.models.servers.llamacpp import LlamaCpp
from foretrace.models.servers.ollama import Ollama
from foretrace.models.servers.openai import OpenAI

T = TypeVar("T")
ADAPTERS: dict[str, type[Adapter]] = {"ollama": Ollama, "openai": OpenAI, "llamacpp": LlamaCpp}
PATHS = {"ollama": "/api/chat", "openai": "/v1/chat/completions", "llamacpp": "/completion"}
"""Where each asks for a completion."""


def asking(text: str = "hi", **more: Any) -> Request:
    """One small request."""
    sampling = more.pop("sampling", Sampling(temperature=0.5, top_p=0.9, max_tokens=50, seed=7))
    return Request(messages=(ChatMessage("user", text),), sampling=sampling, **more)


def model_at(kind: str, url: str, name: str = "toy", **server: Any) -> Adapter:
    """A model that tries again fast."""
    options = {"backoff_s": "0.01"} | server.pop("options", {})
    return ADAPTERS[kind](name, Server(base_url=url, options=options, **server))


def at(server: ModelServer, use: Callable[[ModelServer], Awaitable[T]]) -> T:
    """Run something against a server, and see that it leaves no task behind."""

    async def run() -> T:
        async with server:
            result = await use(server)
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        assert not left, left
        return result

    return asyncio.run(run())


def complete(kind: str, server: ModelServer, request: Request, **settings: Any) -> Any:
    """One completion of a fresh model."""

    async def use(running: ModelServer) -> Any:
        async with model_at(kind, running.url, **settings) as model:
            return await model.complete(request)

    return at(server, use)


def probe(kind: str, server: ModelServer, **settings: Any) -> Any:
    """What a fresh model finds out."""

    async def use(running: ModelServer) -> Any:
        async with model_at(kind, running.url, **settings) as model:
            return await model.probe()

    return at(server, use)
