"""What the model server adapters share: name, address, options, retries, the cached probe, and think blocks."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import PurePath
from random import Random
from typing import Any, ClassVar, TypeVar

import msgspec

from foretrace.core.completion import Capabilities, ChatMessage, Completion, Request, Sampling
from foretrace.core.errors import ModelError, Setting, UsageError
from foretrace.models.address import Address, find_api_key
from foretrace.models.base import ClosingModel, OnRetry, Server
from foretrace.models.completion_builder import CompletionBuilder, max_stream_bytes
from foretrace.models.http import HttpClient, parse_sse_line
from foretrace.models.server_errors import CROWDED, MAX_WAIT_S, ServerErrors, public_cause

T = TypeVar("T")
_BACKOFF_S, _MAX_BACKOFF_S = 0.5, 20.0
_THINK = "<think>"
_RESERVED_FIELDS = frozenset({"model", "messages", "prompt", "stream", "stream_options", "stop", "raw"})
"""Fields of a request that `Sampling.extra` must not change."""


async def sleep_before_retry(failure: ModelError, seconds: float) -> None:
    """The default `OnRetry`: sleeps, regardless of the failure."""
    await asyncio.sleep(seconds)


@dataclass(frozen=True)
class RetryPolicy:
    """How often to retry, and how long to wait before each retry.

    This does not use stamina's loop, for several reasons. That loop does the sleeping itself, while our callers wait
    without their slot and sometimes longer than one request needs (`OnRetry`). It logs each retry, obeys an off switch
    and only takes hooks for the whole process, which a library must not set. It also raises errors with the frames of
    the failed try, whose locals may hold a key.
    """

    retries: int
    backoff_s: float
    """First wait in seconds; doubled each time, up to 20."""
    jitter: Random
    """Spreads the waits, so that hundreds of requests do not return at the same moment."""

    def wait_s(self, failure: ModelError, retried: int) -> float | None:
        """Seconds to wait before the next try, after `retried` retries; `None` to give up."""
        asked = failure.retry_after_s or 0.0
        if not failure.retryable or retried >= self.retries or asked > MAX_WAIT_S:
            return None
        backoff = min(self.backoff_s * 2**retried, _MAX_BACKOFF_S)
        return max(asked, backoff) * (1.0 + 0.25 * self.jitter.random())


async def retry(
    call: Callable[[], Awaitable[T]], policy: RetryPolicy, on_retry: OnRetry = sleep_before_retry
) -> tuple[T, list[str]]:
    """Call until it succeeds; returns the result and the kinds of the failures before it.

    Raises:
        ModelError: the last failure, without a cause and without inner frames, whose locals could hold a key.
    """
    failed: list[str] = []
    while True:
        try:
            return await call(), failed
        except ModelError as error:
            failure = error
        failure.__context__ = failure.__cause__ = None
        seconds = policy.wait_s(failure, len(failed))
        if seconds is None:
            raise failure.with_traceback(None)
        failed.append(failure.kind)
        await on_retry(failure, seconds)


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
    sends_context_length: ClassVar[bool] = False
    """Whether requests set the context length; for other servers it is set when they are started."""

    def __init__(self, name: str, server: Server | None = None) -> None:
        self.server = server or Server()
        if not name.strip() or not name.isprintable():
            raise UsageError(f"name the model: {self.kind}:NAME")
        self.name = name.strip()
        self.spec = f"{self.kind}:{self.name}"
        options = self._check_options()
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
        self.neutral_sampling: dict[str, Any] = {}
        """Sampling limits set to values without effect, sent if a request does not set them. They are needed if the
        probe found that the server has its own limits, which no trace would record."""
        backoff = parse_number(options.get("backoff_s", str(_BACKOFF_S)), "backoff_s")
        self._retry_policy = RetryPolicy(max(0, self.server.retries), backoff, Random(self.spec))
        # The probe should not wait long for a server that is not there.
        self._probe_retry_policy = RetryPolicy(min(2, max(0, self.server.retries)), backoff, Random(self.spec))

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
        """What the server supports (see `base.ChatModel.probe`)."""
        if self.capabilities is None:
            self.http.open_session()
            async with self.http.lock:
                if self.capabilities is None:
                    self.capabilities, _ = await retry(self.probe_server, self._probe_retry_policy)
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
        try:
            completion, failed = await retry(lambda: self.attempt(request), self._retry_policy, on_retry)
        except ModelError as error:
            if error.kind != CROWDED:
                raise
            raise self.http.errors.shared_overflow(public_cause(error), final=True) from None
        if not failed:
            return completion
        return msgspec.structs.replace(completion, extra=completion.extra | {"retried": failed})

    async def attempt(self, request: Request, *, may_be_empty: bool = False) -> Completion:
        """Send one request without retries, and measure its duration."""
        started = time.perf_counter()
        builder = await self.send(request)
        return builder.build(time.perf_counter() - started, may_be_empty=may_be_empty)

    async def close(self) -> None:
        """Close connections. May be called twice."""
        await self.http.close()

    async def retry(self, call: Callable[[], Awaitable[T]]) -> T:
        """Call, and retry failures that may pass, as for a completion."""
        return (await retry(call, self._retry_policy))[0]

    async def read_stream(
        self,
        path: str,
        body: object,
        form: type[T],
        builder: CompletionBuilder,
        add_event: Callable[[T, CompletionBuilder], None],
        parse_line: Callable[[bytes], bytes | None] = parse_sse_line,
    ) -> CompletionBuilder:
        """Send a request whose answer is a stream, and add each of its events to the completion."""
        limit = max_stream_bytes(builder.request)
        events = self.http.stream_events(path, body, form, max_bytes=limit, parse_line=parse_line)
        async with aclosing(events) as batches:
            async for batch in batches:
                for event in batch:
                    add_event(event, builder)
        return builder

    def unknown_model(self, names: Iterable[str], remedy: str = "name one of those") -> ModelError:
        """The error for a name that the server does not list; otherwise every trace would record a wrong name."""
        known = sorted({*names})
        near = get_close_matches(self.name, known, n=5, cutoff=0.4) or known[:10]
        more = " and others" if len(known) > len(near) else ""
        told = f"it has {', '.join(near)}{more}" if near else "it has none"
        return self.http.errors.make(f"the server does not have this model ({told})", remedy, kind="not_found")

    def _unsupported(self, what: str, capability: str) -> UsageError:
        """The error for a request that needs something the server does not support."""
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

    def _check_options(self) -> Mapping[str, str]:
        names = self.option_names | {"backoff_s"}
        if unknown := sorted(set(self.server.options) - names):
            raise UsageError(f"{self.kind} has no option {unknown[0]!r}: there are {', '.join(sorted(names))}")
        return self.server.options


def parse_number(text: str, name: str) -> float:
    """The option `name` as a number of at least 0.

    Raises:
        UsageError: it is not such a number.
    """
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value < 1e6:
        raise UsageError(f"{name} is a number, not {text!r}")
    return value


def add_extra(body: dict[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """The body with the options of `Sampling.extra`; `None` removes an option.

    Raises:
        UsageError: an option would change what foretrace itself sets.
    """
    if forbidden := sorted(_RESERVED_FIELDS & set(extra)):
        raise UsageError(f"the sampling option {forbidden[0]!r} is set by foretrace: leave it out")
    return {name: value for name, value in (body | dict(extra)).items() if value is not None}


def list_messages(messages: Sequence[ChatMessage]) -> list[dict[str, str]]:
    """Messages in the form that all servers accept."""
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
