"""llama.cpp's llama-server through its native API: prompts as token ids, replies as token ids with logprobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from foretrace.core.completion import Capabilities, ChatMessage, FinishReason, Request, Sampling
from foretrace.core.errors import ModelError
from foretrace.core.trace import Usage
from foretrace.models.adapter import (
    Adapter,
    add_extra,
    count_prompt,
    drop_repeated_think,
    ends_in_open_think,
    list_file_names,
    list_messages,
    list_sampling,
)
from foretrace.models.address import Address, parse_address
from foretrace.models.completion_builder import CompletionBuilder, TokenLogprob, max_stream_bytes
from foretrace.models.server_errors import public_cause

_DEFAULT_URL = "http://127.0.0.1:8080"
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
    completion_probabilities: list[TokenLogprob] | None = None
    stop: bool = False
    stop_type: str | None = None
    stopping_word: str | None = None
    model: str = ""
    truncated: bool = False
    tokens_predicted: int | None = None
    tokens_evaluated: int | None = None
    error: Any = None


class _Tail(msgspec.Struct):
    """The last tokens, starting with the first whose text was not sent along with it."""

    token_ids: list[int] = []
    sent_text: str = ""

    def add(self, event: _Event) -> None:
        """Add the event of one token. Text that the server withholds comes with a later event, or never."""
        if event.tokens:
            self.token_ids = [*event.tokens] if self.sent_text else [*self.token_ids, *event.tokens]
            self.sent_text = event.content


class LlamaCpp(Adapter):
    """The model of a llama-server (see also `base.TokenModel`). It is always sent a list of token ids as prompt."""

    kind = "llamacpp"

    def find_address(self) -> Address:
        """The given base URL, else port 8080 on this machine."""
        address = parse_address(self.server.base_url or _DEFAULT_URL)
        return msgspec.structs.replace(address, base=address.base.removesuffix("/v1"))

    async def tokenize(self, text: str, *, special: bool = False) -> list[int]:
        return await self.retry(lambda: self._tokenize(text, special=special))

    async def render(self, messages: Sequence[ChatMessage]) -> list[int]:
        async def once() -> list[int]:
            return await self._tokenize(await self._render_prompt(messages), special=True, begin=True)

        return await self.retry(once)

    async def send(self, request: Request) -> CompletionBuilder:
        """Send one request, with the prompt as token ids."""
        builder = CompletionBuilder(self.http.errors, request)
        if request.prompt_ids is None:
            prompt = await self._render_prompt(request.messages)
            ids = await self._tokenize(prompt, special=True, begin=True)
            if request.prefill:
                ids += await self._tokenize(drop_repeated_think(prompt, request.prefill), special=True)
            elif ends_in_open_think(prompt):
                builder.extra["opened"] = "<think>"
        else:
            ids = list(request.prompt_ids)
        builder.prompt_token_ids = tuple(ids)
        tail = _Tail()

        def add(event: _Event) -> None:
            self._add_event(event, builder)
            tail.add(event)

        body, most = self._make_body(ids, request), max_stream_bytes(request)
        await self.http.read_stream("/completion", body, _Event, add, max_bytes=most)
        if builder.finish in ("stop_sequence", "length") and builder.ids_complete and request.stop and tail.token_ids:
            await self._add_withheld_text(builder, tail)
        return builder

    async def _add_withheld_text(self, builder: CompletionBuilder, tail: _Tail) -> None:
        """Add the text of the last tokens if the server sent their ids but withheld their text: a stop sequence, or the
        start of one when the token limit was reached."""
        answer = await self.http.request_json("POST", "/detokenize", {"tokens": tail.token_ids}, _Text)
        withheld = answer.content.removeprefix(tail.sent_text)
        stops = builder.request.stop
        if builder.finish == "stop_sequence":
            is_text = withheld.startswith(builder.stop or "\0")
        else:
            is_text = any(withheld.endswith(stop[:size]) for stop in stops for size in range(1, len(stop)))
        if not is_text:
            return  # it is the name of a special token
        if builder.token_logprobs:
            builder.token_logprobs[-1].bytes = list(builder.token_logprobs[-1].to_bytes() + withheld.encode())
        if builder.finish == "length":
            builder.add_text(withheld)

    async def probe_server(self) -> Capabilities:
        props = await self.http.request_json("GET", "/props", None, _Props)
        known = {name for name in (props.model_alias, *list_file_names(props.model_path or "")) if name}
        if known and self.name not in known:
            raise self.unknown_model(known)
        reasons: dict[str, str] = {"reasoning_apart": "native completions come with thinking inside the text"}
        sampling = Sampling(temperature=0.0, max_tokens=4)
        try:
            rendered = await self.render((ChatMessage("user", "Say: ok"),))
        except ModelError as error:
            why = f"the server renders no messages: {public_cause(error)}"
            return Capabilities(reasons=reasons | dict.fromkeys(("token_prompts", "continuation", "token_ids"), why))
        prompts = [rendered, [*rendered, *await self.tokenize("1, 2, 3, 4,")]]
        seen = [await self.attempt(Request(prompt_ids=tuple(prompt), sampling=sampling)) for prompt in prompts]
        lengths, counts = [len(prompt) for prompt in prompts], [count_prompt(each) for each in seen]
        if counts != lengths:
            why = f"prompts of {lengths[0]} and {lengths[1]} ids were counted as {counts[0]} and {counts[1]}"
            reasons |= {"token_prompts": why, "continuation": why}
        ids, logprobs = any(each.exact == "token" for each in seen), any(each.logprobs for each in seen)
        if not ids:
            reasons["token_ids"] = "the replies came without the ids of all tokens"
        if not logprobs:
            reasons["logprobs"] = "the replies came without a logprob for each token"
        slot = props.default_generation_settings
        return Capabilities(
            logprobs=logprobs,
            token_ids=ids,
            token_prompts=counts == lengths,
            continuation=counts == lengths,
            context_length=slot.n_ctx if slot else None,
            reasons=reasons,
        )

    async def _render_prompt(self, messages: Sequence[ChatMessage]) -> str:
        body = {"messages": list_messages(messages)}
        return (await self.http.request_json("POST", "/apply-template", body, _Prompt)).prompt

    async def _tokenize(self, text: str, *, special: bool, begin: bool = False) -> list[int]:
        if not text:
            return []
        body = {"content": text, "add_special": begin, "parse_special": special}
        return (await self.http.request_json("POST", "/tokenize", body, _Tokens)).tokens

    def _add_event(self, event: _Event, builder: CompletionBuilder) -> None:
        if event.error is not None:
            raise self.http.errors.from_stream(event.error)
        builder.add_text(event.content)
        builder.token_ids.extend(event.tokens or ())
        builder.token_logprobs.extend(event.completion_probabilities or ())
        builder.model = event.model or builder.model
        if not event.stop:
            return
        builder.finish = _FINISH.get(event.stop_type or "")
        builder.stop = event.stopping_word or None
        builder.usage = Usage(prompt_tokens=event.tokens_evaluated, completion_tokens=event.tokens_predicted)
        # A character that spans several tokens comes as one entry, with the id of the last token only.
        builder.ids_complete = len(builder.token_ids) == event.tokens_predicted
        if not builder.ids_complete:
            builder.extra["inexact"] = f"{len(builder.token_ids)} ids for {event.tokens_predicted} tokens"
        if event.truncated:
            builder.extra["truncated"] = True

    def _make_body(self, ids: list[int], request: Request) -> dict[str, Any]:
        sampling = request.sampling
        body = {
            "prompt": ids,
            "stream": True,
            "stop": list(request.stop),
            "n_predict": sampling.max_tokens,
            **list_sampling(sampling),
            "dry_multiplier": 0.0,
            "xtc_probability": 0.0,
            "seed": -1 if sampling.seed is None else sampling.seed,
            "n_probs": 1 if request.logprobs else 0,
            "post_sampling_probs": False,
            "return_tokens": True,
            "cache_prompt": True,
        }
        return add_extra(body, sampling.extra)


PLUGIN = LlamaCpp
