"""Columns of chat messages in a dataset's files. Their texts are read as a dictionary, so that each is created once."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any, NamedTuple


class ChatText(NamedTuple):
    """One message of a prompt or completion."""

    role: str
    content: str


def list_text_columns(names: Iterable[str]) -> list[str]:
    """The Parquet paths of the texts in columns of messages: the `read_dictionary` argument for `read_messages`."""
    return [f"{name}.list.element.{field}" for name in names for field in ("role", "content")]


def read_messages(column: Any) -> list[list[ChatText]]:
    """The messages of each row; messages with the same role and text are one object."""
    import numpy as np

    result: list[list[ChatText]] = []
    for chunk in column.chunks:
        struct, lengths = open_lists(chunk)
        role, content = struct.field("role"), struct.field("content")
        roles, texts = role.dictionary.to_pylist(), content.dictionary.to_pylist()
        codes = role.indices.to_numpy().astype(np.int64) * len(texts) + content.indices.to_numpy()
        distinct, where = np.unique(codes, return_inverse=True)
        made = [ChatText(roles[code // len(texts)], texts[code % len(texts)]) for code in distinct.tolist()]
        messages = [made[w] for w in where.tolist()]
        at = 0
        for length in lengths:
            result.append(messages[at : at + length])
            at += length
    return result


def open_lists(lists: Any) -> tuple[Any, list[int]]:
    """The items of all lists of an Arrow array, and how many each list has."""
    # Not `flatten` and `value_lengths`: they import pyarrow.compute, which takes 0.1 s.
    places = lists.offsets.to_pylist()
    items = lists.values.slice(places[0], places[-1] - places[0])
    return items, [end - begin for begin, end in itertools.pairwise(places)]
