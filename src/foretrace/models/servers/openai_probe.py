"""Finds out what an OpenAI-compatible server can do, by a few small requests."""

from __future__ import annotations

import re

import msgspec

from foretrace.core.completion import Capabilities, ChatMessage, Completion, Request, Sampling
from foretrace.core.errors import ModelError
from foretrace.models.adapter import Adapter
from foretrace.models.server_errors import public_cause
from foretrace.models.servers import openai_wire
from foretrace.models.servers.openai_wire import ListedModel, ModelList

_MESSAGES = (ChatMessage("user", "Say: ok"),)
_SAMPLING = Sampling(temperature=0.0, max_tokens=16)
_MORE_TOKENS = 1024
"""For servers that refuse `max_tokens` too small for a model that reasons before it answers."""
_STOP = "</code>"
"""A stop sequence like those of the protocols."""
_PARAMETER = re.compile(r"\b(temperature|top_p|max_tokens|logprobs)\b|['\"`](stop)['\"`]", re.IGNORECASE)
_UNSUPPORTED = re.compile(r"(not|n't|un)[ -]?(support|allow|permit|recogni|enable)|only the default", re.IGNORECASE)
_NEUTRAL_SAMPLING = {"top_k": -1, "min_p": 0.0}
_TOKEN_IDS = "return_token_ids"
_LLAMA_OWNER = "llamacpp"
"""`owned_by` of a llama-server, which serves the model that it has under every name."""
_PREFILL = "1,2,3,4,5,6,7,8"
_DOUBLE_PREFILL = f"{_PREFILL},{_PREFILL}"
"""Twice the prefill and one comma: where digits are tokens, 2n + 1 tokens if the prefill is n."""


async def probe_server(adapter: Adapter) -> Capabilities:
    """What the server can do, with a reason for each thing that it cannot.

    Raises:
        ModelError: the smallest request fails.
    """
    listed = await _list_models(adapter)
    own = next((model for model in listed.values() if adapter.name in model.names), None)
    llama = any(model.owned_by == _LLAMA_OWNER for model in listed.values())
    if own is None and llama:
        raise adapter.unknown_model(listed)
    reasons: dict[str, str] = {}
    try:
        reply, logprobs = await _try_chat(adapter, reasons)
    except ModelError as error:
        if error.kind != "not_found" or not listed:
            raise
        raise adapter.unknown_model(listed) from None
    reasons |= {name: f"refused, so it is not sent: {cause}" for name, cause in adapter.refused_parameters.items()}
    if reply.reasoning is None:
        reasons["reasoning_apart"] = "none came in a small request"
    if missing := await _try_continuation(adapter, reply):
        reasons["continuation"] = missing
    token_prompts, token_ids = await _try_token_ids(adapter, reasons)
    if token_ids:
        await _try_chat_ids(adapter, reasons)
    if llama or token_ids:  # llama-server has sampling limits of its own, and vLLM takes those of the model's files
        adapter.neutral_sampling = dict(_NEUTRAL_SAMPLING)
    return Capabilities(
        logprobs=logprobs,
        token_ids=token_ids,
        token_prompts=token_prompts,
        continuation=not missing,
        reasoning_apart=reply.reasoning is not None,
        context_length=own.context if own else None,
        reasons=reasons,
    )


async def _list_models(adapter: Adapter) -> dict[str, ListedModel]:
    try:
        models = await adapter.http.request_json("GET", "/models", None, ModelList)
    except ModelError as error:
        if error.kind in ("not_found", "bad_reply", "bad_request"):
            return {}  # not every server lists its models
        raise
    return {model.id: model for model in models.data or ()}


async def _try_chat(adapter: Adapter, reasons: dict[str, str]) -> tuple[Completion, bool]:
    """A reply, and whether it came with logprobs; parameters that the server refuses are left out one after another."""
    asked = Request(messages=_MESSAGES, sampling=_SAMPLING, stop=(_STOP,))
    while True:
        try:
            seen = await adapter.attempt(asked, may_be_empty=True)
            break
        except ModelError as error:
            if error.kind != "bad_request":
                raise
            asked = _drop_refused(adapter, asked, error, reasons)
    if not asked.logprobs:
        return seen, False
    if seen.logprobs or "logprobs" in seen.extra:
        return seen, True
    reasons["logprobs"] = "the server returned none, though they were asked for"
    return seen, False


def _drop_refused(adapter: Adapter, asked: Request, error: ModelError, reasons: dict[str, str]) -> Request:
    """The request without the parameter that the server refused; `adapter.refused_parameters` and `reasons` say why.

    Raises:
        ModelError: it refused something else.
    """
    cause = public_cause(error)
    if "higher max_tokens" in cause and asked.sampling.max_tokens < _MORE_TOKENS:
        return msgspec.structs.replace(asked, sampling=msgspec.structs.replace(asked.sampling, max_tokens=_MORE_TOKENS))
    named = _PARAMETER.search(cause) if _UNSUPPORTED.search(cause) else None
    # Logprobs are what servers refuse most often, also without naming them.
    name = (named[1] or named[2]).lower() if named else "logprobs"
    if name in adapter.refused_parameters or (name == "logprobs" and not asked.logprobs):
        raise error
    if name == "logprobs":
        reasons[name] = f"refused: {cause}"
        return msgspec.structs.replace(asked, logprobs=False)
    adapter.refused_parameters[name] = cause
    return asked


async def _try_continuation(adapter: Adapter, plain: Completion) -> str:
    """Why an assistant turn cannot be continued; empty where it can.

    A server that opens a new turn instead adds the end of the old turn and the start of a new one to the prompt. These
    extra tokens do not grow with the prefill. So with prompts of a tokens (no prefill), b = a + n + extra (prefill of
    n tokens) and c = a + 2n + 1 + extra (`_DOUBLE_PREFILL`), extra = 2b - c - a + 1. It is below zero where a template
    opens a think block in new turns only.
    """
    counts: list[int | None] = [plain.usage.prompt_tokens if plain.usage else None]
    for prefill in (_PREFILL, _DOUBLE_PREFILL):
        asked = Request(messages=_MESSAGES, prefill=prefill, sampling=_SAMPLING, logprobs=False)
        try:
            seen = await adapter.attempt(asked, may_be_empty=True)
        except ModelError as error:
            return f"refused: {public_cause(error)}"
        if seen.text.startswith(prefill):
            return "the server repeats the beginning in its reply"
        counts.append(seen.usage.prompt_tokens if seen.usage else None)
    a, b, c = counts
    if a is None or b is None or c is None:
        return "the server does not count the tokens of prompts, so a new turn could not be told from one gone on with"
    extra = 2 * b - c - a + 1
    if extra > 0 or c <= b:
        return f"the server opens a new turn ({a} prompt tokens bare, {b} and {c} with a beginning of n and 2n + 1)"
    return ""


async def _try_chat_ids(adapter: Adapter, reasons: dict[str, str]) -> None:
    """Find out whether chat takes `return_token_ids`, too: SGLang refuses it where the reply is streamed."""
    sampling = msgspec.structs.replace(_SAMPLING, extra={_TOKEN_IDS: True})
    try:
        await adapter.attempt(Request(messages=_MESSAGES, sampling=sampling, logprobs=False), may_be_empty=True)
    except ModelError as error:
        if error.kind != "bad_request":
            raise
        adapter.refused_parameters[_TOKEN_IDS] = cause = public_cause(error)
        reasons[_TOKEN_IDS] = f"refused in chat, so it is sent with prompts of ids only: {cause}"


async def _try_token_ids(adapter: Adapter, reasons: dict[str, str]) -> tuple[bool, bool]:
    """Whether prompts of ids are taken, and whether ids come back."""
    try:
        prompt = tuple(await openai_wire.tokenize_messages(adapter.http, _MESSAGES))
        if not prompt:  # llama-server has the path, but other fields
            reasons["token_prompts"] = reasons["token_ids"] = "its /tokenize gives no ids for messages, as vLLM's does"
            return False, False
        prompt += tuple(await openai_wire.tokenize_text(adapter.http, _PREFILL, special=False))
        seen = await adapter.attempt(Request(prompt_ids=prompt, sampling=_SAMPLING), may_be_empty=True)
    except ModelError as error:
        reason = "not offered (no /tokenize)" if error.kind == "not_found" else f"not offered: {public_cause(error)}"
        reasons["token_prompts"] = reasons["token_ids"] = reason
        return False, False
    counted = seen.usage.prompt_tokens if seen.usage else None
    if counted != len(prompt):
        reasons["token_prompts"] = f"a prompt of {len(prompt)} ids was counted as {counted}"
    if seen.exact != "token":
        reasons["token_ids"] = "the reply came without the ids of all tokens"
    return counted == len(prompt), seen.exact == "token"
