"""A stand-in for vLLM's `/inference/v1/generate`: token ids in, the ids of a written reply out."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from aiohttp import web

from fakes.model_server import Asked

START, END = "<|im_start|>", "<|im_end|>"
_NAMED = ["<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"]


def qwen_like_tokenizer(folder: Path, texts: list[str]) -> Any:
    """A small byte-level tokenizer with the named tokens of Qwen3, saved into a folder."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", START, END]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=600, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator(texts, trainer)
    made.add_tokens([AddedToken(name, normalized=False) for name in _NAMED])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, eos_token=END, pad_token="<|endoftext|>")
    tokenizer.save_pretrained(str(folder))
    return tokenizer


class Engine:
    """The server, in a thread with a loop of its own.

    Args:
        say: makes the reply; stop sequences end it, and stay in it as the sampled tokens do.
    """

    def __init__(self, tokenizer: Any, say: Callable[[Asked], str]) -> None:
        self._tokenizer, self._say = tokenizer, say
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._replies: list[list[list[int]]] = []
        self.url = ""

    def text(self, ids: list[int]) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=False)

    def replies_by_episode(self) -> list[list[list[int]]]:
        """The ids of each reply; episodes come one after another."""
        return self._replies

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(10)
        return self

    def __exit__(self, *error: object) -> None:
        asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _start(self) -> None:
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_post("/inference/v1/generate", self._generate)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def _generate(self, request: web.Request) -> web.Response:
        body = await request.json()
        prompt = self.text(body["token_ids"])
        turn = prompt.count(f"{START}assistant") - 1
        text = self._say(Asked(prompt, prompt, turn, sum(map(len, self._replies)))) + END
        ends = [text.find(stop) + len(stop) for stop in body["sampling_params"].get("stop", []) if stop in text]
        ids = self._tokenizer.encode(text[: min(ends, default=len(text))], add_special_tokens=False)
        if not turn:
            self._replies.append([])
        self._replies[-1].append(ids)
        logprobs = [{"token": f"token_id:{i}", "logprob": -0.5} for i in ids]
        choice = {"index": 0, "token_ids": ids, "finish_reason": "stop", "logprobs": {"content": logprobs}}
        return web.json_response({"request_id": "g-1", "choices": [choice]})
