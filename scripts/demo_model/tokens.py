"""Train the tokenizer, and turn examples into ids with a mark on those that the model is to write."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from demo_model.corpus import Example
from foretrace.models.demo_model.tokenizer import SPECIAL, ChatTokenizer

_TAGS = ("think", "code", "verify", "result", "error", "plan", "reflect", "wait", "tool_call", "tool_response")
TAGS = tuple(f"<{slash}{tag}>" for tag in _TAGS for slash in ("", "/"))
"""Tokens of their own, in whatever text they stand."""


class Row(NamedTuple):
    """One example as ids."""

    protocol: str
    head: tuple[int, ...]
    """The system message, which all examples of a protocol share."""
    ids: tuple[int, ...]
    """What follows it."""
    own: tuple[bool, ...]
    """Of each of `ids`: whether the model is to write it."""


def train_tokenizer(examples: Sequence[Example], size: int) -> str:
    """The content of a `tokenizer.json`."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size - len(TAGS),
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_texts(examples), trainer)
    tokenizer.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in TAGS])
    return tokenizer.to_str()


def _texts(examples: Sequence[Example]) -> Iterable[str]:
    for example in examples:
        for text in (*(message.content for message in example.messages), *example.reply):
            for tag in TAGS:
                text = text.replace(tag, " ")
            yield text


def row_of(example: Example, text: ChatTokenizer) -> Row:
    """An example as the model reads it (see `Text.render`)."""
    system, *messages = example.messages
    head = [*text.render_opening(system.role), *text.encode(system.content), *text.render_closing()]
    ids: list[int] = []
    own: list[bool] = []

    def add(more: Sequence[int], mine: bool) -> None:
        ids.extend(more)
        own.extend([mine] * len(more))

    for index, message in enumerate(messages, 1):
        mine = message.role == "assistant" and index not in example.garbled
        add(text.render_opening(message.role), False)
        add(text.encode(message.content), mine)
        end, *after = text.render_closing()
        add([end], mine)
        add(after, False)
    add(text.render_opening("assistant"), False)
    first = len(example.messages)
    for number, part in enumerate(example.reply):
        add(text.encode(part), number % 2 == 0 and first + number not in example.garbled)
    add([text.end_id], True)
    return Row(example.protocol, tuple(head), tuple(ids), tuple(own))
