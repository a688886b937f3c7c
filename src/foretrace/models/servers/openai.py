"""Any OpenAI-compatible server: streamed chat with logprobs, and prompts of token ids if the server accepts them."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from foretrace.core.completion import Capabilities, ChatMessage, Completion, FinishReason, Request, Sampling
from foretrace.core.errors import ModelError
from foretrace.core.trace import Usage
from foretrace.models.adapter import Adapter, add_extra, count_prompt, list_file_names, list_messages
from foretrace.models.address import Address, parse_address
from foretrace.models.completion_builder import CompletionBuilder, TokenLogprob, cut_at_stop, max_stream_bytes
from foretrace.models.server_errors import MIN_REPLY_TOKENS, parse_overflow, public_cause

_SMALL = Request(
    messages=(ChatMessage("user", "Say: ok"),), sampling=Sampling(temperature=0.0, max_tokens=16), logprobs=False
)
"""The request from which those of the probe are made."""
_MORE_TOKENS = 1024
"""For servers that refuse a `max_tokens` too small for a model that reasons before it answers."""
_STOP = "</code>"
"""A stop sequence like those of the protocols."""
_PARAMETER = re.compile(r"\b(temperature|top_p|max_tokens|logprobs)\b|['\"`](stop)['\"`]", re.IGNORECASE)
_UNSUPPORTED = re.compile(r"(not|n't|un)[ -]?(support|allow|permit|recogni|enable)|only the default", re.IGNORECASE)
_NEUTRAL_SAMPLING = {"top_k": -1, "min_p": 0.0}
_TOKEN_IDS = "return_token_ids"
_SPECIAL_TOKEN = re.compile(r"<[^<>\s]{1,60}>|\[[A-Z_/]{2,30}\]")
"""Text that may be the name of a special token."""
_LLAMA_OWNER = "llamacpp"
"""`owned_by` of a llama-server, which serves its model under any name."""
_PREFILL = "1,2,3,4,5,6,7,8"
_DOUBLE_PREFILL = f"{_PREFILL},{_PREFILL}"
"""Twice the prefill and a comma: if each digit is a token, this has 2n + 1 tokens when the prefill has n."""
_OPENAI_HOST = "api.openai.com"
_FINISH: dict[str, FinishReason] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
}


class _Delta(msgspec.Struct, gc=False):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class _Logprobs(msgspec.Struct, gc=False):
    """`content` in chat; `tokens` and `token_logprobs` in text completions."""

    content: list[TokenLogprob] | None = None
    tokens: list[str] | None = None
    token_logprobs: list[float | None] | None = None


class _Choice(msgspec.Struct, gc=False):
    """One choice of an event: `delta` in chat, `text` in text completions."""

    index: int = 0
    delta: _Delta | None = None
    text: str | None = None
    logprobs: _Logprobs | None = None
    finish_reason: str | None = None
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None
    stop_reason: Any = None
    """vLLM: the stop sequence, or the id of a stop token."""
    matched_stop: Any = None
    """SGLang: the same."""


class _TokenCounts(msgspec.Struct, gc=False):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Event(msgspec.Struct, gc=False):
    model: str | None = None
    object: str | None = None
    choices: list[_Choice] | None = None
    usage: _TokenCounts | None = None
    prompt_token_ids: list[int] | None = None
    error: Any = None
    message: Any = None


class _ModelMeta(msgspec.Struct):
    """An extra field of llama-server."""

    n_ctx: int | None = None


class _ListedModel(msgspec.Struct):
    """One model of /v1/models."""

    id: str
    owned_by: Any = None
    max_model_len: int | None = None
    context_length: int | None = None
    context_window: int | None = None
    meta: _ModelMeta | None = None
    aliases: list[str] | None = None

    @property
    def names(self) -> set[str]:
        """Names of the model. A llama-server lists the path of its file, and also accepts the file's name."""
        return {self.id, *(self.aliases or ()), *list_file_names(self.id)}

    @property
    def context(self) -> int | None:
        """Context length in tokens; vLLM, llama-server and other servers each have their own field for it."""
        own = self.max_model_len or self.context_length or self.context_window
        return own or (self.meta.n_ctx if self.meta else None)


class _ModelList(msgspec.Struct):
    data: list[_ListedModel] | None = None


class _Tokens(msgspec.Struct):
    tokens: list[int]


class OpenAI(Adapter):
    """A model behind `/v1/chat/completions`; for prompts of ids, `/v1/completions` (see also `base.TokenModel`)."""

    kind = "openai"
    key_variable = "OPENAI_API_KEY"
    key_host = _OPENAI_HOST
    neutral_sampling: Mapping[str, Any] = {}
    """Sampling limits set to values without effect, sent if a request does not set them. The probe finds out whether
    the server has its own limits, which no trace would record."""

    def find_address(self) -> Address:
        """The given base URL, with or without `/v1` at its end; else OpenAI's own."""
        address = parse_address(self.server.base_url or f"https://{_OPENAI_HOST}")
        base = address.base.removesuffix("/chat/completions").removesuffix("/completions")
        return msgspec.structs.replace(address, base=base if base.endswith("/v1") else f"{base}/v1")

    async def tokenize(self, text: str, *, special: bool = False) -> list[int]:
        return await self.retry(lambda: self._tokenize(text, special=special))

    async def render(self, messages: Sequence[ChatMessage]) -> list[int]:
        return await self.retry(lambda: self._render(messages))

    async def _tokenize(self, text: str, *, special: bool) -> list[int]:
        """Ids of a text. The server always encodes the names of special tokens as those tokens; if they must stay text,
        opening brackets are tokenized separately, so that text from the environment cannot end a turn."""
        if special or not _SPECIAL_TOKEN.search(text):
            return await self._ask_for_ids({"prompt": text}) if text else []
        parts = [part for part in re.split(r"([<\[])", text) if part]
        ids = {part: await self._ask_for_ids({"prompt": part}) for part in dict.fromkeys(parts)}
        return [token for part in parts for token in ids[part]]

    async def _render(self, messages: Sequence[ChatMessage]) -> list[int]:
        return await self._ask_for_ids({"messages": list_messages(messages), "add_generation_prompt": True})

    async def _ask_for_ids(self, what: dict[str, Any]) -> list[int]:
        url = self.http.address.base.removesuffix("/v1") + "/tokenize"
        body = {"model": self.name, "add_special_tokens": False} | what
        return (await self.http.request_json("POST", url, body, _Tokens)).tokens

    async def send(self, request: Request) -> CompletionBuilder:
        """Send one request. If prompt and reply do not fit into the context together, send it again with a lower token
        limit, which is recorded in `Completion.extra["max_tokens"]`."""
        try:
            return await self._send_once(request)
        except ModelError as error:
            reply_tokens = await self._find_reply_tokens(request, error)
            if reply_tokens is None:
                raise
        sampling = msgspec.structs.replace(request.sampling, max_tokens=reply_tokens)
        builder = await self._send_once(msgspec.structs.replace(request, sampling=sampling))
        builder.extra["max_tokens"] = reply_tokens
        return builder

    async def _find_reply_tokens(self, request: Request, error: ModelError) -> int | None:
        """Tokens that the context leaves for the reply; `None` if this is another error, or there are too few."""
        overflow = parse_overflow(public_cause(error)) if error.kind == "overflow" else None
        if overflow is None or {"max_tokens", "max_completion_tokens"} & set(request.sampling.extra):
            return None
        prompt_tokens = overflow.prompt_tokens
        if request.prompt_ids is not None:
            prompt_tokens = len(request.prompt_ids)
        elif prompt_tokens is None:
            try:
                prompt_tokens = len(await self._render(request.messages))
                prompt_tokens += len(await self._tokenize(request.prefill, special=True))
            except ModelError:
                return None
        left = overflow.context_tokens - prompt_tokens - 1  # SGLang refuses a reply that fits exactly
        return left if MIN_REPLY_TOKENS <= left < request.sampling.max_tokens else None

    async def _send_once(self, request: Request) -> CompletionBuilder:
        if request.prompt_ids is None:
            path, body = "/chat/completions", self.make_chat_body(request)
        else:
            path, body = "/completions", self._make_text_body(request)
        builder = CompletionBuilder(self.http.errors, request, prompt_token_ids=request.prompt_ids)
        add = functools.partial(self._add_event, builder)
        await self.http.read_stream(path, body, _Event, add, max_bytes=max_stream_bytes(request))
        if "stop" in self.refused_parameters:  # the server does not stop there
            text, stop = cut_at_stop("".join(builder.text), request.stop)
            builder.text[:] = [text + (stop or "")]
        builder.ids_complete = bool(builder.token_ids) and (
            builder.usage is None or builder.usage.completion_tokens in (None, len(builder.token_ids))
        )
        return builder

    async def probe_server(self) -> Capabilities:
        listed = await self._list_models()
        own = next((model for model in listed.values() if self.name in model.names), None)
        llama = any(model.owned_by == _LLAMA_OWNER for model in listed.values())
        if own is None and llama:
            raise self.unknown_model(listed)
        reasons: dict[str, str] = {}
        try:
            reply, logprobs = await self._try_chat(reasons)
        except ModelError as error:
            if error.kind != "not_found" or not listed:
                raise
            raise self.unknown_model(listed) from None
        reasons |= {name: f"refused, so it is not sent: {cause}" for name, cause in self.refused_parameters.items()}
        if reply.reasoning is None:
            reasons["reasoning_apart"] = "none came in a small request"
        if missing := await self._try_continuation(reply):
            reasons["continuation"] = missing
        token_prompts, token_ids = await self._try_token_ids(reasons)
        if token_ids:
            await self._try_chat_ids(reasons)
        if llama or token_ids:  # llama-server has its own sampling limits, and vLLM uses those in the model's files
            self.neutral_sampling = _NEUTRAL_SAMPLING
        return Capabilities(
            logprobs=logprobs,
            token_ids=token_ids,
            token_prompts=token_prompts,
            continuation=not missing,
            reasoning_apart=reply.reasoning is not None,
            context_length=own.context if own else None,
            reasons=reasons,
        )

    async def _list_models(self) -> dict[str, _ListedModel]:
        try:
            models = await self.http.request_json("GET", "/models", None, _ModelList)
        except ModelError as error:
            if error.kind in ("not_found", "bad_reply", "bad_request"):
                return {}  # not every server lists its models
            raise
        return {model.id: model for model in models.data or ()}

    async def _try_chat(self, reasons: dict[str, str]) -> tuple[Completion, bool]:
        """A reply, and whether it came with logprobs. Parameters that the server refuses are removed one by one."""
        asked = msgspec.structs.replace(_SMALL, logprobs=True, stop=(_STOP,))
        while True:
            try:
                seen = await self.attempt(asked)
                break
            except ModelError as error:
                if error.kind != "bad_request":
                    raise
                asked = self._drop_refused(asked, error, reasons)
        logprobs = bool(seen.logprobs) or "logprobs" in seen.extra
        if asked.logprobs and not logprobs:
            reasons["logprobs"] = "the server returned none, though they were asked for"
        return seen, asked.logprobs and logprobs

    def _drop_refused(self, asked: Request, error: ModelError, reasons: dict[str, str]) -> Request:
        """The request without the parameter that the server refused; `refused_parameters` and `reasons` say why."""
        cause, sampling = public_cause(error), asked.sampling
        if "higher max_tokens" in cause and sampling.max_tokens < _MORE_TOKENS:
            return msgspec.structs.replace(asked, sampling=msgspec.structs.replace(sampling, max_tokens=_MORE_TOKENS))
        named = _PARAMETER.search(cause) if _UNSUPPORTED.search(cause) else None
        # Logprobs are what servers refuse most often, even without naming them.
        name = (named[1] or named[2]).lower() if named else "logprobs"
        if name in self.refused_parameters or (name == "logprobs" and not asked.logprobs):
            raise error
        if name == "logprobs":
            reasons[name] = f"refused: {cause}"
            return msgspec.structs.replace(asked, logprobs=False)
        self.refused_parameters[name] = cause
        return asked

    async def _try_continuation(self, plain: Completion) -> str:
        """Why an assistant turn cannot be continued; empty if it can.

        A server that opens a new turn instead adds the end of the old turn and the start of a new one to the prompt.
        The number of these extra tokens does not depend on the prefill. Let a be the prompt tokens without a prefill. A
        prefill of n tokens gives b = a + n + extra, and `_DOUBLE_PREFILL` gives c = a + 2n + 1 + extra, so
        extra = 2b - c - a + 1. It is negative if a template opens a think block only in new turns.
        """
        counts = [count_prompt(plain)]
        for prefill in (_PREFILL, _DOUBLE_PREFILL):
            try:
                seen = await self.attempt(msgspec.structs.replace(_SMALL, prefill=prefill))
            except ModelError as error:
                return f"refused: {public_cause(error)}"
            if seen.text.startswith(prefill):
                return "the server repeats the beginning in its reply"
            counts.append(count_prompt(seen))
        a, b, c = counts
        if a is None or b is None or c is None:
            return "the server does not report prompt token counts, which show whether it continues a turn"
        if 2 * b - c - a + 1 > 0 or c <= b:
            return f"the server opens a new turn ({a} prompt tokens bare, {b} and {c} with a beginning of n and 2n + 1)"
        return ""

    async def _try_chat_ids(self, reasons: dict[str, str]) -> None:
        """Find out whether chat accepts `return_token_ids` too: SGLang refuses it for streamed replies."""
        sampling = msgspec.structs.replace(_SMALL.sampling, extra={_TOKEN_IDS: True})
        try:
            await self.attempt(msgspec.structs.replace(_SMALL, sampling=sampling))
        except ModelError as error:
            if error.kind != "bad_request":
                raise
            self.refused_parameters[_TOKEN_IDS] = cause = public_cause(error)
            reasons[_TOKEN_IDS] = f"refused in chat, so it is sent with prompts of ids only: {cause}"

    async def _try_token_ids(self, reasons: dict[str, str]) -> tuple[bool, bool]:
        try:
            prompt = await self._render(_SMALL.messages)
            if not prompt:  # llama-server has this path, but with other fields
                why = "its /tokenize gives no ids for messages, as vLLM's does"
                reasons["token_prompts"] = reasons["token_ids"] = why
                return False, False
            prompt += await self._tokenize(_PREFILL, special=False)
            asked = Request(prompt_ids=tuple(prompt), sampling=_SMALL.sampling)
            seen = await self.attempt(asked)
        except ModelError as error:
            why = "not offered (no /tokenize)" if error.kind == "not_found" else f"not offered: {public_cause(error)}"
            reasons["token_prompts"] = reasons["token_ids"] = why
            return False, False
        if (counted := count_prompt(seen)) != len(prompt):
            reasons["token_prompts"] = f"a prompt of {len(prompt)} ids was counted as {counted}"
        if seen.exact != "token":
            reasons["token_ids"] = "the reply came without the ids of all tokens"
        return counted == len(prompt), seen.exact == "token"

    def _add_event(self, builder: CompletionBuilder, event: _Event) -> None:
        if event.error is not None or event.object == "error":
            raise self.http.errors.from_stream(event.error or event.message)
        builder.model = event.model or builder.model
        if event.usage is not None:
            builder.usage = Usage(
                prompt_tokens=event.usage.prompt_tokens, completion_tokens=event.usage.completion_tokens
            )
        if event.prompt_token_ids:
            builder.prompt_token_ids = tuple(event.prompt_token_ids)
        for choice in event.choices or ():
            if choice.index == 0:
                self._add_choice(choice, builder)

    def _add_choice(self, choice: _Choice, builder: CompletionBuilder) -> None:
        # Runs once per token. Most fields are absent, and cost only a comparison.
        if (delta := choice.delta) is not None:
            builder.add_text(delta.content, delta.reasoning_content or delta.reasoning)
        if choice.text:
            builder.add_text(choice.text)
        if choice.token_ids:
            builder.token_ids.extend(choice.token_ids)
        if choice.prompt_token_ids:
            builder.prompt_token_ids = tuple(choice.prompt_token_ids)
        if (logprobs := choice.logprobs) is not None:
            if logprobs.content:
                builder.token_logprobs.extend(logprobs.content)
            if tokens := logprobs.tokens:
                pairs = zip(tokens, logprobs.token_logprobs or [], strict=False)
                builder.token_logprobs.extend(TokenLogprob(token, value) for token, value in pairs)
        if choice.finish_reason is None:
            return
        if choice.finish_reason == "content_filter":
            raise self.http.errors.make("filtered", "the reply was cut by a content filter")
        if choice.finish_reason not in _FINISH:
            raise self.http.errors.make("stream", f"the reply ended with {choice.finish_reason!r}")
        builder.finish = _FINISH[choice.finish_reason]
        matched = choice.stop_reason if isinstance(choice.stop_reason, str) else choice.matched_stop
        if builder.finish == "stop" and isinstance(matched, str) and matched in builder.request.stop:
            builder.finish, builder.stop = "stop_sequence", matched

    def make_chat_body(self, request: Request) -> dict[str, Any]:
        messages = list_messages(request.messages)
        body = self._make_common_body(request) | {"messages": messages}
        if request.prefill:
            messages.append({"role": "assistant", "content": request.prefill})
            body |= {"continue_final_message": True, "add_generation_prompt": False}
        if self._wants_logprobs(request):
            body["logprobs"] = True
        # OpenAI's newer models refuse `max_tokens`; many other servers only know that name.
        renamed = self.http.address.host == _OPENAI_HOST or "max_tokens" in self.refused_parameters
        name = "max_completion_tokens" if renamed else "max_tokens"
        return add_extra(body | {name: request.sampling.max_tokens}, request.sampling.extra)

    def _make_text_body(self, request: Request) -> dict[str, Any]:
        body = self._make_common_body(request) | {
            "prompt": list(request.prompt_ids or ()),
            "max_tokens": request.sampling.max_tokens,
            "skip_special_tokens": False,
            _TOKEN_IDS: True,
        }
        if self._wants_logprobs(request):
            body["logprobs"] = 1
        return add_extra(body, request.sampling.extra)

    def _make_common_body(self, request: Request) -> dict[str, Any]:
        sampling = request.sampling
        body = {
            "model": self.name,
            "stream": True,
            "stream_options": {"include_usage": True},
            "stop": list(request.stop) or None,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k,  # left out if `None`: OpenAI's own server refuses it
            "seed": sampling.seed,
        }
        body |= {name: value for name, value in self.neutral_sampling.items() if body.get(name) is None}
        if self.capabilities is not None and self.capabilities.token_ids:
            body[_TOKEN_IDS] = True
        return {name: value for name, value in body.items() if name not in self.refused_parameters}

    def _wants_logprobs(self, request: Request) -> bool:
        return request.logprobs and (self.capabilities is None or self.capabilities.logprobs)


PLUGIN = OpenAI
