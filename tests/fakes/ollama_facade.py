"""A FACADE with Ollama's native interface over a real llama-server. It is not Ollama, and proves nothing about Ollama.

    with serving(OllamaFacade(llama_server_url)) as facade:
        model = Ollama("demo-model", Server(base_url=facade.url))

Ollama itself cannot be had from a package registry. Its engine is of the family of llama-server's, so the facade has a
real model behind it; its own part is what Ollama's source (2026-08) does with prompts, logprobs, limits and errors:

- `/api/chat` with the server's template, `/api/generate` with `raw`; NDJSON; sampling defaults of its own;
- a prompt longer than `num_ctx` loses its beginning without a word, unless `truncate` is false;
- `logprobs` have no ids, no entry for a token without text, and U+FFFD for each part of a character;
- one request at a time (`parallel`), others wait, and beyond `queue` there is a 503;
- a failure in mid-stream is a line `{"error": ...}` under HTTP 200; a reply that repeats itself ends without `done`.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Self

import aiohttp
from aiohttp import web

NAME = "demo-model:latest"
VERSION = "0.0.0-facade"
QUOTA = (429, "you have reached your weekly usage limit, upgrade for higher limits")
SLOTS = (429, "timed out waiting for a concurrent request slot")
BUSY = (503, "server busy, please try again.  maximum pending requests exceeded")
_DEFAULTS = {"temperature": 0.8, "top_k": 40, "top_p": 0.9, "min_p": 0.0, "repeat_penalty": 1.0, "num_predict": -1}
_NAMES = {
    **{name: name for name in ("temperature", "top_k", "top_p", "min_p", "typical_p", "seed", "stop")},
    **{name: name for name in ("repeat_penalty", "presence_penalty", "frequency_penalty")},
    "num_predict": "n_predict",
}
"""Options, and what llama-server calls them; Ollama leaves unknown ones out with a line in its log."""
_MOST_REPEATED = 30
_TRAINED = 4096


@dataclass
class OllamaFacade:
    """The facade; its fields say what it does beside serving."""

    upstream: str
    """Base URL of the llama-server."""
    parallel: int = 1
    queue: int = 512
    grammar: str = ""
    """Makes the model write a given text; no part of Ollama's interface."""
    refusals: list[tuple[int, str]] = field(default_factory=list)
    """Status and error of the next completions, one each."""
    breaks_after: int = -1
    """Lines after which the next completions fail inside of the stream; below zero, none does."""
    requests: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    """Path and body of each request."""
    waiting: int = 0
    url: str = ""
    _runner: web.AppRunner | None = None
    _session: aiohttp.ClientSession | None = None
    _places: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(1))

    async def start(self) -> Self:
        """Listen on a free port of 127.0.0.1."""
        self._places = asyncio.Semaphore(self.parallel)
        # llama-server closes connections behind a stream.
        self._session = aiohttp.ClientSession(self.upstream, connector=aiohttp.TCPConnector(force_close=True, limit=0))
        app = web.Application()
        app.router.add_get("/api/version", self._version)
        app.router.add_get("/api/tags", self._tags)
        app.router.add_post("/api/show", self._show)
        app.router.add_post("/api/chat", self._complete)
        app.router.add_post("/api/generate", self._complete)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2, handler_cancellation=True)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def stop(self) -> None:
        """Close all connections."""
        if self._runner is not None and self._session is not None:
            await self._runner.cleanup()
            await self._session.close()

    async def _version(self, request: web.Request) -> web.Response:
        return web.json_response({"version": VERSION})

    async def _tags(self, request: web.Request) -> web.Response:
        return web.json_response({"models": [{"name": NAME, "model": NAME, "size": 1, "digest": "0" * 64}]})

    async def _show(self, request: web.Request) -> web.Response:
        body = await self._body(request)
        if missing := _missing(body):
            return missing
        info = {"general.architecture": "qwen3", "qwen3.context_length": _TRAINED}
        return web.json_response({"capabilities": ["completion"], "model_info": info})

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        body = await self._body(request)
        if missing := _missing(body):
            return missing
        if not 0 <= body.get("top_logprobs", 0) <= 20:
            return _refused(400, "top_logprobs must be between 0 and 20")
        if self.refusals:
            return _refused(*self.refusals.pop(0))
        chat = request.path == "/api/chat"
        prompt = await self._rendered(body["messages"]) if chat else body["prompt"]
        if not chat and not body.get("raw"):
            prompt = await self._rendered([{"role": "user", "content": prompt}])
        if body.get("_debug_render_only"):
            return web.json_response({"model": body["model"], "_debug_info": {"rendered_template": prompt}})
        if self.waiting >= self.queue + self.parallel:
            return _refused(*BUSY)
        self.waiting += 1
        try:
            async with self._places:
                return await self._answer(request, body, prompt, chat)
        finally:
            self.waiting -= 1

    async def _answer(self, request: web.Request, body: dict[str, Any], prompt: str, chat: bool) -> web.StreamResponse:
        options = body.get("options", {})
        ids = (await self._ask("/tokenize", {"content": prompt, "parse_special": True}))["tokens"]
        most = min(options.get("num_ctx", _TRAINED), _TRAINED)
        if len(ids) > most:
            if body.get("truncate") is False:
                return _refused(400, "the input length exceeds the context length")
            ids = ids[-most // 2 :]
        if body.get("stream") is False:
            whole = [line async for line in self._lines(body, options, ids)]
            said = "".join(line["text"] for line in whole)
            return web.json_response(_shaped(body, whole[-1] | {"text": said}, chat))
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        await response.prepare(request)
        try:
            async with aclosing(self._lines(body, options, ids)) as lines:
                sent = 0
                async for line in lines:
                    if sent == self.breaks_after:
                        raise aiohttp.ClientError
                    await response.write(json.dumps(_shaped(body, line, chat)).encode() + b"\n")
                    sent += 1
        except (aiohttp.ClientError, OSError):
            error = "an error was encountered while running the model: unexpected EOF"
            await response.write(json.dumps({"error": error}).encode() + b"\n")
        return response

    async def _lines(
        self, body: dict[str, Any], options: dict[str, Any], ids: list[int]
    ) -> AsyncIterator[dict[str, Any]]:
        """What the model says, a line for each piece of text; the last one is `done`."""
        asked = {_NAMES[name]: value for name, value in (_DEFAULTS | options).items() if name in _NAMES}
        asked |= {"prompt": ids, "stream": True, "n_probs": 1, "grammar": self.grammar}
        begun, seen, last, repeated = time.monotonic_ns(), 0, "", 0
        assert self._session is not None
        async with self._session.post("/completion", json=asked) as answer:
            async for raw in answer.content:
                if not raw.startswith(b"data: "):
                    continue
                event = json.loads(raw[6:])
                if event["stop"]:
                    reason = "length" if event["stop_type"] == "limit" else "stop"
                    counts = {"prompt_eval_count": event["tokens_evaluated"], "eval_count": event["tokens_predicted"]}
                    times = {"total_duration": time.monotonic_ns() - begun, "load_duration": 1, "eval_duration": 1}
                    yield {"text": "", "done": True, "done_reason": reason, "prompt_eval_duration": 1} | counts | times
                    return
                parts, seen = event["tokens_predicted"] - seen, event["tokens_predicted"]
                if not event["content"]:
                    continue
                repeated = repeated + 1 if event["content"].strip() == last else 0
                last = event["content"].strip()
                if repeated > _MOST_REPEATED:
                    return
                line = {"text": event["content"], "done": False}
                if body.get("logprobs"):
                    line["logprobs"] = _weights(event["completion_probabilities"], parts)
                yield line

    async def _rendered(self, messages: list[dict[str, str]]) -> str:
        return (await self._ask("/apply-template", {"messages": messages}))["prompt"]

    async def _ask(self, path: str, body: dict[str, Any]) -> Any:
        assert self._session is not None
        async with self._session.post(path, json=body) as answer:
            return await answer.json()

    async def _body(self, request: web.Request) -> dict[str, Any]:
        body = await request.json()
        self.requests.append((request.path, body))
        return body


def _missing(body: dict[str, Any]) -> web.Response | None:
    if body["model"] in (NAME, NAME.removesuffix(":latest")):
        return None
    return _refused(404, f"model '{body['model']}' not found")


def _refused(status: int, error: str) -> web.Response:
    return web.json_response({"error": error}, status=status)


def _shaped(body: dict[str, Any], line: dict[str, Any], chat: bool) -> dict[str, Any]:
    head = {"model": body["model"], "created_at": "2026-01-01T00:00:00.000000Z"}
    text = line.pop("text")
    return head | ({"message": {"role": "assistant", "content": text}} if chat else {"response": text}) | line


def _weights(entries: list[dict[str, Any]], parts: int) -> list[dict[str, Any]]:
    """Entries of one line: without ids, and of a character in several tokens each part as U+FFFD."""
    texts = [entry["token"] for entry in entries]
    if parts > 1 and any(not text.isascii() for text in texts):
        return [_weight("�", entries[0]["logprob"]) for _ in range(parts)]
    return [_weight(text, entry["logprob"]) for text, entry in zip(texts, entries, strict=True)]


def _weight(text: str, logprob: float) -> dict[str, Any]:
    return {"token": text, "logprob": logprob, "bytes": list(text.encode())}
