"""The messages of an episode's trace: each block that does something is a message of its own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise

from foretrace.core.completion import ChatMessage, Completion
from foretrace.core.trace import Message, Sampled, ToolCall
from foretrace.protocols.base import Act, Protocol, Reply, Result

_TOOLS = {
    "run": "run_python",
    "block": "execute_python",
    "test": "run_tests",
    "check": "run_tests",
    "keep": "write_file",
    "submit": "submit",
}
"""The tool that an act is recorded as a call of, by what it has done."""


class Record:
    """Collects messages in the order in which they came to be."""

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._turn = -1
        self._calls = 0
        self.tool_seconds: list[float] = []

    @property
    def messages(self) -> tuple[Message, ...]:
        """All messages so far."""
        return tuple(self._messages)

    def open(self, opening: Sequence[ChatMessage]) -> None:
        """The messages that the episode starts with."""
        for message in opening:
            self._turn += 1
            author = "user" if message.role == "user" else "environment"
            self._messages.append(Message(role=message.role, author=author, content=message.content, turn=self._turn))

    def reply(self, reply: Reply, completion: Completion, *, continues: bool) -> list[str]:
        """One completion, as one message for each act that does something; returns the ids of their calls."""
        if not continues:
            self._turn += 1
        doing = [act for act in reply.acts if act.way is not None or act.error is not None]
        ends = [0, *(act.span[1] for act in doing)]
        if not doing or _has_words(reply, ends[-1]):
            ends.append(len(reply.text))
            parts: list[Act | None] = [*doing, None]
        else:
            ends[-1] = len(reply.text)
            parts = [*doing]
        ids: list[str] = []
        tokens = _Tokens(completion, whole=reply.text == completion.text)
        for number, ((start, end), act) in enumerate(zip(pairwise(ends), parts, strict=True)):
            calls: tuple[ToolCall, ...] = ()
            if act is not None:
                ids.append(f"call_{self._calls}")
                self._calls += 1
                calls = (_call(act, ids[-1], start),)
            last = number == len(parts) - 1
            self._messages.append(
                Message(
                    role="assistant",
                    author="model",
                    content=reply.text[start:end],
                    reasoning=completion.reasoning if number == 0 else None,
                    tool_calls=calls,
                    turn=self._turn,
                    continues=continues or number > 0,
                    sampled=tokens.take(end, first=number == 0 and not continues, last=last),
                    model_s=completion.seconds if number == 0 else None,
                    extra={"reasoning_apart": True} if number == 0 and completion.reasoning else {},
                )
            )
        return ids

    def answers(self, ids: Sequence[str], results: Sequence[Result], texts: Sequence[str], protocol: Protocol) -> None:
        """What the environment said: an answer to each call, or words where there was no call."""
        injected = protocol.continues
        if not injected and texts:
            self._turn += 1
        seconds, self.tool_seconds = self.tool_seconds, []
        for number, text in enumerate(texts):
            result = results[number] if number < len(results) else None
            self._messages.append(
                Message(
                    role="tool" if result is not None else "user",
                    author="environment",
                    content=text,
                    tool_call_ids=(ids[number],) if result is not None else (),
                    is_error=result.failed if result is not None else None,
                    turn=self._turn,
                    injected=injected,
                    train=False,
                    raw_role="user" if result is not None and not injected else None,
                    tool_s=seconds[number] if result is not None and number < len(seconds) else None,
                )
            )


def _has_words(reply: Reply, after: int) -> bool:
    """Whether words of their own stand after the last thing done."""
    return any(act.span[0] >= after for act in reply.acts)


def _call(act: Act, call_id: str, start: int) -> ToolCall:
    name = _TOOLS[act.way] if act.way is not None else _TOOLS["run"]
    arguments = {"path": "solution.py", "content": act.code} if act.way == "keep" else {"code": act.code}
    return ToolCall(
        id=call_id,
        name=name,
        arguments=json.dumps(arguments, ensure_ascii=False),
        span=(act.span[0] - start, act.span[1] - start),
        repairs=act.repairs,
        error=act.error,
    )


class _Tokens:
    """Deals the tokens of a completion out to the spans of its text: each goes to the span in which it starts."""

    def __init__(self, completion: Completion, *, whole: bool) -> None:
        self._completion, self._whole = completion, whole
        self._at = self._offset = 0

    def take(self, end: int, *, first: bool, last: bool) -> Sampled | None:
        completion = self._completion
        if completion.exact == "none" and completion.usage is None:
            return None
        start = self._at
        pieces = completion.pieces
        while self._at < len(pieces) and (self._offset < end or (last and self._whole)):
            self._offset += len(pieces[self._at])
            self._at += 1
        if last and self._whole and not pieces:
            self._at = len(completion.token_ids)
        taken = slice(start, self._at)
        return Sampled(
            token_ids=completion.token_ids[taken],
            logprobs=completion.logprobs[taken],
            prompt_token_ids=completion.prompt_token_ids if first else None,
            finish_reason=completion.finish if last else None,
            usage=completion.usage if last else None,
            exact=completion.exact,
        )
