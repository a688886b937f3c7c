"""What the model server adapters share: name, address, options, retries, the cached probe, and think blocks."""

from __future__ import annotations

import asyncio
import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import PurePath
from random import Random
from typing import Any, ClassVar, TypeVar

import msgspec

from foretrace.core.completion import Capabilities, ChatMessage, Completion, Request, Sampling
from foretrace.core.errors import ModelError, Setting, UsageError
from foretrace.models.address import Address, find_api_key
from foretrace.models.base import ClosingModel, OnRetry, Server
from foretrace.models.completion_builder import CompletionBuilder
from foretrace.models.http import HttpClient
from foretrace.models.server_errors import CROWDED, MAX_WAIT_S, ServerErrors

T = TypeVar("T")
_BACKOFF_S, _MAX_BACKOFF_S = 0.5, 20.0
_THINK = "<think>"
_RESERVED_FIELDS = frozenset({"model", "messages", "prompt", "stream", "stream_options", "stop", "raw"})
"""Fields of a request that `Sampling.extra` must not change."""


async def sleep_before_retry(failure: ModelError, seconds: float) -> None:
    """The default `OnRetry`: sleeps, regardless of the failure."""
    await asyncio.sleep(seconds)


class Adapter(ClosingModel, ABC):
    """A model behind HTTP (see `base.ChatModel`). A subclass implements the requests to its kind of server."""

    kind: ClassVar[str]
    """As in `KIND:NAME`."""
    key_variable: ClassVar[str] = ""
    """Environment variable of the key; empty if there is none."""
    key_host: ClassVar[str] = ""
    """The only host that the key from the environment is sent to."""
    option_names: ClassVar[frozenset[str]] = frozenset()
    """The supported `Server.options`, besides `backoff_s`."""
    timing_options: ClassVar[frozenset[str]] = frozenset({"backoff_s"})
    """Options that only affect waiting, not what the model writes."""
    accepts_empty: ClassVar[bool] = False
    """Whether a reply without text is the model's own; otherwise it is a failure that may pass."""
    sends_context_length: ClassVar[bool] = False
    """Whether requests set the context length; for other servers it is set when they are started."""

    def __init__(self, name: str, server: Server | None = None) -> None:
        self.server = server or Server()
        if not name.strip() or not name.isprintable():
            raise UsageError(f"name the model: {self.kind}:NAME")
        self.name = name.strip()
        self.spec = f"{self.kind}:{self.name}"
        self._backoff_s = self._check_options()
        self._jitter = Random(self.spec)
        """Spreads the waits, so that hundreds of requests do not return at the same moment."""
        if self.server.context_length is not None and not self.sends_context_length:
            remedy = "start the server with it (llama-server: -c N, vLLM: --max-model-len N)"
            raise UsageError(f"{self.kind} servers take no ", Setting("context_length"), f" in a request: {remedy}")
        address = self.find_address()
        self.endpoint = address.origin
        key = find_api_key(self.server, address, self.key_variable, self.key_host)
        errors = ServerErrors(address.origin, self.name, self.kind, key, self.key_variable)
        self.http = HttpClient(address, errors, self.server.timeout_s)
        self.capabilities: Capabilities | None = None
        """What the probe found; `None` before the probe."""
        self.refused_parameters: dict[str, str] = {}
        """Parameters that the server refused in the probe, with its message. They are not sent again."""

    @abstractmethod
    def find_address(self) -> Address:
        """The server's address."""

    @abstractmethod
    async def probe_server(self) -> Capabilities:
        """Find out what the server supports (`probe` without cache and retries)."""

    @abstractmethod
    async def send(self, request: Request) -> CompletionBuilder:
        """Send one request and read the reply to its end, without retries."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """The given settings that may change what the model writes (see `base.ConfiguredModel`)."""
        options = {n: v for n, v in self.server.options.items() if n not in self.timing_options}
        return {"options": options} if options else {}

    async def probe(self) -> Capabilities:
        """What the server supports (see `base.ChatModel.probe`). A server that is not there is not waited for long."""
        if self.capabilities is None:
            self.http.open_session()
            async with self.http.lock:
                if self.capabilities is None:
                    self.capabilities = await self.retry(self.probe_server, most=2)
        return self.capabilities

    async def complete(self, request: Request) -> Completion:
        """Complete one request (see `base.ChatModel.complete`).

        `Completion.extra["retried"]` lists the kinds of the failures before the success, if there were any.
        """
        return await self.complete_with_retries(request, sleep_before_retry)

    async def complete_with_retries(self, request: Request, on_retry: OnRetry) -> Completion:
        """Like `complete`, with `on_retry` called before each retry (see `base.RetryingModel`).

        Concurrent requests may not fit together into a context that they share. This counts as an overload as long as
        there are retries, so that fewer requests are sent. After that, it counts as an overflow of this request.
        """
        await self._check_request(request)
        failed: list[str] = []

        async def note_and_wait(failure: ModelError, seconds: float) -> None:
            failed.append(failure.kind)
            await on_retry(failure, seconds)

        try:
            completion = await self.retry(lambda: self._attempt_whole(request), note_and_wait)
        except ModelError as error:
            if error.kind != CROWDED:
                raise
            raise self.http.errors.end_of_crowding(error) from None
        return msgspec.structs.replace(
            completion, extra=completion.extra | {"retried": failed} if failed else completion.extra
        )

    async def retry(
        self, call: Callable[[], Awaitable[T]], on_retry: OnRetry = sleep_before_retry, most: int | None = None
    ) -> T:
        """Call until it succeeds, `most` times again if that is fewer than the server's setting. The wait before a
        retry is doubled each time, or longer if the server asks for that.

        The last failure is raised without a cause and without inner frames, whose locals could hold a key. This does
        not use stamina: it sleeps itself, while our callers wait without their slot (`OnRetry`).
        """
        retries = self.server.retries if most is None else min(most, self.server.retries)
        retried = 0
        while True:
            try:
                return await call()
            except ModelError as error:
                failure = error
            failure.__context__ = failure.__cause__ = None
            asked = failure.retry_after_s or 0.0
            if not failure.retryable or retried >= retries or asked > MAX_WAIT_S:
                raise failure.with_traceback(None)
            seconds = max(asked, min(self._backoff_s * 2**retried, _MAX_BACKOFF_S))
            retried += 1
            await on_retry(failure, seconds * (1.0 + 0.25 * self._jitter.random()))

    async def attempt(self, request: Request) -> Completion:
        """Send one request without retries, and measure its duration. The reply may be empty."""
        started = time.perf_counter()
        builder = await self.send(request)
        return builder.build(time.perf_counter() - started)

    async def _attempt_whole(self, request: Request) -> Completion:
        reply = await self.attempt(request)
        may_be_empty = self.accepts_empty or request.prefill or request.prompt_ids is not None
        if not (reply.text or reply.reasoning or reply.finish == "stop_sequence" or may_be_empty):
            raise self.http.errors.make("empty", "the completion is empty")
        return reply

    async def close(self) -> None:
        await self.http.close()

    def unknown_model(self, names: Iterable[str], remedy: str = "name one of those") -> ModelError:
        """The error for a name that the server does not list; otherwise every trace would record a wrong name."""
        known = sorted({*names})
        near = get_close_matches(self.name, known, n=5, cutoff=0.4) or known[:10]
        more = " and others" if len(known) > len(near) else ""
        told = f"it has {', '.join(near)}{more}" if near else "it has none"
        return self.http.errors.make("not_found", f"the server does not have this model ({told})", remedy)

    def _unsupported(self, what: str, capability: str) -> UsageError:
        reason = (self.capabilities or Capabilities()).reasons.get(capability, "it is not offered")
        return UsageError(f"{self.spec} at {self.endpoint} cannot {what}: {reason}")

    async def _check_request(self, request: Request) -> None:
        if request.prompt_ids is None and not request.messages:
            raise UsageError("a request needs messages or prompt_ids")
        if request.prompt_ids is not None and not (await self.probe()).token_prompts:
            raise self._unsupported("take a prompt of token ids", "token_prompts")
        if request.prefill and not (await self.probe()).continuation:
            raise self._unsupported("continue an assistant turn", "continuation")
        for name, value in (("temperature", request.sampling.temperature), ("top_p", request.sampling.top_p)):
            # At 1 the distribution is the model's own, so leaving the parameter out changes nothing.
            if name in self.refused_parameters and request.sampling.extra.get(name, value) not in (None, 1.0):
                takes_none = f"{self.spec} at {self.endpoint} takes no {name}: "
                if name == "temperature":
                    raise UsageError(takes_none, "let the server choose it (", Setting("temperature", "none"), ")")
                raise UsageError(takes_none, "leave ", Setting("top_p"), " at 1")

    def _check_options(self) -> float:
        """Check the options; returns the first wait before a retry, in seconds."""
        names = self.option_names | {"backoff_s"}
        if unknown := sorted(set(self.server.options) - names):
            raise UsageError(f"{self.kind} has no option {unknown[0]!r}: there are {', '.join(sorted(names))}")
        given = self.server.options.get("backoff_s", str(_BACKOFF_S))
        with contextlib.suppress(ValueError):
            if 0.0 <= float(given) < 1e6:
                return float(given)
        raise UsageError(f"backoff_s is a number, not {given!r}")


def add_extra(body: dict[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """The body with the options of `Sampling.extra`, which may not change what foretrace sets; `None` removes one."""
    if forbidden := sorted(_RESERVED_FIELDS & set(extra)):
        raise UsageError(f"the sampling option {forbidden[0]!r} is set by foretrace: leave it out")
    return {name: value for name, value in (body | dict(extra)).items() if value is not None}


def list_messages(messages: Sequence[ChatMessage]) -> list[dict[str, str]]:
    return [{"role": m.role, "content": m.content} for m in messages]


def list_sampling(sampling: Sampling) -> dict[str, Any]:
    """Sampling for a server with its own limits, under llama.cpp's names. All are set, so that none goes unrecorded."""
    return {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k or 0,
        "min_p": 0.0,
        "typical_p": 1.0,
        "repeat_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
    }


def count_prompt(completion: Completion) -> int | None:
    """Number of tokens of the prompt, if the server reports it."""
    return completion.usage.prompt_tokens if completion.usage else None


def list_file_names(path: str) -> set[str]:
    """Names of a model, derived from the path of its file, that a llama-server accepts."""
    name = PurePath(path.replace("\\", "/")).name
    return {name, name.removesuffix(".gguf")}


def ends_in_open_think(prompt: str) -> bool:
    """Whether the template ended the rendered prompt with `<think>`."""
    return prompt.rstrip().endswith(_THINK)


def drop_repeated_think(prompt: str, prefill: str) -> str:
    """The prefill without a leading `<think>` if the rendered prompt already ends with one."""
    text = prefill.lstrip()
    if ends_in_open_think(prompt) and text.startswith(_THINK):
        thought = text.removeprefix(_THINK)
        # The template already wrote the line end after the tag.
        return thought.removeprefix("\n") if prompt.endswith("\n") else thought
    return prefill
