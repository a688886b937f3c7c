"""The embedded demo model, `demo-model`: a tiny network that needs no server and knows ten small problems by heart.

It exists to show foretrace at work. It knows nothing else, and what it writes is never training data.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import msgspec
import numpy as np
from threadpoolctl import ThreadpoolController

from foretrace.core.completion import Capabilities, ChatMessage, Completion, FinishReason, Request
from foretrace.core.errors import ModelError, UsageError
from foretrace.core.trace import DEMO_MODEL, Usage
from foretrace.models.base import ClosingModel, Server
from foretrace.models.demo_model import CHECKPOINT
from foretrace.models.demo_model.network import CHUNK_TOKENS, Floats, KVCache, Network, NetworkConfig, read_weights
from foretrace.models.demo_model.sampling import ReplyBuilder, log_softmax, make_rng, sample_token
from foretrace.models.demo_model.tokenizer import ChatTokenizer

NAME = DEMO_MODEL
_MAX_CACHED_CHUNKS = 512
"""Chunks of prompts whose keys and values are cached, about 100 kB each. Prompts share chunks because the turns of an
episode start alike."""
_T = TypeVar("_T")


class Demo(ClosingModel):
    """The demo model (see `base.ChatModel` and `base.TokenModel`).

    Logprobs are natural-log probabilities of the network itself, which it samples from at temperature 1 without `top_p`
    and `top_k`. The same prompt, seed and sampling give the same reply, regardless of what else is running. It computes
    in its own thread, so that it does not block the event loop.
    """

    endpoint = ""

    def __init__(self, name: str = "", server: Server | None = None) -> None:
        if name not in ("", NAME):
            raise UsageError(f"the demo model has no variants: give demo, not demo:{name}")
        self.name = self.spec = NAME
        server = server or Server()
        if server.list_settings_except("context_length"):
            what = "base URL, key, options, timeout or retries"
            raise UsageError(f"the demo model is part of foretrace: it takes no {what}")
        self._context_length = server.context_length
        self._chunks: OrderedDict[tuple[int, ...], tuple[Floats, Floats]] = OrderedDict()
        self._thread: ThreadPoolExecutor | None = None

    @property
    def settings(self) -> Mapping[str, Any]:
        return {} if self._context_length is None else {"context_length": self._context_length}

    async def probe(self) -> Capabilities:
        await self._run_in_thread(load_checkpoint)
        return Capabilities(
            logprobs=True,
            token_ids=True,
            token_prompts=True,
            continuation=True,
            context_length=self.context_length,
            reasons={"reasoning_apart": "it thinks inside of the text", "knowledge": "a demo: it knows ten problems"},
        )

    @property
    def context_length(self) -> int:
        """The most tokens of a prompt and its completion together."""
        _, network = load_checkpoint()
        maximum = network.config.max_position_embeddings
        if self._context_length is None:
            return maximum
        if not 0 < self._context_length <= maximum:
            raise UsageError(f"the demo model has a context of 1 to {maximum} tokens, not {self._context_length}")
        return self._context_length

    async def complete(self, request: Request) -> Completion:
        return await self._run_in_thread(lambda: self._complete(request))

    async def tokenize(self, text: str, *, special: bool = False) -> list[int]:
        return load_checkpoint()[0].encode(text, special=special)

    async def render(self, messages: Sequence[ChatMessage]) -> list[int]:
        return load_checkpoint()[0].render(messages)

    async def close(self) -> None:
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)
            self._thread = None

    async def _run_in_thread(self, work: Callable[[], _T]) -> _T:
        """Run in the model's thread. One call at a time is fastest, since Python computes in one thread at a time."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix=NAME)
        return await asyncio.get_running_loop().run_in_executor(self._thread, lambda: _run_single_threaded(work))

    def _complete(self, request: Request) -> Completion:
        began = time.perf_counter()
        text, network = load_checkpoint()
        if unknown := [name for name, value in request.sampling.extra.items() if value is not None]:
            raise UsageError(f"the demo model has no option {unknown[0]!r}")
        if request.prompt_ids is None:
            prompt = text.render(request.messages, request.prefill)
        else:
            prompt, size = list(request.prompt_ids), network.config.vocab_size
            if unknown := [number for number in prompt if not 0 <= number < size]:
                raise UsageError(f"the demo model has ids 0 to {size - 1}, not {unknown[0]}")
        if not prompt:
            raise UsageError("an empty prompt: give messages or ids")
        left = self.context_length - len(prompt)
        if left < 1:
            cause = f"{NAME}: the prompt has {len(prompt)} tokens, and the context {self.context_length}"
            raise ModelError(f"{cause}; give it a shorter problem or fewer turns", kind="overflow")
        reply, finish = self._generate(prompt, request, min(left, request.sampling.max_tokens))
        return Completion(
            text=reply.text,
            finish=finish,
            stop=reply.stop,
            token_ids=tuple(reply.ids),
            logprobs=tuple(reply.logprobs) if request.logprobs else (),
            pieces=tuple(reply.pieces) if request.logprobs else (),
            prompt_token_ids=tuple(prompt),
            exact="token",
            usage=Usage(prompt_tokens=len(prompt), completion_tokens=len(reply.ids)),
            seconds=time.perf_counter() - began,
            model=NAME,
        )

    def _generate(self, prompt: list[int], request: Request, max_tokens: int) -> tuple[ReplyBuilder, FinishReason]:
        text, network = load_checkpoint()
        reply = ReplyBuilder(request.stop)
        rng = make_rng(prompt, request.sampling.seed)
        cache = KVCache(network.config)
        logits = self._prefill(prompt, cache)
        for left in range(max_tokens, 0, -1):
            logprobs = log_softmax(logits)
            token = sample_token(logprobs, request.sampling, rng)
            if reply.add(token, float(logprobs[token]), text.token_bytes[token]):
                return reply, "stop_sequence"
            if token in text.end_ids:
                reply.finish()
                return reply, "stop"
            if left > 1:
                logits = network.forward([token], cache)[-1]
        reply.finish()
        return reply, "length"

    def _prefill(self, prompt: list[int], cache: KVCache) -> Floats:
        """Read a prompt into the cache, chunk by chunk; returns the logits of the next token, (vocabulary,). Chunks are
        cached for later prompts, except the last, whose logits are needed."""
        _, network = load_checkpoint()
        logits = np.empty(0, np.float32)
        for begin in range(0, len(prompt), CHUNK_TOKENS):
            end = begin + CHUNK_TOKENS
            key = tuple(prompt[:end])
            if end < len(prompt) and key in self._chunks:
                self._chunks.move_to_end(key)
                cache.append_chunk(self._chunks[key])
                continue
            logits = network.forward(prompt[begin:end], cache)[-1]
            if end < len(prompt):
                self._chunks[key] = cache.copy_chunk(begin, end)
                if len(self._chunks) > _MAX_CACHED_CHUNKS:
                    self._chunks.popitem(last=False)
        return logits


@functools.cache
def load_checkpoint() -> tuple[ChatTokenizer, Network]:
    """The model's tokenizer and network."""
    shape = msgspec.json.decode((CHECKPOINT / "config.json").read_bytes(), type=NetworkConfig)
    network = Network(read_weights((CHECKPOINT / "model.safetensors").read_bytes()), shape)
    return ChatTokenizer((CHECKPOINT / "tokenizer.json").read_text(encoding="utf-8")), network


def _run_single_threaded(work: Callable[[], _T]) -> _T:
    """Run with one thread of the matrix library: more threads are slower for matrices this small."""
    with _find_libraries().limit(limits=1, user_api="blas"):
        return work()


@functools.cache
def _find_libraries() -> Any:
    """The matrix libraries that are loaded. Cached, since finding them takes milliseconds."""
    return ThreadpoolController()


PLUGIN = Demo
