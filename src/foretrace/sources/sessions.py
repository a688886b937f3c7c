"""What every session of a coding agent has: an id, a program and its model, a folder to work in, a first request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from foretrace.core.digest import digest
from foretrace.core.trace import Author, Outcome, Parent, Task, ToolSpec, Trace
from foretrace.rows.base import Drop
from foretrace.sources.account import Account
from foretrace.sources.content_blocks import read_blocks
from foretrace.sources.conversation import Conversation
from foretrace.sources.file_traces import finish_trace
from foretrace.sources.injected_text import split_injected
from foretrace.sources.repositories import find_repository_of_folder, find_repository_of_remote


class Session(msgspec.Struct, kw_only=True):
    """Facts of one conversation, gathered while its records are read."""

    source: str
    agent: str
    id: str
    """The session's own id, the same when the file has grown; of a subagent: that of the session, a slash, its own."""
    folder: str = ""
    """Working directory, as the session began."""
    remote: str = ""
    """Git remote of it."""
    project: str = ""
    """What the format calls the project, where it names no folder."""
    version: str = ""
    created_at: str | None = None
    models: Counter[str] = msgspec.field(default_factory=Counter[str])
    """Replies by model."""
    types: Counter[str] = msgspec.field(default_factory=Counter[str])
    """Records by type: shown where no turn was recognised."""
    tools: tuple[ToolSpec, ...] = ()
    parent: Parent | None = None
    outcome: Outcome = Outcome()
    extra: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])

    @property
    def key(self) -> str:
        """The key of its trace."""
        return f"{self.source}@{self.id}"

    def make_trace(self, talk: Conversation, path: Path) -> Trace | Drop:
        """The trace; a Drop where the agent has no turn in it."""
        return finish_trace(
            talk,
            key=self.key,
            task=Task(id=digest(f"{self.source}:{self.id}"), group=self._find_group(), kind="session"),
            path=path,
            met=self.types,
            tools=self.tools,
            outcome=self.outcome,
            parent=self.parent,
            extra=self._make_extra(),
            raw_id=self.id,
            agent=self.agent,
            model=self.models.most_common(1)[0][0] if self.models else None,
            tool_versions={self.agent: self.version},
            created_at=self.created_at,
            facts=(self.id, self.project, self.created_at, [*self.models]),
        )

    def _find_group(self) -> str:
        """The repository; else what keeps an agent and its subagents together."""
        repository = find_repository_of_remote(self.remote) or find_repository_of_folder(self.folder)
        return repository or self.project or digest(f"{self.source}:{self.id.partition('/')[0]}")

    def _make_extra(self) -> dict[str, Any]:
        named = {"cwd": self.folder, "git_remote": self.remote, "version": self.version}
        models = {"models": dict(sorted(self.models.items()))} if len(self.models) > 1 else {}
        return {**{name: value for name, value in named.items() if value}, **models, **self.extra}


def add_user_content(
    talk: Conversation, content: Any, raw_index: int, *, at: float | None, author: Author | None = None, **more: Any
) -> None:
    """Add what stands in the user's role, told apart into what a person wrote and what the program did.

    Args:
        content: Text, or a list of blocks; each block is told apart by itself.
        author: Who wrote it, where the format says so.
    """
    texts: list[tuple[Author, str]] = []
    blocks = content if isinstance(content, list) else [content]
    for block in blocks:
        text, _ = read_blocks([block])
        if not text:
            continue
        pieces: Iterable[tuple[Author, str]] = split_injected(text) if author is None else [(author, text)]
        for who, piece in pieces:
            before = texts.pop()[1] + "\n" if texts and texts[-1][0] == who else ""
            texts.append((who, before + piece))
    _, parts = read_blocks(blocks)
    if not texts and parts:
        texts = [(author or "user", "")]
    carrier = max((i for i, (who, _) in enumerate(texts) if who == "user"), default=len(texts) - 1)
    for index, (who, text) in enumerate(texts):
        mine = tuple(msgspec.structs.replace(p, at=min(p.at, len(text))) for p in parts) if index == carrier else ()
        talk.add_user(text, raw_index, author=who, at=at, parts=mine, **more)


def count_abandoned(account: Account, own: str, parent: str | None, left: set[str]) -> None:
    """Count a record that is not on the main line; `left` holds those before it: a branch is noted once."""
    account.ignore("abandoned branch")
    account.note("abandoned branches", parent not in left)
    left.add(own)


def find_main_line(parents: Mapping[str, str | None], order: Sequence[str]) -> set[str]:
    """The records on the way from the last one back to the beginning.

    Where a record has no parent, or one that is not there (a compaction, a file that was cut), the line goes on with
    the record before it in the file.

    Args:
        parents: By id: the id of the parent. May name more than `order` does, and may hold circles.
        order: Ids in the order of the file, of the records that belong to the conversation.
    """
    place = {one: number for number, one in enumerate(order)}
    found: set[str] = set()
    first = len(order)
    while first > 0:
        node: str | None = order[first - 1]
        first -= 1
        while node is not None and node not in found:
            found.add(node)
            first = min(first, place.get(node, first))
            node = parents.get(node)
    return found
