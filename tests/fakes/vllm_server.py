"""Servers that answer as vLLM's and SGLang's do, field by field, with a real tokenizer and without a model.

    async with VllmServer(sample=lambda prompt: ids) as server:
        model = OpenAI("toy", Server(base_url=server.url))

What it sends was written after vLLM's source at commit 030ea52 (`entrypoints/openai/completion/serving.py`,
`entrypoints/serve/tokenize/protocol.py`, `v1/engine/detokenizer.py`, `v1/engine/logprobs.py`):

- `/v1/completions` streams the text as an incremental detokenizer finds it, and holds back as many characters as might
  begin a stop sequence; ids and logprobs come at once. Each token is decoded by itself: half a character is U+FFFD.
  Newer versions (`corrects`) look at the tokens before one that ends in U+FFFD: it is empty, and the last part of the
  character has all of it.
- `/v1/chat/completions` gives the bytes of that text, not those of the token.
- `/tokenize` has no switch for the names of special tokens: they are always read as such.

SGLang's (commit 004c82e, `srt/entrypoints/openai/serving_completions.py` and `utils.py`) is the same but for some
fields, and it refuses `return_token_ids` in a streamed chat.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from aiohttp import web
from tokenizers import Tokenizer

from fakes.model_server import Asked, ModelServer
from foretrace.core.completion import ChatMessage
from foretrace.models.demo_model import CHECKPOINT
from foretrace.models.demo_model.tokenizer import ChatTokenizer

DESCRIPTION = (CHECKPOINT / "tokenizer.json").read_text(encoding="utf-8")
_HALF = "\ufffd"


@dataclass
class VllmServer(ModelServer):
    """The server; its fields say what it does."""

    sample: Callable[[list[int]], list[int]] | None = None
    """The ids that are sampled behind a prompt of ids; with the end of the turn, where the model ends it. Otherwise
    those of what it is to `say`."""
    corrects: bool = False
    """Whether the text of a token is corrected by those before it."""

    def __post_init__(self) -> None:
        self.chat = ChatTokenizer(DESCRIPTION)
        self.tokenizer: Any = Tokenizer.from_str(DESCRIPTION)

    def decode(self, ids: list[int]) -> str:
        return self.tokenizer.decode(ids, skip_special_tokens=False)

    async def _models(self, request: web.Request, body: dict[str, Any]) -> web.Response:
        card = {"id": "toy", "object": "model", "created": 1, "owned_by": "vllm", "root": "toy", "parent": None}
        permission = [{"id": "modelperm-1", "object": "model_permission", "allow_sampling": True}]
        own = {"max_model_len": self.context, "permission": permission}
        return web.json_response({"object": "list", "data": [card | own]})

    async def _tokenize(self, request: web.Request, body: dict[str, Any]) -> web.Response:
        ids = self._render(body) if "messages" in body else self.chat.encode(body["prompt"], special=True)
        return web.json_response({"count": len(ids), "max_model_len": self.context, "tokens": ids, "token_strs": None})

    def _render(self, body: dict[str, Any]) -> list[int]:
        messages = [ChatMessage(m["role"], m["content"]) for m in body["messages"]]
        prefill = messages.pop().content if body.get("continue_final_message") else ""
        return self.chat.render(messages, prefill)

    async def _openai(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        chat = "messages" in body
        prompt: list[int] = self._render(body) if chat else body["prompt"]
        asked = body["max_tokens"] + len(prompt)
        if asked > self.context:
            said = (
                f"This model's maximum context length is {self.context} tokens. However, you requested "
                f"{body['max_tokens']} output tokens and your prompt contains {len(prompt)} input tokens, for a total "
                f"of {asked} tokens. Please reduce the length of the input prompt or the number of requested output "
                "tokens."
            )
            error = {"message": said, "type": "BadRequestError", "param": "input_tokens", "code": 400}
            return web.json_response({"error": error}, status=400)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        async for event in self._stream_events(body, prompt, chat=chat):
            await response.write(f"data: {json.dumps(event, ensure_ascii=False)}\n\n".encode())
        await response.write(b"data: [DONE]\n\n")
        return response

    async def _stream_events(
        self, body: dict[str, Any], prompt: list[int], *, chat: bool
    ) -> AsyncIterator[dict[str, Any]]:
        head: dict[str, Any] = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": body["model"]}
        wants_ids = body.get("return_token_ids", False)
        if chat:
            head |= {"id": "chatcmpl-1", "object": "chat.completion.chunk"}
            delta = {"role": "assistant", "content": ""}
            first = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}
            yield head | {"choices": [first]} | ({"prompt_token_ids": prompt} if wants_ids else {})
        ids, texts, finish, stop = self._generate(body, self._sample(prompt))
        marks = [*range(0, len(ids), max(1, self.pieces)), len(ids)]
        for number, (begin, end) in enumerate(pairwise(marks)):
            new, last = ids[begin:end], end == len(ids)
            text = "".join(texts[begin:end])
            choice: dict[str, Any] = {"index": 0, "logprobs": None}
            choice |= {"delta": {"content": text}} if chat else {"text": text}
            choice |= {"finish_reason": finish if last else None, "stop_reason": stop if last else None}
            if body.get("logprobs"):
                choice["logprobs"] = self._logprobs(ids, begin, end, chat=chat)
            choice["token_ids"] = new if wants_ids else None
            if not chat:
                choice["prompt_token_ids"] = prompt if wants_ids and not number else None
            yield head | {"choices": [choice]}
        counted = len(prompt) + (0 if chat else self.adds)
        counts = {"prompt_tokens": counted, "total_tokens": counted + len(ids), "completion_tokens": len(ids)}
        yield head | {"choices": [], "usage": counts}

    def _sample(self, prompt: list[int]) -> list[int]:
        if self.sample is not None:
            return self.sample(prompt)
        text = self.decode(prompt)
        return [*self.chat.encode(self.say(Asked(text, text, 0, 0))), self.chat.end_id]

    def _generate(self, body: dict[str, Any], sampled: list[int]) -> tuple[list[int], list[str], str, str | None]:
        """The ids up to their end, the text that is sent with each, why it ended, and by which stop sequence."""
        stops = body.get("stop") or []
        kept = body.get("include_stop_str_in_output", False)
        held = 0 if kept else max((len(stop) for stop in stops), default=1) - 1
        sent, texts = 0, list[str]()
        for count, token in enumerate(sampled[: body["max_tokens"]], 1):
            ids = sampled[:count]
            if token in self.chat.end_ids:
                whole = self._spell(ids[:-1])
                return ids, [*texts, whole[sent:]], "stop", None
            whole = self._spell(ids)
            if matched := next((stop for stop in stops if stop in whole), None):
                whole = whole[: whole.index(matched) + (len(matched) if kept else 0)]
                return ids, [*texts, whole[sent:]], "stop", matched
            last = count == min(len(sampled), body["max_tokens"])
            upto = len(whole) if last else max(sent, len(whole) - held)
            texts.append(whole[sent:upto])
            sent = upto
        return sampled[: body["max_tokens"]], texts, "length", None

    def _spell(self, ids: list[int]) -> str:
        """The text of ids; what may be the first half of a character is not part of it."""
        whole = b"".join(self.chat.token_bytes[i] for i in ids)
        text = whole.decode("utf-8", "replace")
        return text.rstrip(_HALF) if text.endswith(_HALF) else text

    def _logprobs(self, ids: list[int], begin: int, end: int, *, chat: bool) -> dict[str, Any]:
        tokens = [self._decode_one(ids, at) for at in range(begin, end)]
        values = [-token / 1000 for token in ids[begin:end]]
        if chat:
            entries = zip(tokens, values, strict=True)
            return {
                "content": [
                    {"token": t, "logprob": v, "bytes": list(t.encode()), "top_logprobs": []} for t, v in entries
                ]
            }
        offsets = [sum(map(len, tokens[:n])) for n in range(len(tokens))]
        top = [{t: v} for t, v in zip(tokens, values, strict=True)]
        return {"text_offset": offsets, "token_logprobs": values, "tokens": tokens, "top_logprobs": top}

    def _decode_one(self, ids: list[int], at: int) -> str:
        alone = self.decode([ids[at]])
        if not self.corrects or not alone.endswith(_HALF):
            return alone
        for before in range(1, min(at, 4) + 1):
            context = ids[at - before : at]
            whole = self.decode([*context, ids[at]])
            if whole.endswith(_HALF):
                continue
            clean = len(context)
            while clean and self.decode([context[clean - 1]]).endswith(_HALF):
                clean -= 1
            prefix = self.decode(context[:clean])
            return whole.removeprefix(prefix)
        return ""


@dataclass
class SglangServer(VllmServer):
    """The server of SGLang, in a version that returns token ids (pull request 30917)."""

    async def _openai(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        if "messages" in body and body.get("return_token_ids"):
            said = (
                "return_token_ids is not supported with streaming on /v1/chat/completions. Please set stream=false "
                "when using return_token_ids=true."
            )
            error = {"object": "error", "message": said, "type": "BadRequest", "param": None, "code": 400}
            return web.json_response(error, status=400)
        return await super()._openai(request, body)

    async def _stream_events(
        self, body: dict[str, Any], prompt: list[int], *, chat: bool
    ) -> AsyncIterator[dict[str, Any]]:
        async for event in super()._stream_events(body, prompt, chat=chat):
            for choice in event["choices"]:
                if "stop_reason" in choice:
                    matched = choice.pop("stop_reason")
                    ended = choice["finish_reason"] == "stop"
                    choice["matched_stop"] = matched if matched or not ended else self.chat.end_id
                if not chat and choice["logprobs"]:
                    choice["logprobs"]["text_offset"] = [-1 for _ in choice["logprobs"]["tokens"]]
                for name in ("token_ids", "prompt_token_ids"):
                    if choice.get(name) is None:
                        choice.pop(name, None)
            yield event
