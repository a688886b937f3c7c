"""The common facts of coding agents' sessions: an id, a program and its model, a working directory, a first request."""

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
    """The session's own id, which stays the same when the file grows; for a subagent: `SESSION/ID`."""
    folder: str = ""
    """Working directory at the start of the session."""
    remote: str = ""
    """Git remote of the working directory."""
    project: str = ""
    """The format's name for the project, if it does not name a folder."""
    version: str = ""
    created_at: str | None = None
    models: Counter[str] = msgspec.field(default_factory=Counter[str])
    """Replies by model."""
    types: Counter[str] = msgspec.field(default_factory=Counter[str])
    """Records by type: shown if no turn was recognized."""
    tools: tuple[ToolSpec, ...] = ()
    parent: Parent | None = None
    outcome: Outcome = Outcome()
    extra: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])

    @property
    def key(self) -> str:
        """The key of its trace."""
        return f"{self.source}@{self.id}"

    def make_trace(self, talk: Conversation, path: Path) -> Trace | Drop:
        """The trace; a Drop if it has no turn of the agent."""
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
        """The repository, or else an id that an agent shares with its subagents."""
        repository = find_repository_of_remote(self.remote) or find_repository_of_folder(self.folder)
        return repository or self.project or digest(f"{self.source}:{self.id.partition('/')[0]}")

    def _make_extra(self) -> dict[str, Any]:
        named = {"cwd": self.folder, "git_remote": self.remote, "version": self.version}
        models = {"models": dict(sorted(self.models.items()))} if len(self.models) > 1 else {}
        return {**{name: value for name, value in named.items() if value}, **models, **self.extra}


def add_user_content(
    talk: Conversation, content: Any, raw_index: int, *, at: float | None, author: Author | None = None, **more: Any
) -> None:
    """Add content in the user's role, split into what a person wrote and what the program added.

    Args:
        content: Text, or a list of blocks; each block is split separately.
        author: The author, if the format names one.
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
    """Count a record off the main line; `left` holds the earlier ones, so that each branch is noted once."""
    account.ignore("abandoned branch")
    account.note("abandoned branches", parent not in left)
    left.add(own)


def find_main_line(parents: Mapping[str, str | None], order: Sequence[str]) -> set[str]:
    """The records on the path from the last one back to the beginning.

    If a record has no parent, or one that is missing (a compaction, a truncated file), the path continues with the
    record before it in the file.

    Args:
        parents: Id -> id of the parent. May contain more ids than `order`, and cycles.
        order: Ids of the records of the conversation, in the order of the file.
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
