"""Token ids and logprobs as bytes next to the JSON record of a trace: as text they would be most of it."""

from __future__ import annotations

from typing import Any

import msgspec

from foretrace.core.trace import Message, Sampled, Trace


class _Packed(msgspec.Struct, array_like=True):
    message: int
    token_ids: bytes
    logprobs: bytes
    prompt_token_ids: bytes | None


def pack(trace: Trace) -> tuple[Trace, bytes | None]:
    """The trace without its token arrays, and the arrays (int32 ids, float64 logprobs); `None` if there are none."""
    if all(m.sampled is None for m in trace.messages):
        return trace, None
    import numpy as np

    packed: list[_Packed] = []
    messages: list[Message] = []
    for index, message in enumerate(trace.messages):
        sampled = message.sampled
        if sampled is not None:
            prompt = sampled.prompt_token_ids
            packed.append(
                _Packed(
                    index,
                    np.array(sampled.token_ids, "<i4").tobytes(),
                    np.array(sampled.logprobs, "<f8").tobytes(),
                    None if prompt is None else np.array(prompt, "<i4").tobytes(),
                )
            )
            bare = msgspec.structs.replace(sampled, token_ids=(), logprobs=(), prompt_token_ids=None)
            message = msgspec.structs.replace(message, sampled=bare)
        messages.append(message)
    return msgspec.structs.replace(trace, messages=tuple(messages)), msgspec.msgpack.encode(packed)


def unpack(trace: Trace, packed: bytes) -> Trace:
    import numpy as np

    def read_numbers(data: bytes, kind: str) -> tuple[Any, ...]:
        return tuple(np.frombuffer(data, kind).tolist())

    messages = list(trace.messages)
    for item in msgspec.msgpack.decode(packed, type=list[_Packed]):
        prompt = item.prompt_token_ids
        messages[item.message] = msgspec.structs.replace(
            messages[item.message],
            sampled=msgspec.structs.replace(
                messages[item.message].sampled or Sampled(),
                token_ids=read_numbers(item.token_ids, "<i4"),
                logprobs=read_numbers(item.logprobs, "<f8"),
                prompt_token_ids=None if prompt is None else read_numbers(prompt, "<i4"),
            ),
        )
    return msgspec.structs.replace(trace, messages=tuple(messages))
