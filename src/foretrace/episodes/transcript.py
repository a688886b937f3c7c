"""The messages of an episode's trace: each act that is carried out becomes its own message."""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

import msgspec

from foretrace.core.completion import ChatMessage, Completion
from foretrace.core.trace import Message, Sampled, ToolCall
from foretrace.protocols.base import Act, Handling, Reply

TOOL_NAMES: Mapping[Handling, str] = {
    "run": "python",
    "block": "python",
    "test": "run_tests",
    "check": "run_tests",
    "append": "append_file",
    "submit": "submit",
}
"""Tool name under which an act is recorded as a call, by the act's handling."""
SOLUTION_FILE = "solution.py"
"""Path in the recorded calls of `append_file`."""


class EnvironmentMessage(NamedTuple):
    """A message of the environment, which answers at most one call."""

    text: str
    call: str | None = None
    failed: bool | None = None
    seconds: float | None = None
    started: str | None = None
    """ISO 8601 time at which the act began."""
    token_ids: tuple[int, ...] | None = None
    """Its token ids, if the episode has a `TokenContext`."""


class Transcript:
    """Collects the messages of an episode, in order."""

    def __init__(self, unread: str) -> None:
        """`unread` is the tool name of calls that could not be read."""
        self._unread = unread
        self._messages: list[Message] = []
        self._turn = -1
        self._calls = 0

    @property
    def messages(self) -> tuple[Message, ...]:
        return tuple(self._messages)

    def add_opening(self, opening: Sequence[ChatMessage]) -> None:
        for message in opening:
            self._turn += 1
            self._messages.append(Message(role=message.role, author="user", content=message.content, turn=self._turn))

    def add_reply(
        self, reply: Reply, completion: Completion, *, continues: bool, started: str | None = None
    ) -> list[ToolCall]:
        """Add a completion as one message for each act that is carried out; returns their calls.

        Text before an act is in its message, and text after the last act is in that act's message. The first message
        has the time of all. A completion of 0 seconds was not timed (e.g. by a trainer's own model).
        """
        is_timed = completion.seconds > 0
        if not continues:
            self._turn += 1
        acting = reply.acting
        ends = [act.span[1] for act in acting[:-1]]
        spans = list(pairwise([0, *ends, len(reply.text)]))
        tokens = _TokenSplitter(completion, reply.text, alone=len(spans) == 1)
        made: list[ToolCall] = []
        for number, (start, end) in enumerate(spans):
            first, last = number == 0, number == len(spans) - 1
            calls: tuple[ToolCall, ...] = ()
            if acting:
                calls = (_make_call(acting[number], f"call_{self._calls}", start, self._unread),)
                self._calls += 1
                made += calls
            self._messages.append(
                Message(
                    role="assistant",
                    author="model",
                    content=reply.text[start:end],
                    reasoning=completion.reasoning if first else None,
                    tool_calls=calls,
                    turn=self._turn,
                    continues=continues or not first,
                    sampled=tokens.take(end, first=first and not continues, last=last),
                    model_s=completion.seconds if first and is_timed else None,
                    model_s_source="runner" if first and is_timed else None,
                    started=started if first and is_timed else None,
                    # Retries may differ between equal attempts.
                    extra={k: v for k, v in completion.extra.items() if k != "retried"} if first else {},
                )
            )
        return made

    def drop_last_ids(self, count: int) -> None:
        """Remove the last ids of the last message: the model ended its turn, but the turn continues."""
        sampled = self._messages[-1].sampled
        if count and sampled is not None:
            kept_count = len(sampled.token_ids) - count
            sampled = msgspec.structs.replace(
                sampled, token_ids=sampled.token_ids[:kept_count], logprobs=sampled.logprobs[:kept_count]
            )
            self._messages[-1] = msgspec.structs.replace(self._messages[-1], sampled=sampled)

    def add_environment(self, answers: Sequence[EnvironmentMessage], *, injected: bool) -> None:
        """Add messages of the environment; `injected` if they are inside the assistant's own turn."""
        if answers and not injected:
            self._turn += 1
        for answer in answers:
            as_tool = answer.call is not None or injected
            self._messages.append(
                Message(
                    role="tool" if as_tool else "user",
                    author="environment",
                    content=answer.text,
                    tool_call_ids=() if answer.call is None else (answer.call,),
                    is_error=answer.failed,
                    turn=self._turn,
                    injected=injected,
                    train=False,
                    raw_role="user" if as_tool and not injected else None,
                    tool_s=answer.seconds,
                    tool_s_source=None if answer.seconds is None else "runner",
                    started=answer.started,
                    sampled=None if answer.token_ids is None else Sampled(token_ids=answer.token_ids, exact="token"),
                )
            )


def _make_call(act: Act, call_id: str, start: int, unread: str) -> ToolCall:
    span = (act.span[0] - start, act.span[1] - start)
    name = unread if act.handling is None else TOOL_NAMES[act.handling]
    if act.call is not None:
        name = act.call.name or name
        return msgspec.structs.replace(act.call, id=call_id, name=name, span=span, repairs=act.repairs, error=act.error)
    if act.kind == "final":
        name = TOOL_NAMES["submit"]
    arguments: dict[str, str] = {}
    if act.handling == "append":
        arguments = {"path": SOLUTION_FILE, "content": act.code}
    elif act.code.strip():
        arguments = {"checks" if act.handling == "check" else "code": act.code}
    return ToolCall(
        id=call_id,
        name=name,
        arguments=msgspec.json.encode(arguments).decode(),
        span=span,
        repairs=act.repairs,
        error=act.error,
    )


class _TokenSplitter:
    """Divides a completion's tokens between the spans of its text; each goes to the span in which it starts."""

    def __init__(self, completion: Completion, text: str, *, alone: bool) -> None:
        self._completion, self._text, self._alone = completion, text, alone
        self._whole = text.startswith(completion.text)
        """Whether the whole completion is kept."""
        self._at = 0
        self._ends = list(accumulate(map(len, completion.pieces)))

    def take(self, end: int, *, first: bool, last: bool) -> Sampled | None:
        """The tokens of the span that ends at `end`; `None` if the server gave none."""
        completion, start = self._completion, self._at
        reached = self._ends[start - 1] if 0 < start <= len(self._ends) else 0
        if reached < end:
            self._at = max(start, min(bisect.bisect_left(self._ends, end) + 1, len(self._ends)))
        if last and self._whole:
            self._at = max(self._at, len(completion.token_ids), len(completion.logprobs))
        taken = slice(start, self._at)
        if completion.exact == "none" and not (last and completion.usage):
            return None
        exact = "text" if completion.exact == "token" and not self._fits(last) else completion.exact
        return Sampled(
            token_ids=completion.token_ids[taken],
            logprobs=completion.logprobs[taken],
            prompt_token_ids=completion.prompt_token_ids if first else None,
            finish_reason=completion.finish if last else None,
            usage=completion.usage if last else None,
            exact=exact,
        )

    def _fits(self, last: bool) -> bool:
        """Whether the tokens so far spell the text so far. They do not if it was cut inside a token, or if the pieces
        are unknown or do not add up to the text (half a character)."""
        if not self._completion.pieces:
            return self._alone and self._text == self._completion.text
        ends = [0, *accumulate(map(len, self._completion.pieces[: self._at]))]
        written = "".join(self._completion.pieces[: self._at])
        if last and self._completion.finish == "stop":  # the name of the end token may follow
            return len(self._text) in ends and written.startswith(self._text)
        return self._text == written if last else self._text.startswith(written)
