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


class MessageColumn:
    """One column of messages, in a chunk of rows."""

    def __init__(self, lists: Any) -> None:
        """
        Args:
            lists: An Arrow array of lists of `{role, content}`, whose texts are dictionary-encoded.
        """
        # Not `flatten` and `value_lengths`: they import pyarrow.compute, which takes 0.1 s.
        import numpy as np

        offsets = lists.offsets.to_numpy()
        items = lists.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
        role, content = items.field("role"), items.field("content")
        self.ends: list[int] = (offsets - offsets[0]).tolist()
        """Where each row begins among the messages, and where the last one ends."""
        self.roles: list[str] = role.dictionary.to_pylist()
        self.texts: list[str] = content.dictionary.to_pylist()
        self.role_at, self.text_at = role.indices.to_numpy(), content.indices.to_numpy()
        """For each message, the index of its role and of its text."""
        self._np = np

    def read(self) -> list[list[ChatText]]:
        """The messages of each row; messages with the same role and text are one object."""
        np = self._np
        codes = self.role_at.astype(np.int64) * len(self.texts) + self.text_at
        distinct, where = np.unique(codes, return_inverse=True)
        places = zip(*(found.tolist() for found in divmod(distinct, len(self.texts))), strict=True)
        made = [ChatText(self.roles[role], self.texts[text]) for role, text in places]
        messages = [made[w] for w in where.tolist()]
        return [messages[begin:end] for begin, end in itertools.pairwise(self.ends)]

    def sum_texts(self, measures: Any) -> list[int]:
        """For each row, the sum of its texts' measures, given for the distinct ones."""
        np = self._np
        totals = np.append(0, np.cumsum(np.array(measures, np.int64)[self.text_at]))
        return np.diff(totals[self.ends]).tolist()


def open_column(column: Any) -> list[MessageColumn]:
    return [MessageColumn(chunk) for chunk in column.chunks]


def read_messages(column: Any) -> list[list[ChatText]]:
    return [row for chunk in open_column(column) for row in chunk.read()]
