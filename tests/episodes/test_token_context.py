"""A turn as one growing list of ids: what was sampled stays as it is, and the trace holds the very stream."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretrace.core.completion import ChatMessage, Completion, Sampling
from foretrace.core.errors import ModelError, UsageError
from foretrace.core.trace import Message, Trace
from foretrace.episodes.episode import Episode
from foretrace.episodes.token_context import TokenContext
from foretrace.protocols.base import InteractionProtocol
from foretrace.protocols.inline import Inline
from foretrace.protocols.tools import Tools
from protocols.play import ADD, RIGHT, WRONG, Stage

END = 7
CALL = '<tool_call>{"name": "python", "arguments": {"code": "print(40 + 2)"}}'
FINAL = "</think>\n```python\ndef add(a, b):\n    return a + b\n```\n"


class Letters:
    """Ids of letters; a message is 1, its role, its text, and 2. Ids of text that is read as special are larger."""

    async def tokenize(self, text: str, *, special: bool = False) -> list[int]:
        return [ord(letter) + 1000 * special for letter in text]

    async def render(self, messages: Sequence[ChatMessage]) -> list[int]:
        told = [i for m in messages for i in (1, *map(ord, m.role), *map(ord, m.content), END)]
        return [*told, 1, *map(ord, "assistant")]


class Forgetful(Letters):
    """Its template shows only the last message."""

    async def render(self, messages: Sequence[ChatMessage]) -> list[int]:
        return await super().render([ChatMessage("user", f"{len(messages[0].content)} {messages[-1].content}")])


class Hiding(Letters):
    """Its template shows no message of a user."""

    async def render(self, messages: Sequence[ChatMessage]) -> list[int]:
        return await super().render([m for m in messages if m.role != "user"])


class Broken(Letters):
    """Cannot tokenise."""

    async def tokenize(self, text: str, *, special: bool = False) -> list[int]:
        raise ModelError("no tokens today", kind="server")


def sampled(*pieces: str, finish: str = "stop", text: str | None = None) -> Completion:
    """A completion whose pieces are numbered from 5000 on; its own end is the id 7, which has no text."""
    ids = [5000 + n for n in range(len(pieces))] + [END] * (finish == "stop")
    whole = (*pieces, "") if finish == "stop" else pieces
    return Completion(
        text="".join(pieces) if text is None else text,
        finish=finish,  # type: ignore[arg-type]
        token_ids=tuple(ids),
        logprobs=tuple(-float(n) for n in range(len(ids))),
        pieces=whole,
        prompt_token_ids=(1, 2, 3),
        exact="token",
    )


def take(completion: Completion, text: str) -> tuple[Completion, int, tuple[int, ...]]:
    stream = TokenContext(Letters())
    taken = asyncio.run(stream.add_completion(completion, text))
    assert taken.completion.token_ids == stream.ids
    return taken.completion, taken.end_ids, stream.ids


STOPPED = {"finish": "stop_sequence", "text": "a"}


@pytest.mark.parametrize(
    ("completion", "text", "kept", "ids", "end"),
    [
        (sampled("a ", "b"), "a b", "a b", (5000, 5001, END), 1),  # the end of the turn is part of it
        (sampled("a", "</ca", "ll>", **STOPPED), "a</call>", "a</call>", (5000, 5001, 5002), 0),
        (sampled("a", "<res", "ult>", **STOPPED), "a", "a", (5000,), 0),  # the stop sequence is not kept
        (sampled("a", "</call>\n", **STOPPED), "a</call>", "a</call>\n", (5000, 5001), 0),
        (sampled("a", "b", "made up"), "ab", "ab", (5000, 5001), 0),  # cut between tokens, so without the end
        (sampled("a", "b", ""), "ab", "ab", (5000, 5001, 5002, END), 2),  # half a character before the end
    ],
)
def test_sampled_ids_that_spell_the_text_stay_as_they_are(
    completion: Completion, text: str, kept: str, ids: tuple[int, ...], end: int
) -> None:
    found, ended, context = take(completion, text)
    assert (found.text, found.exact, ended, context) == (kept, "token", end, ids)
    assert found.logprobs == tuple(-float(n) for n in range(len(ids)))


@pytest.mark.parametrize(
    ("completion", "text", "rest"),
    [
        (sampled("a", "bc"), "ab", "b"),  # cut inside a token
        (sampled("a"), "a</call>", "</call>"),  # a closing tag that the model did not write
        (sampled("a", "", "é"), "a</call>", "</call>"),  # the first half of a character is not kept
        (sampled("bc"), "ab", "ab"),  # the pieces do not spell it
        (Completion(text="ab", token_ids=(5, 6), exact="token"), "ab", "ab"),  # no pieces
        (Completion(text="ab", exact="none"), "ab", "ab"),
    ],
)
def test_from_where_the_ids_are_not_known_the_text_is_tokenized_and_has_no_logprobs(
    completion: Completion, text: str, rest: str
) -> None:
    kept, end, ids = take(completion, text)
    known = int(rest != text)
    assert (kept.exact, kept.logprobs, kept.text, end) == ("text", (0.0,) * known, text, 0)
    assert ids == (*(5000,) * known, *(ord(letter) + 1000 for letter in rest))


# --- an episode on top of it


def turn_of(trace: Trace) -> list[Message]:
    """The messages of the assistant's one turn."""
    return [m for m in trace.messages if m.turn == 2]


def play(
    stage: Stage, tokens: Letters, *said: Completion, protocol: InteractionProtocol | None = None
) -> tuple[Trace, list[tuple[int, ...]]]:
    """The trace, and the prompt of each completion."""
    prompts: list[tuple[int, ...]] = []

    async def live() -> Trace:
        async with Episode(ADD, protocol or Inline(), stage.sandbox, tokens=tokens) as episode:
            await episode.start()
            for completion in said:
                if episode.done:
                    break
                request = episode.request(Sampling())
                assert request.messages and bool(request.prefill) == (protocol is None and bool(prompts))
                prompts.append(request.prompt_ids or ())
                try:
                    await episode.step(completion)
                except ModelError as error:
                    await episode.fail(error.kind, str(error))
                    break
            if not episode.done:
                await episode.fail("unfinished", "")
            return episode.trace()

    return stage.runner.run(live()), prompts


def test_an_end_after_which_the_turn_goes_on_is_taken_back(stage: Stage) -> None:
    trace, prompts = play(stage, Letters(), sampled("<think>", "Hm."), sampled(FINAL))
    first, reminder, last = turn_of(trace)
    assert first.sampled and reminder.sampled and last.sampled
    assert first.sampled.token_ids == (5000, 5001) and len(first.sampled.logprobs) == 2
    assert prompts[1] == prompts[0] + (5000, 5001) + reminder.sampled.token_ids
    assert last.sampled.token_ids == (5000, END)


def test_the_name_of_the_end_is_no_text_and_stays_exact(stage: Stage) -> None:
    """Some servers spell the token that ends a turn."""
    said = sampled(FINAL)
    said = msgspec.structs.replace(said, pieces=(FINAL, "<|im_end|>"))
    trace, _ = play(stage, Letters(), said)
    (last,) = turn_of(trace)
    assert last.content == FINAL and last.sampled
    assert (last.sampled.exact, last.sampled.token_ids) == ("token", (5000, END))


def test_what_was_said_is_in_the_trace_when_its_answer_cannot_be_tokenized(stage: Stage) -> None:
    for said in (sampled("<think>Hm."), Completion(text="<think>Hm.")):
        trace, _ = play(stage, Broken(), said)
        assert [m.content for m in turn_of(trace)][:1] == ["<think>Hm."]
        assert trace.outcome.error and trace.outcome.error.kind == "server"


@pytest.mark.parametrize("ended", [True, False])
def test_turns_are_appended_too(stage: Stage, ended: bool) -> None:
    """The end of the assistant's turn stands there once, whether the model sampled it or was stopped before."""
    finish = "stop" if ended else "stop_sequence"
    said = [
        sampled(f"<code>\n{WRONG}", "</code>", finish=finish, text=None if ended else f"<code>\n{WRONG}"),
        sampled(f"<code>\n{RIGHT}</code>"),
        sampled("<verify>It adds.</verify>"),
    ]
    trace, prompts = play(stage, Letters(), *said, protocol=Tools())
    assert trace.outcome.success
    first, answer = trace.messages[2:4]
    assert first.sampled and answer.sampled and answer.train is False
    assert first.sampled.token_ids == (5000, 5001) + (END,) * ended and len(first.sampled.logprobs) == 2 + ended
    assert prompts[1] == prompts[0] + first.sampled.token_ids + answer.sampled.token_ids
    told = f"{'' if ended else chr(END)}{chr(1)}user{answer.content}{chr(END)}{chr(1)}assistant"
    assert "".join(map(chr, answer.sampled.token_ids)) == told


@pytest.mark.parametrize("tokens", [Forgetful(), Hiding()])
def test_a_template_to_which_no_turn_can_be_appended_is_refused(stage: Stage, tokens: Letters) -> None:
    with pytest.raises(UsageError, match="chat template"):
        play(stage, tokens, sampled(f"<code>\n{WRONG}</code>"), protocol=Tools())


WORDS = st.lists(st.sampled_from(["<think>", "so ", CALL, "</tool_call>", "<tool_response>", "\n", "é", "</think>"]))


@settings(max_examples=30, deadline=None)
@given(said=st.lists(st.tuples(WORDS, st.sampled_from(["stop", "stop_sequence", "length"])), max_size=4))
def test_the_trace_holds_the_stream(stage: Stage, said: list[tuple[list[str], str]]) -> None:
    """Whatever is sampled, the ids of the turn's messages, joined, are what the next prompt adds to the first."""

    trace, prompts = play(stage, Letters(), *(sampled(*words, finish=finish) for words, finish in said))
    whole = list(prompts[0]) if prompts else []
    starts: list[int] = []
    for message in turn_of(trace):
        if message.role == "assistant":
            starts.append(len(whole))
        whole += message.sampled.token_ids if message.sampled else ()
    assert [tuple(whole[: len(prompt)]) for prompt in prompts] == prompts
    assert {len(prompt) for prompt in prompts} <= set(starts)
