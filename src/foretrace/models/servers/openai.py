"""Any OpenAI-compatible server: streamed chat with logprobs, and prompts of token ids where the server takes them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

import msgspec

from foretrace.core.completion import Capabilities, ChatMessage, Request
from foretrace.core.errors import ModelError
from foretrace.core.trace import Usage
from foretrace.models import context_overflow
from foretrace.models.adapter import Adapter, with_extra
from foretrace.models.completion_builder import Reply, Weighed, most_bytes
from foretrace.models.http import Address, address_of
from foretrace.models.retry import patiently
from foretrace.models.server_errors import reason_of
from foretrace.models.servers import openai_probe, openai_wire
from foretrace.models.servers.openai_wire import FINISH, Choice, Event
from foretrace.models.sse import sse_data

_HOME = "api.openai.com"


class OpenAI(Adapter):
    """A model behind `/v1/chat/completions`; with ids also `/v1/completions` (see also `base.TokenModel`)."""

    kind = "openai"
    key_variable = "OPENAI_API_KEY"
    key_host = _HOME

    def find_address(self) -> Address:
        """The base URL that is given, with `/v1` at its end or not; else OpenAI's own."""
        address = address_of(self.server.base_url or f"https://{_HOME}")
        base = address.base.removesuffix("/chat/completions").removesuffix("/completions")
        return msgspec.structs.replace(address, base=base if base.endswith("/v1") else f"{base}/v1")

    async def tokenize(self, text: str, *, special: bool = False) -> list[int]:
        """Ids of a text (see `base.TokenModel.tokenize`)."""
        return (await patiently(lambda: openai_wire.of_text(self.http, text, special=special), self._patience))[0]

    async def render(self, messages: Sequence[ChatMessage]) -> list[int]:
        """Ids of messages under the model's template (see `base.TokenModel.render`)."""
        return (await patiently(lambda: openai_wire.of_messages(self.http, messages), self._patience))[0]

    async def ask(self, request: Request) -> Reply:
        """One completion; where prompt and reply do not fit into the context together, once more with what is left.

        `Completion.extra["max_tokens"]` is what was asked for then.
        """
        try:
            return await self._once(request)
        except ModelError as error:
            room = await self._room(request, error)
            if room is None:
                raise
        sampling = msgspec.structs.replace(request.sampling, max_tokens=room)
        reply = await self._once(msgspec.structs.replace(request, sampling=sampling))
        reply.extra["max_tokens"] = room
        return reply

    async def _room(self, request: Request, error: ModelError) -> int | None:
        """Tokens that the context has left for the reply; null where that is not why the request was refused, or too
        few."""
        found = context_overflow.refused(reason_of(error)) if error.kind == "overflow" else None
        if found is None or {"max_tokens", "max_completion_tokens"} & set(request.sampling.extra):
            return None
        prompt = found.prompt
        if request.prompt_ids is not None:
            prompt = len(request.prompt_ids)
        elif prompt is None:
            try:
                prompt = len(await openai_wire.of_messages(self.http, request.messages))
                prompt += len(await openai_wire.of_text(self.http, request.prefill, special=True))
            except ModelError:
                return None
        room = found.room(prompt)
        return room if context_overflow.LEAST <= room < request.sampling.max_tokens else None

    async def _once(self, request: Request) -> Reply:
        """One completion: chat, or text where the prompt is ids."""
        if request.prompt_ids is None:
            path, body = "/chat/completions", self._chat(request)
        else:
            path, body = "/completions", self._text(request)
        reply = Reply(self.http, request, prompt_token_ids=request.prompt_ids)
        most = most_bytes(request)
        async with aclosing(self.http.events(path, body, Event, most_bytes=most, data_of=sse_data)) as batches:
            async for events in batches:
                for event in events:
                    self._take(event, reply)
        if "stop" in self.refused:
            _stop_at(reply, request.stop)
        reply.all_ids = bool(reply.token_ids) and (
            reply.usage is None or reply.usage.completion_tokens in (None, len(reply.token_ids))
        )
        return reply

    async def examine(self) -> Capabilities:
        """See `base.ChatModel.probe`."""
        return await openai_probe.examine(self)

    def _take(self, event: Event, reply: Reply) -> None:
        if event.error is not None or event.object == "error":
            raise self.http.place.of_words(event.error or event.message)
        reply.model = event.model or reply.model
        if event.usage is not None:
            reply.usage = Usage(
                prompt_tokens=event.usage.prompt_tokens, completion_tokens=event.usage.completion_tokens
            )
        if event.prompt_token_ids:
            reply.prompt_token_ids = tuple(event.prompt_token_ids)
        for choice in event.choices or ():
            if choice.index == 0:
                self._take_choice(choice, reply)

    def _take_choice(self, choice: Choice, reply: Reply) -> None:
        # Once a token: what is absent, as most is, costs nothing here.
        if (delta := choice.delta) is not None:
            reply.say(delta.content, delta.reasoning_content or delta.reasoning)
        if choice.text:
            reply.say(choice.text)
        if choice.token_ids:
            reply.token_ids.extend(choice.token_ids)
        if choice.prompt_token_ids:
            reply.prompt_token_ids = tuple(choice.prompt_token_ids)
        if (logprobs := choice.logprobs) is not None:
            if logprobs.content:
                reply.weighed.extend(logprobs.content)
            if tokens := logprobs.tokens:
                pairs = zip(tokens, logprobs.token_logprobs or [], strict=False)
                reply.weighed.extend(Weighed(token, value) for token, value in pairs)
        if choice.finish_reason is None:
            return
        if choice.finish_reason == "content_filter":
            remedy = "the server's filter stopped the reply: the same request will be stopped again"
            raise self.http.place.error("the reply was cut by a content filter", remedy, kind="filtered")
        if choice.finish_reason not in FINISH:
            raise self.http.place.stream(f"the reply ended with {choice.finish_reason!r}")
        reply.finish = FINISH[choice.finish_reason]
        matched = choice.stop_reason if isinstance(choice.stop_reason, str) else choice.matched_stop
        if reply.finish == "stop" and isinstance(matched, str) and matched in reply.request.stop:
            reply.finish, reply.stop = "stop_sequence", matched

    def _chat(self, request: Request) -> dict[str, Any]:
        messages = [{"role": m.role, "content": m.content} for m in request.messages]
        body = self._common(request) | {"messages": messages}
        if request.prefill:
            messages.append({"role": "assistant", "content": request.prefill})
            body |= {"continue_final_message": True, "add_generation_prompt": False}
        if self._logprobs(request):
            body["logprobs"] = True
        # OpenAI's own models have left `max_tokens` behind; many other servers know no other name.
        newer = self.http.address.host == _HOME or "max_tokens" in self.refused
        name = "max_completion_tokens" if newer else "max_tokens"
        return with_extra(body | {name: request.sampling.max_tokens}, request.sampling.extra)

    def _text(self, request: Request) -> dict[str, Any]:
        body = self._common(request) | {
            "prompt": list(request.prompt_ids or ()),
            "max_tokens": request.sampling.max_tokens,
            "skip_special_tokens": False,
            "return_token_ids": True,
        }
        if self._logprobs(request):
            body["logprobs"] = 1
        return with_extra(body, request.sampling.extra)

    def _common(self, request: Request) -> dict[str, Any]:
        sampling = request.sampling
        body = {
            "model": self.name,
            "stream": True,
            "stream_options": {"include_usage": True},
            "stop": list(request.stop) or None,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k,  # only where it is set, or known to be taken: OpenAI's own server refuses it
            "seed": sampling.seed,
        }
        body |= {name: value for name, value in self.unlimited.items() if body.get(name) is None}
        if self.capabilities is not None and self.capabilities.token_ids:
            body["return_token_ids"] = True
        return {name: value for name, value in body.items() if name not in self.refused}

    def _logprobs(self, request: Request) -> bool:
        return request.logprobs and (self.capabilities is None or self.capabilities.logprobs)


def _stop_at(reply: Reply, stops: Sequence[str]) -> None:
    """Cut the text behind the first stop sequence, as the server would have done."""
    text = "".join(reply.text)
    ends = [at + len(stop) for stop in stops if stop and (at := text.find(stop)) >= 0]
    if ends:
        reply.text[:] = [text[: min(ends)]]


PLUGIN = OpenAI
