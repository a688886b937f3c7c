"""foretrace's model servers for any Atropos environment: Ollama, llama.cpp, vLLM and OpenAI-compatible ones.

    class MyEnv(BaseEnv):
        server_cls = server_for("ollama:qwen3-coder", context_length=8192)

Atropos then makes its servers of that class, whatever their `server_type` says.
"""
# pyright: reportMissingImports=false, reportUntypedBaseClass=false

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar
from uuid import uuid4

import msgspec

from foretrace.envs.messages import missing_library_error

try:
    from atroposlib.envs.server_handling.server_baseline import APIServer
    from openai.types.chat.chat_completion import ChatCompletion
    from openai.types.completion import Completion as TextCompletion
except ImportError as missing:
    raise missing_library_error("atroposlib", "atropos", missing) from None

from foretrace.core.completion import ChatMessage, Completion, Request, Sampling
from foretrace.core.errors import ModelError, UsageError
from foretrace.core.plugins import plugin_names
from foretrace.models.base import ChatModel, Server, TokenModel
from foretrace.registry import make_model, split_spec

_FINISH_REASONS = {"stop": "stop", "stop_sequence": "stop", "length": "length", "tool_calls": "tool_calls"}
_READ_HERE = frozenset({"model", "n", "stop", "messages", "prompt", "input_ids", "stream", "logprobs", "extra_body"})
_LIMIT_NAMES = ("max_tokens", "max_completion_tokens", "max_new_tokens")
_UNSET = ("", "default", "none", "x", None)
"""What Atropos writes where a server's name or key was not given."""


class ForetraceServer(APIServer):
    """A server of Atropos over one of foretrace's models. Use `server_for` to say which.

    Raises:
        UsageError: no such kind of model, or a setting that it does not have.
    """

    spec: ClassVar[str] = "openai"
    """KIND or KIND:NAME; a name that is missing is Atropos' `model_name`."""
    settings: ClassVar[Server] = Server()
    """All but the address, which is Atropos' `base_url`, and the key, which may be its `api_key`."""

    def __init__(self, config: Any, reasoning_config: Any = None) -> None:
        super().__init__(config, reasoning_config=reasoning_config)
        self.model: ChatModel = make_model(
            _fill_spec(self.spec, config.model_name), _fill_settings(self.settings, config)
        )
        self._random = random.Random()

    async def check_server_status_task(self, chat_completion: bool = True) -> None:
        """Wait until the server answers. From then on a request that fails says so itself."""
        while True:
            try:
                await self.model.probe()
            except ModelError as error:
                self.server_healthy = error.final  # then a request says what is wrong, where waiting would say nothing
                if error.final:
                    return
                await asyncio.sleep(1)
            else:
                self.server_healthy = True
                return

    async def _chat_completion_wrapper(self, **kwargs: Any) -> Any:
        messages = [ChatMessage(m["role"], _join_text(m.get("content"))) for m in kwargs["messages"]]
        prefill = messages.pop().content if messages and messages[-1].role == "assistant" else ""
        with_logprobs = bool(kwargs.get("logprobs"))
        request = Request(
            messages=tuple(messages),
            prefill=prefill,
            stop=_read_stop(kwargs.get("stop")),
            sampling=_read_sampling(kwargs),
        )
        completions = await self._complete_each(request, kwargs)
        choices = [
            {
                "index": index,
                "finish_reason": _FINISH_REASONS[one.finish],
                "message": {"role": "assistant", "content": one.text, "reasoning_content": one.reasoning},
                "logprobs": {"content": _format_logprobs(one), "refusal": None}
                if with_logprobs and one.logprobs
                else None,
            }
            for index, one in enumerate(completions)
        ]
        return ChatCompletion.model_validate(self._make_body("chat.completion", completions) | {"choices": choices})

    async def _completion_wrapper(self, **kwargs: Any) -> Any:
        completions = await self._complete_prompt(await self._read_prompt(kwargs), kwargs)
        choices = [
            {"index": index, "finish_reason": _FINISH_REASONS[one.finish], "text": one.text, "logprobs": None}
            for index, one in enumerate(completions)
        ]
        return TextCompletion.model_validate(self._make_body("text_completion", completions) | {"choices": choices})

    async def _tokens_and_logprobs_completion_wrapper(
        self, **kwargs: Any
    ) -> tuple[list[int], list[list[int]], list[list[float]], list[str]]:
        """Ids of the prompt, and of each completion its ids, their logprobs and how it ended.

        Raises:
            ModelError: a completion came without the ids and logprobs of all its tokens.
        """
        prompt = await self._read_prompt(kwargs)
        completions = await self._complete_prompt(prompt, kwargs)
        if any(one.exact != "token" or len(one.logprobs) != len(one.token_ids) for one in completions):
            raise ModelError(f"{self.model.spec}: a completion came without ids and logprobs for all its tokens")
        ids, logprobs = [list(one.token_ids) for one in completions], [list(one.logprobs) for one in completions]
        return prompt, ids, logprobs, [_FINISH_REASONS[one.finish] for one in completions]

    async def _read_prompt(self, kwargs: Mapping[str, Any]) -> list[int]:
        capabilities = await self.model.probe()
        if not (capabilities.token_prompts and isinstance(self.model, TokenModel)):
            why = capabilities.reasons.get("token_prompts", "it was not found")
            raise UsageError(f"{self.model.spec} takes no prompts of token ids ({why}): ask it in messages")
        if kwargs.get("input_ids") is not None:
            return list(kwargs["input_ids"])
        return await self.model.tokenize(kwargs["prompt"], special=True)

    async def _complete_prompt(self, prompt: Sequence[int], kwargs: Mapping[str, Any]) -> list[Completion]:
        stop = _read_stop(kwargs.get("stop"))
        return await self._complete_each(
            Request(prompt_ids=tuple(prompt), stop=stop, sampling=_read_sampling(kwargs)), kwargs
        )

    async def _complete_each(self, request: Request, kwargs: Mapping[str, Any]) -> list[Completion]:
        """As many completions as `n` asks for, each with a seed of its own."""
        count = int(kwargs.get("n") or 1)
        seed = kwargs.get("seed")
        return list(await asyncio.gather(*(self.model.complete(self._seed(request, seed, i)) for i in range(count))))

    def _seed(self, request: Request, seed: int | None, index: int) -> Request:
        if seed is not None:
            seed += index
        elif not self.model.endpoint:  # in this process, nothing but the seed makes a difference
            seed = self._random.getrandbits(31)
        return msgspec.structs.replace(request, sampling=msgspec.structs.replace(request.sampling, seed=seed))

    def _make_body(self, kind: str, completions: Sequence[Completion]) -> dict[str, Any]:
        prompt = max((one.usage.prompt_tokens or 0 for one in completions if one.usage), default=0)
        written = sum(one.usage.completion_tokens or 0 for one in completions if one.usage)
        usage = {"prompt_tokens": prompt, "completion_tokens": written, "total_tokens": prompt + written}
        return {
            "id": uuid4().hex,
            "object": kind,
            "created": int(time.time()),
            "model": self.model.name,
            "usage": usage,
        }


def server_for(spec: str, **settings: Any) -> type[ForetraceServer]:
    """A server class for `BaseEnv.server_cls`.

    Args:
        spec: KIND or KIND:NAME, e.g. `ollama:qwen3-coder` (docs/models.md).
        settings: those of `foretrace.models.base.Server`: context_length, timeout_s, retries, options, ...

    Raises:
        UsageError: no such kind of model, or a setting that there is not.
    """
    split_spec(spec, plugin_names("model"))
    try:
        server = Server(**settings)
    except TypeError as error:
        raise UsageError(f"server_for: {error}") from None
    return type("ForetraceServer", (ForetraceServer,), {"spec": spec, "settings": server})


def _fill_spec(spec: str, name: str) -> str:
    """The spec with Atropos' `model_name`, where it names no model itself."""
    kind, _, named = spec.partition(":")
    return spec if named or name in _UNSET or kind == "demo" else f"{kind}:{name}"


def _fill_settings(settings: Server, config: Any) -> Server:
    """The settings with Atropos' address, and its key where there is no other."""
    changed: dict[str, Any] = {}
    if config.base_url not in _UNSET:
        changed["base_url"] = config.base_url
    if settings.api_key is None and config.api_key not in _UNSET:
        changed["api_key"] = config.api_key
    return msgspec.structs.replace(settings, **changed)


def _join_text(content: Any) -> str:
    """A message's content, which may come in parts.

    Raises:
        UsageError: a part that is no text.
    """
    if content is None or isinstance(content, str):
        return content or ""
    if any(part.get("type") != "text" for part in content):
        raise UsageError("a message has a part that is no text, which these servers do not take")
    return "".join(part["text"] for part in content)


def _read_stop(stop: Any) -> tuple[str, ...]:
    return (stop,) if isinstance(stop, str) else tuple(stop or ())


def _read_sampling(kwargs: Mapping[str, Any]) -> Sampling:
    """The sampling that Atropos' arguments ask for; arguments that are not known here go to the server as they are."""
    known = {name: kwargs[name] for name in ("temperature", "top_p", "top_k") if kwargs.get(name) is not None}
    limit = next((kwargs[name] for name in _LIMIT_NAMES if kwargs.get(name) is not None), None)
    read = _READ_HERE | {"temperature", "top_p", "top_k", "seed", "split", "skip_reasoning", *_LIMIT_NAMES}
    extra = {name: value for name, value in kwargs.items() if name not in read and value is not None}
    extra |= kwargs.get("extra_body") or {}
    own: dict[str, Any] = {"temperature": 1.0} | known | ({} if limit is None else {"max_tokens": int(limit)})
    return Sampling(**own, extra=extra)


def _format_logprobs(one: Completion) -> list[dict[str, Any]]:
    """The logprobs as OpenAI writes them."""
    return [
        {"token": piece, "logprob": value, "bytes": list(piece.encode()), "top_logprobs": []}
        for piece, value in zip(one.pieces, one.logprobs, strict=False)
    ]
