"""Model servers in this process: the wire formats of Ollama, OpenAI and llama-server, with faults.

    async with ModelServer(say=lambda asked: "hello") as server:      # in the running loop
        model = Ollama("toy", Server(base_url=server.url))
        server.fault("/api/chat", status=503, times=2)

    with serving(ModelServer(latency_s=lambda n: 0.5)) as server:    # in a thread, for benchmarks and commands
        ...

It has no model: `say` makes the reply from the text that is asked. Tokens are runs of word characters, or single
other ones; ids are given in the order in which tokens are first seen. Every request is in `server.requests`.
Longer than a file should be, because it is one server: all interfaces share tokens, key check and faults.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol, Self, TypeVar

from aiohttp import web

KEY = "sk-decoy-0123456789abcdef"
_TOKEN = re.compile(r"<\|?[a-z_/]+\|?>|\d|[^\W\d_]+|\s|.", re.DOTALL)


class _Starting(Protocol):
    async def start(self) -> Any: ...
    async def stop(self) -> None: ...


_Server = TypeVar("_Server", bound=_Starting)


@dataclass(frozen=True)
class Asked:
    """What a request asks, in one form for all interfaces."""

    text: str
    """The whole prompt as the model would see it."""
    last: str
    """Content of the last message, or the prompt."""
    turn: int
    """Assistant messages so far."""
    number: int
    """Count of completions before this one."""


@dataclass
class Fault:
    """What goes wrong with requests to a path, `times` times (-1: always)."""

    path: str
    status: int = 0
    body: str | bytes = ""
    headers: dict[str, str] = field(default_factory=dict)
    how: str = ""
    """`cut` (close in mid-reply), `hang`, `stall`, `end` (end without the last event), `error` (an error in
    mid-stream; also `error cut` and `error stall`), `html`, `binary`, `nothing` (an empty answer), `other`
    (JSON of another service), `drop` (close before the answer)."""
    times: int = 1
    after: int = 1
    """Events that are sent before a fault in mid-stream."""


_FAULT: ContextVar[Fault | None] = ContextVar("fault", default=None)
"""Of the request that is being answered."""


@dataclass
class Seen:
    """One request that arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: dict[str, Any]


@dataclass
class ModelServer:
    """The server; its fields say what it can do."""

    say: Callable[[Asked], str] = lambda asked: "ok"
    think: str = ""
    """Thinking that comes apart from the text."""
    names: tuple[str, ...] = ("toy", "toy:latest")
    key: str | None = None
    """The key that it wants."""
    latency_s: Callable[[int], float] | None = None
    """Seconds before reply number n; no computing."""
    pieces: int = 0
    """Tokens an event; 0 is one."""
    logprobs: bool = True
    counts: bool = True
    """Whether it reports prompt tokens."""
    adds: int = 0
    """Tokens of its own that it puts before a prompt that is given raw or as ids."""
    continues: bool = True
    """Whether a trailing assistant message is gone on with; else a new turn is opened without a word."""
    renders: bool = True
    """Whether Ollama's `_debug_render_only` is there."""
    opens_think: bool = False
    """Whether the template opens a think block."""
    like_llama: bool = False
    """Whether it closes a connection behind a stream without a word, and knows no messages in `/tokenize`."""
    context: int = 4096
    stream_error: bytes = b""
    """The whole event of an error in mid-stream; empty is the server's own."""
    requests: list[Seen] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    in_flight: int = 0
    most_in_flight: int = 0
    completions: int = 0
    busy_s: float = 0.0
    """Seconds that all requests spent here together."""
    url: str = ""
    _vocabulary: dict[str, int] = field(default_factory=dict)
    _runner: web.AppRunner | None = None

    def routes(self) -> dict[str, Callable[..., Any]]:
        """What answers on each path."""
        return {
            "/api/tags": self._tags,
            "/api/show": self._show,
            "/api/chat": self._ollama,
            "/api/generate": self._ollama,
            "/v1/models": self._models,
            "/v1/chat/completions": self._openai,
            "/v1/completions": self._openai,
            "/props": self._props,
            "/tokenize": self._tokenize,
            "/detokenize": self._detokenize,
            "/apply-template": self._template,
            "/completion": self._llama,
        }

    async def start(self, tls: ssl.SSLContext | None = None) -> Self:
        """Listen on a free port of 127.0.0.1."""
        app = web.Application(middlewares=[self._gate], client_max_size=64 * 1024 * 1024)
        for path, handler in self.routes().items():
            app.router.add_route("*", path, handler)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=tls, backlog=2048)
        await site.start()
        port = self._runner.addresses[0][1]
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{port}"
        return self

    async def stop(self) -> None:
        """Close all connections."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *error: object) -> None:
        await self.stop()

    def fault(self, path: str, **how: Any) -> None:
        """Let requests to a path go wrong (see `Fault`)."""
        self.faults.append(Fault(path, **how))

    def sent(self, path: str) -> list[dict[str, Any]]:
        """Bodies of the requests to a path."""
        return [seen.body for seen in self.requests if seen.path == path]

    # tokens and templates

    def encode(self, text: str) -> list[int]:
        """Ids of a text."""
        return [self._vocabulary.setdefault(piece, len(self._vocabulary)) for piece in _TOKEN.findall(text)]

    def decode(self, ids: list[int]) -> str:
        """Text of ids."""
        names = list(self._vocabulary)
        return "".join(names[i] for i in ids)

    def render(self, messages: list[dict[str, str]], *, go_on: bool = False) -> str:
        """Messages in a template like ChatML; with `go_on` the last one stays open."""
        text = "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in messages)
        if go_on and messages and messages[-1]["role"] == "assistant":
            return text.removesuffix("<|im_end|>\n")
        return text + "<|im_start|>assistant\n" + ("<think>\n" if self.opens_think else "")

    # what all interfaces share

    @web.middleware
    async def _gate(self, request: web.Request, handler: Any) -> web.StreamResponse:
        raw = await request.read()
        body = json.loads(raw) if raw else {}
        self.requests.append(Seen(request.method, request.path, dict(request.headers), body))
        if self.key is not None and request.headers.get("Authorization") != f"Bearer {self.key}":
            said = f"bad key {request.headers.get('Authorization')}"
            return web.json_response({"error": {"message": said, "code": "invalid_api_key"}}, status=401)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        begun = asyncio.get_running_loop().time()
        try:
            fault = self._due(request.path)
            _FAULT.set(fault)
            if fault is not None and (answer := await self._early(fault, request)) is not None:
                return answer
            answer = await handler(request, body)
            if self.like_llama and not answer.prepared:
                answer.headers["Server"] = "llama.cpp"
            return answer
        finally:
            self.in_flight -= 1
            self.busy_s += asyncio.get_running_loop().time() - begun

    def _due(self, path: str) -> Fault | None:
        for fault in self.faults:
            if fault.times != 0 and fault.path == path:
                fault.times -= 1
                return fault
        return None

    async def _early(self, fault: Fault, request: web.Request) -> web.StreamResponse | None:
        if fault.how == "drop":
            assert request.transport is not None
            request.transport.abort()
            raise asyncio.CancelledError
        if fault.how == "hang":
            await asyncio.sleep(3600)
        if fault.how in ("html", "binary"):
            body = b"<html><body>Welcome</body></html>" if fault.how == "html" else b"\xff\xfe\x00{\n"
            return web.Response(body=body, content_type="text/html")
        if fault.how in ("nothing", "other"):
            return web.Response(body=b'{"foo": [1, 2]}' if fault.how == "other" else b"")
        if fault.status:
            body = fault.body if isinstance(fault.body, bytes) else fault.body.encode()
            return web.Response(status=fault.status, body=body, headers=fault.headers)
        return None

    async def _reply(self, prompt: str, last: str, turn: int, stops: list[str], most: int) -> tuple[str, str, str]:
        """The text, why it ends (`stop`, `length`, `word`), and the stop sequence."""
        number, self.completions = self.completions, self.completions + 1
        if self.latency_s is not None:
            await asyncio.sleep(self.latency_s(number))
        text, why, word = self.say(Asked(prompt, last, turn, number)), "stop", ""
        found = [(text.find(stop), stop) for stop in stops if stop in text]
        if found:
            at, word = min(found)
            text, why = text[:at], "word"
        tokens = _TOKEN.findall(text)
        if len(tokens) > most:
            text, why, word = "".join(tokens[:most]), "length", ""
        return text, why, word

    def _groups(self, text: str) -> Iterator[list[str]]:
        tokens, size = _TOKEN.findall(text), max(1, self.pieces)
        for start in range(0, len(tokens), size):
            yield tokens[start : start + size]

    async def _stream(self, request: web.Request, events: AsyncIterator[bytes], error: bytes) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        if self.like_llama:
            response.headers["Server"] = "llama.cpp"
        await response.prepare(request)
        fault = _FAULT.get()
        at = 0
        async for event in events:
            if fault is not None and at == fault.after:
                if fault.how.startswith("error"):
                    await response.write(self.stream_error or error)
                if fault.how.endswith("cut"):
                    assert request.transport is not None
                    await asyncio.sleep(0.05)  # what was written is to arrive
                    request.transport.abort()
                    return response
                if fault.how in ("error", "end"):
                    return response
                if fault.how.endswith("stall"):
                    await asyncio.sleep(3600)
            await response.write(event)
            at += 1
        if self.like_llama:
            await response.write_eof()
            assert request.transport is not None
            request.transport.close()
        return response

    def _unknown(self, name: object) -> bool:
        return name not in self.names

    # Ollama

    async def _tags(self, request: web.Request, body: dict[str, Any]) -> web.Response:
        return web.json_response({"models": [{"name": n, "model": n} for n in self.names if ":" in n]})

    async def _show(self, request: web.Request, body: dict[str, Any]) -> web.Response:
        can = ["completion", "thinking"] if self.think else ["completion"]
        return web.json_response({"capabilities": can, "model_info": {"toy.context_length": self.context}})

    async def _ollama(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        if self._unknown(body["model"]):
            return web.json_response({"error": f"model '{body['model']}' not found"}, status=404)
        options, chat = body.get("options", {}), request.path == "/api/chat"
        messages = body.get("messages", [])
        prompt = self.render(messages) if chat else body["prompt"]
        if body.get("_debug_render_only") and self.renders:
            return web.json_response({"model": body["model"], "_debug_info": {"rendered_template": prompt}})
        if len(self.encode(prompt)) > options.get("num_ctx", 4096) and body.get("truncate") is False:
            return web.json_response({"error": "the input length exceeds the context length"}, status=400)
        last = messages[-1]["content"] if messages else prompt
        turn = sum(m["role"] == "assistant" for m in messages)
        text, why, _ = await self._reply(prompt, last, turn, options.get("stop", []), options.get("num_predict", 99))

        if body.get("stream") is False:
            return web.json_response({"message": {"content": text}, "response": text, "done": True})

        async def events() -> AsyncIterator[bytes]:
            if chat and self.think and body.get("think") is not False:
                for group in self._groups(self.think):
                    yield line({"message": {"role": "assistant", "content": "", "thinking": "".join(group)}}, group)
            for group in self._groups(text):
                said = "".join(group)
                yield line({"message": {"role": "assistant", "content": said}} if chat else {"response": said}, group)
            counts = {"prompt_eval_count": len(self.encode(prompt)) + (0 if chat else self.adds)} if self.counts else {}
            ended = {"done": True, "done_reason": "length" if why == "length" else "stop", "total_duration": 1}
            tail = {"message": {"role": "assistant", "content": ""}} if chat else {"response": ""}
            yield line(tail | ended | counts | {"eval_count": len(_TOKEN.findall(text)) + 1})

        def line(what: dict[str, Any], group: list[str] | None = None) -> bytes:
            head = {"model": body["model"], "created_at": "2026-01-01T00:00:00Z", "done": False}
            if group and body.get("logprobs") and self.logprobs:
                what = what | {"logprobs": self._weights(group)}
            return json.dumps(head | what).encode() + b"\n"

        return await self._stream(request, events(), b'{"error":"an error was encountered while running the model"}\n')

    def _weights(self, group: list[str]) -> list[dict[str, Any]]:
        return [{"token": t, "logprob": -len(t) / 10, "bytes": list(t.encode()), "top_logprobs": []} for t in group]

    # OpenAI (for vLLM and SGLang see `vllm_server.py`)

    async def _models(self, request: web.Request, body: dict[str, Any]) -> web.Response:
        own = {"owned_by": "llamacpp", "meta": {"n_ctx": self.context}} if self.like_llama else {}
        return web.json_response({"object": "list", "data": [{"id": n, "object": "model"} | own for n in self.names]})

    async def _openai(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        if self._unknown(body["model"]) and not self.like_llama:
            error = {"message": f"The model `{body['model']}` does not exist", "code": "model_not_found"}
            return web.json_response({"error": error}, status=404)
        if "messages" not in body:
            return web.json_response({"error": {"message": "prompts are text here"}}, status=400)
        messages = body["messages"]
        prompt = self.render(messages, go_on=self.continues and body.get("continue_final_message", False))
        if len(self.encode(prompt)) > self.context:
            said = f"This model's maximum context length is {self.context} tokens"
            return web.json_response({"error": {"message": said, "code": "context_length_exceeded"}}, status=400)
        turn = sum(m["role"] == "assistant" for m in messages)
        most = body.get("max_tokens") or body.get("max_completion_tokens") or 99
        text, why, word = await self._reply(prompt, messages[-1]["content"], turn, body.get("stop", []), most)
        events = self._openai_events(body, prompt, text, why, word)
        error = b'data: {"error": {"message": "the engine died", "type": "InternalServerError"}}\n\n'
        return await self._stream(request, events, error)

    async def _openai_events(
        self, body: dict[str, Any], prompt: str, text: str, why: str, word: str
    ) -> AsyncIterator[bytes]:
        def event(choice: dict[str, Any] | None, **more: Any) -> bytes:
            choices = [] if choice is None else [{"index": 0, "finish_reason": None} | choice]
            whole = {"id": "c-1", "model": body["model"], "choices": choices} | more
            return f"data: {json.dumps(whole)}\n\n".encode()

        yield b": keep-alive\n\n"
        yield event({"delta": {"role": "assistant", "content": ""}})
        sampled = 0
        for name, words in (("reasoning_content", self.think), ("content", text)):
            for group in self._groups(words):
                sampled += len(group)
                choice: dict[str, Any] = {"delta": {name: "".join(group)}}
                if body.get("logprobs") and self.logprobs:
                    choice["logprobs"] = {"content": self._weights(group)}
                yield event(choice)
        finish = "length" if why == "length" else "stop"
        yield event({"delta": {}, "finish_reason": finish, "stop_reason": word or None})
        if self.counts and body.get("stream_options", {}).get("include_usage"):
            counts = {"prompt_tokens": len(self.encode(prompt)), "completion_tokens": sampled}
            yield event(None, usage=counts)
        yield b"data: [DONE]\n\n"

    async def _tokenize(self, request: web.Request, body: dict[str, Any]) -> web.Response:
        if "content" not in body and not self.like_llama:
            return web.json_response({"error": {"message": "no such path"}}, status=404)
        text = body.get("content", "")  # llama-server has this path with other fields than vLLM
        plain = not body.get("parse_special", True)
        ids = [i for char in text for i in self.encode(char)] if plain else self.encode(text)
        return web.json_response({"tokens": ids, "count": len(ids)})

    # llama-server

    async def _detokenize(self, request: web.Request, body: dict[str, Any]) -> web.Response:
        return web.json_response({"content": self.decode(body["tokens"])})

    async def _props(self, request: web.Request, body: dict[str, Any]) -> web.Response:
        settings = {"n_ctx": self.context, "params": {}}
        path = f"/models/{self.names[0]}.gguf"
        return web.json_response({"default_generation_settings": settings, "model_path": path, "total_slots": 4})

    async def _template(self, request: web.Request, body: dict[str, Any]) -> web.Response:
        return web.json_response({"prompt": self.render(body["messages"])})

    async def _llama(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        ids: list[int] = body["prompt"]
        if len(ids) > self.context:
            said = f"request ({len(ids)} tokens) exceeds the available context size ({self.context} tokens)"
            error = {"code": 400, "message": said, "type": "exceed_context_size_error", "n_ctx": self.context}
            return web.json_response({"error": error}, status=400)
        prompt = self.decode(ids)
        text, why, word = await self._reply(prompt, prompt, 0, body["stop"], body["n_predict"])

        async def events() -> AsyncIterator[bytes]:
            predicted = 0
            kept_back = kept_back_of(text, body["stop"]) if why == "length" else ""
            for token in _TOKEN.findall(text.removesuffix(kept_back)):
                parts = len(token.encode()) - len(token) + 1 if not token.isascii() else 1
                predicted += parts  # of a character in several tokens only the last is sent
                yield event(token, [token])
            behind = {"word": _TOKEN.findall(word), "stop": ["<|im_end|>"], "length": _TOKEN.findall(kept_back)}
            for token in behind[why]:
                predicted += 1
                yield event("", [token])
            names = {"word": "word", "stop": "eos", "length": "limit"}
            yield data(
                {"content": "", "tokens": [], "stop": True, "stop_type": names[why], "stopping_word": word}
                | {"model": self.names[0], "tokens_predicted": predicted, "tokens_evaluated": len(ids) + self.adds}
                | {"truncated": False}
            )

        def event(content: str, tokens: list[str]) -> bytes:
            own = {"index": 0, "content": content, "tokens": [i for t in tokens for i in self.encode(t)], "stop": False}
            if body.get("n_probs") and self.logprobs:
                shown = self._weights([content])  # of a token that is kept back, the text is, too
                own["completion_probabilities"] = [
                    {"id": self.encode(t)[0]} | w for t, w in zip(tokens, shown, strict=True)
                ]
            return data(own)

        def data(what: dict[str, Any]) -> bytes:
            return f"data: {json.dumps(what)}\n\n".encode()

        return await self._stream(request, events(), data({"error": {"code": 500, "message": "decode failed"}}))


def kept_back_of(text: str, stops: list[str]) -> str:
    """The end of a text that may begin a stop sequence: llama-server never sends it if the limit comes."""
    begun = [stop[:size] for stop in stops for size in range(1, len(stop)) if text.endswith(stop[:size])]
    return max(begun, key=len, default="")


@contextlib.contextmanager
def serving(server: _Server) -> Iterator[_Server]:
    """The server, which is started and stopped in a thread with a loop of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(server.start(), loop).result(10)
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
