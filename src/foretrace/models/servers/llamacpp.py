"""llama.cpp's llama-server by its native interface: prompts as ids, replies as ids with aligned logprobs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from pathlib import PurePath
from typing import Any

import msgspec

from foretrace.core.completion import Capabilities, ChatMessage, FinishReason, Request, Sampling
from foretrace.core.errors import ModelError
from foretrace.core.trace import Usage
from foretrace.models.adapter import Adapter, with_extra
from foretrace.models.completion_builder import Reply, Weighed, most_bytes
from foretrace.models.http import Address, address_of
from foretrace.models.retry import patiently
from foretrace.models.server_errors import reason_of
from foretrace.models.sse import sse_data
from foretrace.models.think_prefill import opens_think, without_doubled_think

_LOCAL = "http://127.0.0.1:8080"
_FINISH: dict[str, FinishReason] = {"eos": "stop", "limit": "length", "word": "stop_sequence"}


class _Slot(msgspec.Struct):
    n_ctx: int | None = None


class _Props(msgspec.Struct):
    default_generation_settings: _Slot | None = None
    model_alias: str | None = None
    model_path: str | None = None


class _Tokens(msgspec.Struct):
    tokens: list[int]


class _Prompt(msgspec.Struct):
    prompt: str


class _Text(msgspec.Struct):
    content: str


class _Event(msgspec.Struct):
    content: str = ""
    tokens: list[int] | None = None
    completion_probabilities: list[Weighed] | None = None
    stop: bool = False
    stop_type: str | None = None
    stopping_word: str | None = None
    model: str = ""
    truncated: bool = False
    tokens_predicted: int | None = None
    tokens_evaluated: int | None = None
    error: Any = None


class _Tail(msgspec.Struct):
    """The last tokens, from the first on whose text was not sent with them."""

    ids: list[int] = []
    sent: str = ""

    def add(self, event: _Event) -> None:
        """Take in what came for one token; text that was kept back comes with a later one, or never."""
        if event.tokens:
            self.ids = [*event.tokens] if self.sent else [*self.ids, *event.tokens]
            self.sent = event.content


class LlamaCpp(Adapter):
    """The model of a llama-server (see also `base.TokenModel`); the prompt is always our own list of ids."""

    kind = "llamacpp"

    def find_address(self) -> Address:
        """The base URL that is given, else port 8080 of this machine."""
        address = address_of(self.server.base_url or _LOCAL)
        return msgspec.structs.replace(address, base=address.base.removesuffix("/v1"))

    async def tokenize(self, text: str, *, special: bool = False) -> list[int]:
        """Ids of a text (see `base.TokenModel.tokenize`)."""
        return (await patiently(lambda: self._ids(text, special=special), self._patience))[0]

    async def render(self, messages: Sequence[ChatMessage]) -> list[int]:
        """Ids of messages under the model's template (see `base.TokenModel.render`)."""

        async def once() -> list[int]:
            return await self._ids(await self._prompt(messages), special=True, begin=True)

        return (await patiently(once, self._patience))[0]

    async def ask(self, request: Request) -> Reply:
        """One completion of a prompt of ids."""
        reply = Reply(self.http, request)
        if request.prompt_ids is None:
            prompt = await self._prompt(request.messages)
            ids = await self._ids(prompt, special=True, begin=True)
            if request.prefill:
                ids += await self._ids(without_doubled_think(prompt, request.prefill), special=True)
            elif opens_think(prompt):
                reply.extra["opened"] = "<think>"
        else:
            ids = list(request.prompt_ids)
        reply.prompt_token_ids = tuple(ids)
        body, tail = self._body(ids, request), _Tail()
        most = most_bytes(request)
        async with aclosing(
            self.http.events("/completion", body, _Event, most_bytes=most, data_of=sse_data)
        ) as batches:
            async for events in batches:
                for event in events:
                    self._take(event, reply)
                    tail.add(event)
        if reply.finish in ("stop_sequence", "length") and reply.all_ids and request.stop and tail.ids:
            await self._complement(reply, tail)
        return reply

    async def _complement(self, reply: Reply, tail: _Tail) -> None:
        """Add the text that the server kept back of the last tokens: a stop sequence, or what could have become one
        when the limit came. Their ids were sent."""
        answer = await self.http.answer("POST", "/detokenize", {"tokens": tail.ids}, _Text)
        rest = answer.content.removeprefix(tail.sent)
        stops = reply.request.stop
        if reply.finish == "stop_sequence":
            known = rest.startswith(reply.stop or "\0")
        else:
            known = any(rest.endswith(stop[:size]) for stop in stops for size in range(1, len(stop)))
        if not known:
            return  # the name of a special token, which has no text
        if reply.weighed:
            reply.weighed[-1].bytes = list(reply.weighed[-1].raw() + rest.encode())
        if reply.finish == "length":
            reply.say(rest)

    async def examine(self) -> Capabilities:
        """See `base.ChatModel.probe`."""
        props = await self.http.answer("GET", "/props", None, _Props)
        self._check_name(props)
        reasons: dict[str, str] = {"reasoning_apart": "native completions come with thinking inside the text"}
        messages = (ChatMessage("user", "Say: ok"),)
        sampling = Sampling(temperature=0.0, max_tokens=4)
        try:
            rendered = await self.render(messages)
        except ModelError as error:
            why = f"the server renders no messages: {reason_of(error)}"
            return Capabilities(reasons=reasons | dict.fromkeys(("token_prompts", "continuation", "token_ids"), why))
        longer = [*rendered, *await self.tokenize("1, 2, 3, 4,")]
        seen = await self.attempt(Request(prompt_ids=tuple(rendered), sampling=sampling), may_be_empty=True)
        more = await self.attempt(Request(prompt_ids=tuple(longer), sampling=sampling), may_be_empty=True)
        counts = [c.usage.prompt_tokens if c.usage else None for c in (seen, more)]
        verbatim = counts == [len(rendered), len(longer)]
        if not verbatim:
            why = f"prompts of {len(rendered)} and {len(longer)} ids were counted as {counts[0]} and {counts[1]}"
            reasons |= {"token_prompts": why, "continuation": why}
        ids = any(c.exact == "token" for c in (seen, more))
        if not ids:
            reasons["token_ids"] = "the replies came without the ids of all tokens"
        logprobs = any(c.logprobs for c in (seen, more))
        if not logprobs:
            reasons["logprobs"] = "the replies came without a logprob for each token"
        slot = props.default_generation_settings
        return Capabilities(
            logprobs=logprobs,
            token_ids=ids,
            token_prompts=verbatim,
            continuation=verbatim,
            context_length=slot.n_ctx if slot else None,
            reasons=reasons,
        )

    def _check_name(self, props: _Props) -> None:
        path = PurePath((props.model_path or "").replace("\\", "/"))
        known = [name for name in (props.model_alias, path.name, path.name.removesuffix(".gguf")) if name]
        if known and self.name not in known:
            names = ", ".join(dict.fromkeys(known))
            remedy = "name the model that it serves: a wrong name would stand in every trace"
            raise self.http.place.error(f"the server serves {names}", remedy, kind="not_found")

    async def _prompt(self, messages: Sequence[ChatMessage]) -> str:
        body = {"messages": [{"role": m.role, "content": m.content} for m in messages]}
        return (await self.http.answer("POST", "/apply-template", body, _Prompt)).prompt

    async def _ids(self, text: str, *, special: bool, begin: bool = False) -> list[int]:
        if not text:
            return []
        body = {"content": text, "add_special": begin, "parse_special": special}
        return (await self.http.answer("POST", "/tokenize", body, _Tokens)).tokens

    def _take(self, event: _Event, reply: Reply) -> None:
        if event.error is not None:
            raise self.http.place.of_words(event.error)
        reply.say(event.content)
        reply.token_ids.extend(event.tokens or ())
        reply.weighed.extend(event.completion_probabilities or ())
        reply.model = event.model or reply.model
        if not event.stop:
            return
        reply.finish = _FINISH.get(event.stop_type or "")
        reply.stop = event.stopping_word or None
        reply.usage = Usage(prompt_tokens=event.tokens_evaluated, completion_tokens=event.tokens_predicted)
        # Bytes of a character that spans tokens come as one entry, with the ids of the last only.
        reply.all_ids = len(reply.token_ids) == event.tokens_predicted
        if not reply.all_ids:
            reply.extra["inexact"] = f"{len(reply.token_ids)} ids for {event.tokens_predicted} tokens"
        if event.truncated:
            reply.extra["truncated"] = True

    def _body(self, ids: list[int], request: Request) -> dict[str, Any]:
        sampling = request.sampling
        body = {
            "prompt": ids,
            "stream": True,
            "stop": list(request.stop),
            "n_predict": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k or 0,
            "min_p": 0.0,
            "typical_p": 1.0,
            "repeat_penalty": 1.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "dry_multiplier": 0.0,
            "xtc_probability": 0.0,
            "seed": -1 if sampling.seed is None else sampling.seed,
            "n_probs": 1 if request.logprobs else 0,
            "post_sampling_probs": False,
            "return_tokens": True,
            "cache_prompt": True,
        }
        return with_extra(body, sampling.extra)


PLUGIN = LlamaCpp
