"""Any OpenAI-compatible server: streamed chat with logprobs, and prompts of token ids where the server takes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from foretrace.core.completion import Capabilities, ChatMessage, Request
from foretrace.core.errors import ModelError
from foretrace.core.trace import Usage
from foretrace.models import context_overflow
from foretrace.models.adapter import Adapter, add_extra, list_messages
from foretrace.models.address import Address, parse_address
from foretrace.models.completion_builder import CompletionBuilder, TokenLogprob, cut_at_stop
from foretrace.models.server_errors import public_cause
from foretrace.models.servers import openai_probe, openai_wire
from foretrace.models.servers.openai_wire import FINISH, Choice, Event

_OPENAI_HOST = "api.openai.com"


class OpenAI(Adapter):
    """A model behind `/v1/chat/completions`; with ids also `/v1/completions` (see also `base.TokenModel`)."""

    kind = "openai"
    key_variable = "OPENAI_API_KEY"
    key_host = _OPENAI_HOST

    def find_address(self) -> Address:
        """The base URL that is given, with `/v1` at its end or not; else OpenAI's own."""
        address = parse_address(self.server.base_url or f"https://{_OPENAI_HOST}")
        base = address.base.removesuffix("/chat/completions").removesuffix("/completions")
        return msgspec.structs.replace(address, base=base if base.endswith("/v1") else f"{base}/v1")

    async def tokenize(self, text: str, *, special: bool = False) -> list[int]:
        """Ids of a text (see `base.TokenModel.tokenize`)."""
        return await self.retry(lambda: openai_wire.tokenize_text(self.http, text, special=special))

    async def render(self, messages: Sequence[ChatMessage]) -> list[int]:
        """Ids of messages under the model's template (see `base.TokenModel.render`)."""
        return await self.retry(lambda: openai_wire.tokenize_messages(self.http, messages))

    async def send(self, request: Request) -> CompletionBuilder:
        """Send one request; where prompt and reply do not fit into the context together, once more for a shorter reply.

        `Completion.extra["max_tokens"]` is the limit that was sent then.
        """
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
        """Tokens that the context leaves for the reply; `None` where the error is another one, or they are too few."""
        overflow = context_overflow.parse_overflow(public_cause(error)) if error.kind == "overflow" else None
        if overflow is None or {"max_tokens", "max_completion_tokens"} & set(request.sampling.extra):
            return None
        prompt_tokens = overflow.prompt_tokens
        if request.prompt_ids is not None:
            prompt_tokens = len(request.prompt_ids)
        elif prompt_tokens is None:
            try:
                prompt_tokens = len(await openai_wire.tokenize_messages(self.http, request.messages))
                prompt_tokens += len(await openai_wire.tokenize_text(self.http, request.prefill, special=True))
            except ModelError:
                return None
        left = overflow.tokens_left(prompt_tokens)
        return left if context_overflow.MIN_REPLY_TOKENS <= left < request.sampling.max_tokens else None

    async def _send_once(self, request: Request) -> CompletionBuilder:
        """Send one request: as chat, or as text completion where the prompt is token ids."""
        if request.prompt_ids is None:
            path, body = "/chat/completions", self.make_chat_body(request)
        else:
            path, body = "/completions", self._make_text_body(request)
        builder = CompletionBuilder(self.http.errors, request, prompt_token_ids=request.prompt_ids)
        await self.read_stream(path, body, Event, builder, self._add_event)
        if "stop" in self.refused_parameters:  # the server does not end there
            text, stop = cut_at_stop("".join(builder.text), request.stop)
            builder.text[:] = [text + (stop or "")]
        builder.ids_complete = bool(builder.token_ids) and (
            builder.usage is None or builder.usage.completion_tokens in (None, len(builder.token_ids))
        )
        return builder

    async def probe_server(self) -> Capabilities:
        """See `base.ChatModel.probe`."""
        return await openai_probe.probe_server(self)

    def _add_event(self, event: Event, builder: CompletionBuilder) -> None:
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

    def _add_choice(self, choice: Choice, builder: CompletionBuilder) -> None:
        # Runs once a token: absent fields, which are most, cost only a comparison.
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
            remedy = "the server's filter stopped the reply: the same request will be stopped again"
            raise self.http.errors.make("the reply was cut by a content filter", remedy, kind="filtered")
        if choice.finish_reason not in FINISH:
            raise self.http.errors.broken_stream(f"the reply ended with {choice.finish_reason!r}")
        builder.finish = FINISH[choice.finish_reason]
        matched = choice.stop_reason if isinstance(choice.stop_reason, str) else choice.matched_stop
        if builder.finish == "stop" and isinstance(matched, str) and matched in builder.request.stop:
            builder.finish, builder.stop = "stop_sequence", matched

    def make_chat_body(self, request: Request) -> dict[str, Any]:
        """JSON of a request to `/chat/completions`."""
        messages = list_messages(request.messages)
        body = self._make_common_body(request) | {"messages": messages}
        if request.prefill:
            messages.append({"role": "assistant", "content": request.prefill})
            body |= {"continue_final_message": True, "add_generation_prompt": False}
        if self._wants_logprobs(request):
            body["logprobs"] = True
        # OpenAI's newer models refuse `max_tokens`; many other servers know no other name.
        renamed = self.http.address.host == _OPENAI_HOST or "max_tokens" in self.refused_parameters
        name = "max_completion_tokens" if renamed else "max_tokens"
        return add_extra(body | {name: request.sampling.max_tokens}, request.sampling.extra)

    def _make_text_body(self, request: Request) -> dict[str, Any]:
        body = self._make_common_body(request) | {
            "prompt": list(request.prompt_ids or ()),
            "max_tokens": request.sampling.max_tokens,
            "skip_special_tokens": False,
            "return_token_ids": True,
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
            "top_k": sampling.top_k,  # left out at `None`: OpenAI's own server refuses it
            "seed": sampling.seed,
        }
        body |= {name: value for name, value in self.neutral_sampling.items() if body.get(name) is None}
        if self.capabilities is not None and self.capabilities.token_ids:
            body["return_token_ids"] = True
        return {name: value for name, value in body.items() if name not in self.refused_parameters}

    def _wants_logprobs(self, request: Request) -> bool:
        return request.logprobs and (self.capabilities is None or self.capabilities.logprobs)


PLUGIN = OpenAI
