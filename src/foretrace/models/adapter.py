"""What the adapters of model servers share: name, address, options, retries and the cached probe."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from random import Random
from typing import Any, ClassVar, Self

import msgspec

from foretrace.core.completion import Capabilities, Completion, Request
from foretrace.core.errors import UsageError
from foretrace.models.base import Server
from foretrace.models.completion_builder import Reply
from foretrace.models.http import Address, Http, key_for
from foretrace.models.retry import Patience, patiently
from foretrace.models.server_errors import Place

_BACKOFF_S = 0.5
_OURS = frozenset({"model", "messages", "prompt", "stream", "stream_options", "stop", "raw"})
"""Fields of a request that further options must not change."""


class Adapter(ABC):
    """A model behind HTTP (see `base.ChatModel`); an adapter says how to ask and how to read."""

    kind: ClassVar[str]
    key_variable: ClassVar[str] = ""
    key_host: ClassVar[str] = ""
    option_names: ClassVar[frozenset[str]] = frozenset()
    waiting_options: ClassVar[frozenset[str]] = frozenset({"backoff_s"})
    """Options that change nothing in what the model writes."""
    asks_context: ClassVar[bool] = False
    """Whether a request says how long a context it wants; elsewhere the server is started with it."""

    def __init__(self, name: str, server: Server | None = None) -> None:
        self.server = server or Server()
        if not name.strip() or not name.isprintable():
            raise UsageError(f"name the model: {self.kind}:NAME")
        self.name = name.strip()
        self.spec = f"{self.kind}:{self.name}"
        options = self._options()
        if self.server.context_length is not None and not self.asks_context:
            remedy = "start the server with it (llama-server: -c N, vLLM: --max-model-len N)"
            raise UsageError(f"{self.kind} servers take no context length (--context-length) in a request: {remedy}")
        address = self.find_address()
        self.endpoint = address.origin
        key = key_for(self.server, address, self.key_variable, self.key_host)
        place = Place(address.origin, self.name, self.kind, key, self.key_variable)
        self.http = Http(address, place, self.server.timeout_s)
        self.capabilities: Capabilities | None = None
        """What the probe found; null before it."""
        self.refused: dict[str, str] = {}
        """Parameters that the server refused in the probe, and how it did: they are not sent again."""
        self.unlimited: dict[str, Any] = {}
        """What is sent where a request sets none of it: a server that was found to have limits of its own is told that
        there are none, or a trace would not say how it was sampled."""
        backoff = number(options.get("backoff_s", str(_BACKOFF_S)), "backoff_s")
        self._patience = Patience(max(0, self.server.retries), backoff, Random(self.spec))
        # A first look should not wait long for a server that is not there.
        self._probe_patience = Patience(min(2, max(0, self.server.retries)), backoff, Random(self.spec))

    @abstractmethod
    def find_address(self) -> Address:
        """Where the server is."""

    @abstractmethod
    async def examine(self) -> Capabilities:
        """Find out what the server does (`probe` without the cache)."""

    @abstractmethod
    async def ask(self, request: Request) -> Reply:
        """Ask once."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """What was given that may change what the model writes (see `base.Configured`)."""
        options = {n: v for n, v in self.server.options.items() if n not in self.waiting_options}
        return {"options": options} if options else {}

    async def probe(self) -> Capabilities:
        """What the server does (see `base.ChatModel.probe`)."""
        if self.capabilities is None:
            self.http.join()
            async with self.http.lock:
                if self.capabilities is None:
                    self.capabilities, _ = await patiently(self.examine, self._probe_patience)
        return self.capabilities

    async def complete(self, request: Request) -> Completion:
        """Complete one request (see `base.ChatModel.complete`).

        `Completion.extra["retried"]` lists the kinds of the failures before the success, if there were any.
        """
        await self._admit(request)
        completion, failed = await patiently(lambda: self.attempt(request), self._patience)
        return (
            msgspec.structs.replace(completion, extra=completion.extra | {"retried": failed}) if failed else completion
        )

    async def attempt(self, request: Request, *, may_be_empty: bool = False) -> Completion:
        """Ask once and take the time."""
        begun = time.perf_counter()
        reply = await self.ask(request)
        return reply.completion(time.perf_counter() - begun, may_be_empty=may_be_empty)

    async def close(self) -> None:
        """Close connections. May be called twice."""
        await self.http.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    def refuse(self, what: str, capability: str) -> UsageError:
        """The error for a request that the server was found not to serve."""
        reason = (self.capabilities or Capabilities()).reasons.get(capability, "it is not offered")
        return UsageError(f"{self.spec} at {self.endpoint} cannot {what}: {reason}")

    async def _admit(self, request: Request) -> None:
        if request.prompt_ids is None and not request.messages:
            raise UsageError("a request needs messages or prompt_ids")
        if request.prompt_ids is not None and not (await self.probe()).token_prompts:
            raise self.refuse("take a prompt of token ids", "token_prompts")
        if request.prefill and not (await self.probe()).continuation:
            raise self.refuse("go on with an assistant turn", "continuation")
        for name, value in (("temperature", request.sampling.temperature), ("top_p", request.sampling.top_p)):
            # At 1 the distribution is the model's own, so leaving it out changes nothing.
            if name in self.refused and request.sampling.extra.get(name, value) not in (None, 1.0):
                remedy = (
                    "let the server choose it (--temperature none)" if name == "temperature" else "leave --top-p at 1"
                )
                raise UsageError(f"{self.spec} at {self.endpoint} takes no {name}: {remedy}")

    def _options(self) -> Mapping[str, str]:
        names = self.option_names | {"backoff_s"}
        if unknown := sorted(set(self.server.options) - names):
            raise UsageError(f"{self.kind} has no option {unknown[0]!r}: there are {', '.join(sorted(names))}")
        return self.server.options


def number(text: str, name: str) -> float:
    """A number that is not negative.

    Raises:
        UsageError: it is none.
    """
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value < 1e6:
        raise UsageError(f"{name} is a number, not {text!r}")
    return value


def with_extra(body: dict[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """The body with further options; null takes an option out.

    Raises:
        UsageError: an option would change what was asked.
    """
    if forbidden := sorted(_OURS & set(extra)):
        raise UsageError(f"the sampling option {forbidden[0]!r} is set by foretrace: leave it out")
    return {name: value for name, value in (body | dict(extra)).items() if value is not None}
