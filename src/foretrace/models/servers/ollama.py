"""Ollama, local or Cloud, through its native API: streamed NDJSON, text-exact logprobs, no silently cut prompts."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from foretrace.core.completion import Capabilities, ChatMessage, Request, Sampling
from foretrace.core.errors import ModelError, UsageError
from foretrace.core.trace import Usage
from foretrace.models.adapter import Adapter, add_extra, count_prompt, drop_repeated_think, list_messages, list_sampling
from foretrace.models.address import Address, parse_address
from foretrace.models.completion_builder import CompletionBuilder, TokenLogprob, max_stream_bytes
from foretrace.models.server_errors import public_cause

_DEFAULT_URL = "http://127.0.0.1:11434"
_DEFAULT_CONTEXT_LENGTH = 8192
"""num_ctx by default. Ollama's own default depends on the machine, and prompts are cut to it silently."""
_THINK: dict[str, bool | str] = {"true": True, "false": False, "low": "low", "medium": "medium", "high": "high"}
_PREFILL = "1, 2, 3, 4,"


class _ListedModel(msgspec.Struct):
    model: str | None = None
    name: str | None = None
    """Set by older servers instead of `model`."""


class _ModelList(msgspec.Struct):
    models: list[_ListedModel] | None = None


class _ModelInfo(msgspec.Struct):
    capabilities: list[str] | None = None
    model_info: dict[str, Any] | None = None


class _Message(msgspec.Struct):
    content: str | None = None
    thinking: str | None = None


class _Debug(msgspec.Struct):
    rendered_template: str | None = None


class _Rendered(msgspec.Struct):
    debug: _Debug | None = msgspec.field(name="_debug_info", default=None)


class _Chunk(msgspec.Struct):
    """One line of /api/chat (`message`) or /api/generate (`response`)."""

    model: str | None = None
    message: _Message | None = None
    response: str | None = None
    thinking: str | None = None
    done: bool | None = None
    done_reason: str | None = None
    prompt_eval_count: int | None = None
    eval_count: int | None = None
    logprobs: list[TokenLogprob] | None = None
    error: Any = None


class Ollama(Adapter):
    """A model on an Ollama server. Base URL `https://ollama.com` is Ollama Cloud."""

    kind = "ollama"
    key_variable = "OLLAMA_API_KEY"
    key_host = "ollama.com"
    option_names = frozenset({"think", "keep_alive"})
    sends_context_length = True
    timing_options = frozenset({"backoff_s", "keep_alive"})

    def find_address(self) -> Address:
        """The given base URL, else OLLAMA_HOST, else this machine."""
        address = parse_address(self.server.base_url or _read_ollama_host())
        base = address.base.removesuffix("/v1").removesuffix("/api")
        return msgspec.structs.replace(address, base=base)

    @property
    def settings(self) -> Mapping[str, Any]:
        """See `base.ConfiguredModel`. The context length is sent with every request, even if the user gave none."""
        return {"context_length": self._context_length} | dict(super().settings)

    @property
    def _context_length(self) -> int:
        return self.server.context_length or _DEFAULT_CONTEXT_LENGTH

    async def send(self, request: Request) -> CompletionBuilder:
        """Send one request: as chat, or as raw text if there is a prefill to continue."""
        if request.prefill:
            prompt = await self.render_prompt(request.messages)
            prompt += drop_repeated_think(prompt, request.prefill)
            return await self._stream("/api/generate", self._make_raw_body(prompt, request), request)
        return await self._stream("/api/chat", self._make_chat_body(request.messages, request), request)

    async def render_prompt(self, messages: Sequence[ChatMessage]) -> str:
        """Messages rendered by the server with the model's template."""
        # An older server ignores the option and completes the prompt, so only one token is requested.
        body = self._make_chat_body(messages, Request(sampling=Sampling(max_tokens=1))) | {
            "stream": False,
            "_debug_render_only": True,
        }
        rendered = await self.http.request_json("POST", "/api/chat", body, _Rendered)
        if rendered.debug is None or not rendered.debug.rendered_template:
            raise self.http.errors.make("bad_reply", "it does not render prompts (no _debug_info)")
        return rendered.debug.rendered_template

    async def probe_server(self) -> Capabilities:
        await self._check_name()
        shown = await self.http.request_json("POST", "/api/show", {"model": self.name}, _ModelInfo)
        reasons: dict[str, str] = dict.fromkeys(("token_ids", "token_prompts"), "Ollama's interface has no token ids")
        messages = (ChatMessage("user", "Say: ok"),)
        asked = Request(messages=messages, sampling=Sampling(temperature=0.0, max_tokens=16))
        seen = await self.attempt(asked)
        logprobs = bool(seen.logprobs) or "logprobs" in seen.extra
        if not logprobs:
            reasons["logprobs"] = "the server returned none, though they were asked for"
        apart = "thinking" in (shown.capabilities or []) or seen.reasoning is not None
        if not apart:
            reasons["reasoning_apart"] = "the model is not listed as one that thinks"
        if missing := await self._no_continuation(messages, count_prompt(seen)):
            reasons["continuation"] = missing
        trained = [
            value
            for name, value in (shown.model_info or {}).items()
            if name.endswith(".context_length") and isinstance(value, int) and value > 0
        ]
        return Capabilities(
            logprobs=logprobs,
            continuation=not missing,
            reasoning_apart=apart,
            context_length=min([self._context_length, *trained]),
            reasons=reasons,
        )

    async def _no_continuation(self, messages: Sequence[ChatMessage], plain: int | None) -> str:
        """Why an assistant turn cannot be continued; empty if it can. As a chat, `messages` have `plain` tokens."""
        asked = Request(sampling=Sampling(temperature=0.0, max_tokens=1))
        try:
            prompt = await self.render_prompt(messages)
            counts = [
                (await self._stream("/api/generate", self._make_raw_body(raw, asked), asked)).usage
                for raw in (prompt, prompt + _PREFILL)
            ]
        except ModelError as error:
            return f"a prompt of our own failed: {public_cause(error)}"
        bare, longer = (usage.prompt_tokens if usage else None for usage in counts)
        if bare is None or longer is None or plain is None:
            return "the server does not report prompt token counts, which show whether it continues a turn"
        if bare != plain or not 0 < longer - bare <= len(_PREFILL):
            return f"raw prompts are not taken as they are: {plain} tokens by chat, {bare} raw, {longer} with a prefill"
        return ""

    async def _stream(self, path: str, body: dict[str, Any], request: Request) -> CompletionBuilder:
        builder = CompletionBuilder(self.http.errors, request)
        most = max_stream_bytes(request)
        add = functools.partial(self._add_chunk, builder)
        await self.http.read_stream(path, body, _Chunk, add, max_bytes=most, is_sse=False)
        return builder

    def _add_chunk(self, builder: CompletionBuilder, chunk: _Chunk) -> None:
        if chunk.error is not None:
            raise self.http.errors.from_stream(chunk.error)
        message = chunk.message or _Message()
        builder.add_text(message.content or chunk.response, message.thinking or chunk.thinking)
        builder.token_logprobs.extend(chunk.logprobs or ())
        builder.model = chunk.model or builder.model
        if chunk.done:
            builder.finish = "length" if chunk.done_reason == "length" else "stop"
            builder.usage = Usage(prompt_tokens=chunk.prompt_eval_count, completion_tokens=chunk.eval_count)

    def _make_chat_body(self, messages: Sequence[ChatMessage], request: Request) -> dict[str, Any]:
        body = self._make_common_body(request) | {"messages": list_messages(messages)}
        if think := self.server.options.get("think"):
            if think not in _THINK:
                raise UsageError(f"think is one of {', '.join(_THINK)}, not {think!r}")
            body["think"] = _THINK[think]
        return body

    def _make_raw_body(self, prompt: str, request: Request) -> dict[str, Any]:
        return self._make_common_body(request) | {"prompt": prompt, "raw": True, "think": False}

    def _make_common_body(self, request: Request) -> dict[str, Any]:
        sampling = request.sampling
        options = {
            "num_ctx": self._context_length,
            "num_predict": sampling.max_tokens,
            **list_sampling(sampling),
            "seed": sampling.seed,
            "stop": list(request.stop) or None,
        }
        body: dict[str, Any] = {
            "model": self.name,
            "stream": True,
            "truncate": False,
            "shift": False,
            "options": add_extra(options, sampling.extra),
        }
        if request.logprobs and (self.capabilities is None or self.capabilities.logprobs):
            body |= {"logprobs": True, "top_logprobs": 0}
        if keep := self.server.options.get("keep_alive"):
            body["keep_alive"] = keep
        return body

    async def _check_name(self) -> None:
        listed = (await self.http.request_json("GET", "/api/tags", None, _ModelList)).models or ()
        names = [name for one in listed if (name := one.model or one.name)]
        wanted = self.name if ":" in self.name else f"{self.name}:latest"
        if wanted in names or self.name in names:
            return
        is_cloud = self.http.address.host == self.key_host
        advice = f"name one of these, or `ollama pull {self.name}` there"
        raise self.unknown_model(names, "models retire: name one of those" if is_cloud else advice)


def _read_ollama_host() -> str:
    """OLLAMA_HOST as Ollama's own clients read it: scheme and port may be missing."""
    host = os.environ.get("OLLAMA_HOST", "").strip()
    if not host:
        return _DEFAULT_URL
    if "://" not in host:
        host = f"http://{host}" if ":" in host else f"http://{host}:11434"
    return host.replace("//0.0.0.0", "//127.0.0.1")  # a server's listening address is not one to connect to


PLUGIN = Ollama
