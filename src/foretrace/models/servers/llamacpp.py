"""llama.cpp's llama-server by its native interface: prompts as ids, replies as ids with aligned logprobs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from pathlib import PurePath
from typing import Any

import msgspec

from foretrace.core.completion import Capabilities, ChatMessage, Finish, Request, Sampling
from foretrace.core.errors import ModelError
from foretrace.core.trace import Usage
from foretrace.models.adapter import Adapter, add_extra, drop_repeated_think, ends_in_open_think
from foretrace.models.address import Address, parse_address
from foretrace.models.completion_builder import CompletionBuilder, TokenLogprob, max_stream_bytes
from foretrace.models.http import parse_sse_line
from foretrace.models.retry import retry
from foretrace.models.server_errors import public_cause

_LOCAL = "http://127.0.0.1:8080"
_FINISH: dict[str, Finish] = {"eos": "stop", "limit": "length", "word": "stop_sequence"}


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
        address = parse_address(self.server.base_url or _LOCAL)
        return msgspec.structs.replace(address, base=address.base.removesuffix("/v1"))

    async def tokenize(self, text: str, *, special: bool = False) -> list[int]:
        """Ids of a text (see `base.TokenModel.tokenize`)."""
        return (await retry(lambda: self._ids(text, special=special), self._retry_policy))[0]

    async def render(self, messages: Sequence[ChatMessage]) -> list[int]:
        """Ids of messages under the model's template (see `base.TokenModel.render`)."""

        async def once() -> list[int]:
            return await self._ids(await self._prompt(messages), special=True, begin=True)

        return (await retry(once, self._retry_policy))[0]

    async def send(self, request: Request) -> CompletionBuilder:
        """One completion of a prompt of ids."""
        builder = CompletionBuilder(self.http.errors, request)
        if request.prompt_ids is None:
            prompt = await self._prompt(request.messages)
            ids = await self._ids(prompt, special=True, begin=True)
            if request.prefill:
                ids += await self._ids(drop_repeated_think(prompt, request.prefill), special=True)
            elif ends_in_open_think(prompt):
                builder.extra["opened"] = "<think>"
        else:
            ids = list(request.prompt_ids)
        builder.prompt_token_ids = tuple(ids)
        body, tail = self._body(ids, request), _Tail()
        most = max_stream_bytes(request)
        async with aclosing(
            self.http.stream_events("/completion", body, _Event, max_bytes=most, parse_line=parse_sse_line)
        ) as batches:
            async for events in batches:
                for event in events:
                    self._take(event, builder)
                    tail.add(event)
        if builder.finish in ("stop_sequence", "length") and builder.ids_complete and request.stop and tail.ids:
            await self._complement(builder, tail)
        return builder

    async def _complement(self, builder: CompletionBuilder, tail: _Tail) -> None:
        """Add the text that the server kept back of the last tokens: a stop sequence, or what could have become one
        when the limit came. Their ids were sent."""
        answer = await self.http.request_json("POST", "/detokenize", {"tokens": tail.ids}, _Text)
        rest = answer.content.removeprefix(tail.sent)
        stops = builder.request.stop
        if builder.finish == "stop_sequence":
            known = rest.startswith(builder.stop or "\0")
        else:
            known = any(rest.endswith(stop[:size]) for stop in stops for size in range(1, len(stop)))
        if not known:
            return  # the name of a special token, which has no text
        if builder.token_logprobs:
            builder.token_logprobs[-1].bytes = list(builder.token_logprobs[-1].to_bytes() + rest.encode())
        if builder.finish == "length":
            builder.add_text(rest)

    async def probe_server(self) -> Capabilities:
        """See `base.ChatModel.probe`."""
        props = await self.http.request_json("GET", "/props", None, _Props)
        self._check_name(props)
        reasons: dict[str, str] = {"reasoning_apart": "native completions come with thinking inside the text"}
        messages = (ChatMessage("user", "Say: ok"),)
        sampling = Sampling(temperature=0.0, max_tokens=4)
        try:
            rendered = await self.render(messages)
        except ModelError as error:
            why = f"the server renders no messages: {public_cause(error)}"
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
            raise self.http.errors.make(f"the server serves {names}", remedy, kind="not_found")

    async def _prompt(self, messages: Sequence[ChatMessage]) -> str:
        body = {"messages": [{"role": m.role, "content": m.content} for m in messages]}
        return (await self.http.request_json("POST", "/apply-template", body, _Prompt)).prompt

    async def _ids(self, text: str, *, special: bool, begin: bool = False) -> list[int]:
        if not text:
            return []
        body = {"content": text, "add_special": begin, "parse_special": special}
        return (await self.http.request_json("POST", "/tokenize", body, _Tokens)).tokens

    def _take(self, event: _Event, builder: CompletionBuilder) -> None:
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
        # Bytes of a character that spans tokens come as one entry, with the ids of the last only.
        builder.ids_complete = len(builder.token_ids) == event.tokens_predicted
        if not builder.ids_complete:
            builder.extra["inexact"] = f"{len(builder.token_ids)} ids for {event.tokens_predicted} tokens"
        if event.truncated:
            builder.extra["truncated"] = True

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
        return add_extra(body, sampling.extra)


PLUGIN = LlamaCpp
