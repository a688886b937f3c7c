"""`foretrace.tokenize` with real tokenizers and real Jinja templates, on built trajectories."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import pytest

import foretrace
from integrations.conftest import Built
from integrations.tiny import text_of, train_spaced_tokenizer, turns

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def rows(built: Built) -> list[dict[str, Any]]:
    return built.load("trajectories").to_list()


def trained_texts(tokenizer: Any, made: dict[str, Any]) -> list[str]:
    """Texts of the runs of tokens that bear loss."""
    pairs = zip(made["input_ids"], made["labels"], strict=True)
    runs = [[token for token, _ in run] for bears, run in groupby(pairs, lambda pair: pair[1] != -100) if bears]
    return [tokenizer.decode(run, clean_up_tokenization_spaces=False) for run in runs]


def test_the_template_writes_what_we_write_by_hand(rows: list[dict[str, Any]], tokenizer: Any):
    for row, made in zip(rows, foretrace.tokenize(rows, tokenizer), strict=True):
        chat = turns(row["messages"], row["tools"])
        assert tokenizer.decode(made["input_ids"], clean_up_tokenization_spaces=False) == text_of(chat)
        assert trained_texts(tokenizer, made) == [turn.body for turn in chat if turn.trained]


def test_newlines_merge_in_this_tokenizer_and_not_across_our_cuts(rows: list[dict[str, Any]], tokenizer: Any):
    """Some trained messages begin with a newline: tokenized at once, they would share a token with the prompt."""
    bodies = [t.body for row in rows for t in turns(row["messages"]) if t.trained and t.body.startswith("\n")]
    assert bodies
    merged = tokenizer("assistant\n" + bodies[0])["input_ids"]
    assert merged != tokenizer("assistant\n")["input_ids"] + tokenizer(bodies[0])["input_ids"]


def test_a_tokenizer_that_puts_a_space_before_every_text(rows: list[dict[str, Any]], corpus: list[str]):
    """Its texts cannot be cut; the labels are found by offsets, and the ids are those of the whole text."""
    spaced = train_spaced_tokenizer(corpus)
    assert spaced("\na")["input_ids"] != spaced("\n")["input_ids"] + spaced("a")["input_ids"]
    compared = 0
    for row, made in zip(rows, foretrace.tokenize(rows, spaced), strict=True):
        chat = turns(row["messages"], row["tools"])
        assert made["input_ids"] == spaced(text_of(chat), add_special_tokens=False)["input_ids"]
        wanted = [turn.body for turn in chat if turn.trained]
        assert trained_texts(spaced, made) == wanted
        compared += len(wanted)
    assert compared > 100
