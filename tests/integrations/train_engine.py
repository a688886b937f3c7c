"""A stand-in for vLLM's `/inference/v1/generate`: token ids in, the ids of a written reply out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from aiohttp import web

from fakes.model_server import Asked, ModelServer
from integrations.tiny import END, START, train_tokenizer

_NAMED = ["<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"]


def qwen_like_tokenizer(folder: Path, texts: list[str]) -> Any:
    """A small byte-level tokenizer with the named tokens of Qwen3, saved into a folder."""
    from tokenizers import AddedToken

    tokenizer = train_tokenizer(texts)
    tokenizer.add_tokens([AddedToken("<|endoftext|>", special=True)])
    tokenizer.add_tokens([AddedToken(name, normalized=False) for name in _NAMED])
    tokenizer.save_pretrained(str(folder))
    return tokenizer


class Engine(ModelServer):
    """The server: what it says is ended by stop sequences, which stay in it as the sampled tokens do."""

    def __init__(self, tokenizer: Any, say: Callable[[Asked], str]) -> None:
        super().__init__(say=say)
        self._tokenizer = tokenizer
        self.replies: list[list[list[int]]] = []
        """The ids of each reply, by episode; episodes come one after another."""

    def routes(self) -> dict[str, Callable[..., Any]]:
        return {"/inference/v1/generate": self._generate}

    def decode(self, ids: list[int]) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=False)

    async def _generate(self, request: web.Request, body: dict[str, Any]) -> web.Response:
        prompt = self.decode(body["token_ids"])
        turn = prompt.count(f"{START}assistant") - 1
        text = self.say(Asked(prompt, prompt, turn, sum(map(len, self.replies)))) + END
        ends = [text.find(stop) + len(stop) for stop in body["sampling_params"].get("stop", []) if stop in text]
        ids = self._tokenizer.encode(text[: min(ends, default=len(text))], add_special_tokens=False)
        if not turn:
            self.replies.append([])
        self.replies[-1].append(ids)
        logprobs = [{"token": f"token_id:{i}", "logprob": -0.5} for i in ids]
        choice = {"index": 0, "token_ids": ids, "finish_reason": "stop", "logprobs": {"content": logprobs}}
        return web.json_response({"request_id": "g-1", "choices": [choice]})
