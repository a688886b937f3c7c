"""A coding agent's session: its conversation, and an id, a program and its model, a working directory, a request."""

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
from foretrace.sources.content_blocks import Reply, read_blocks, split_anthropic_reply
from foretrace.sources.conversation import Conversation
from foretrace.sources.file_traces import finish_trace
from foretrace.sources.injected_text import split_injected
from foretrace.sources.json_values import get_bool, get_text
from foretrace.sources.repositories import find_repository_of_folder, find_repository_of_remote

NO_TYPE = "(no type)"


class Session(Conversation):
    """A conversation, with the facts about it that are gathered while its records are read.

    Args:
        source: Name of the format.
        own: The session's own id, which stays the same when the file grows; for a subagent: `SESSION/ID`.
        timing: How times are found, see `Conversation`.
    """

    def __init__(self, account: Account, source: str, agent: str, own: str = "", **timing: Any) -> None:
        super().__init__(account, **timing)
        self.source = source
        self.agent = agent
        self.id = own
        self.folder = ""
        """Working directory at the start of the session."""
        self.remote = ""
        """Git remote of the working directory."""
        self.project = ""
        """The format's name for the project, if it does not name a folder."""
        self.version = ""
        self.created_at: str | None = None
        self.models: Counter[str] = Counter()
        """Replies by model."""
        self.tools: tuple[ToolSpec, ...] = ()
        self.parent: Parent | None = None
        self.outcome = Outcome()
        self.extra: dict[str, Any] = {}
        self.reply = 0
        """Number of the current reply, for `add_part`."""
        self._abandoned: set[str] = set()

    @property
    def key(self) -> str:
        return f"{self.source}@{self.id}"

    def note_model(self, name: str) -> None:
        if name:
            self.models[name] += 1

    def note_title(self, title: str) -> None:
        if title:
            self.extra["title"] = title

    def skip(self, kind: str, is_known: bool) -> None:
        """Count a record that is not part of the conversation: known to be none, or of an unknown type."""
        if is_known:
            self.account.ignore(kind)
        else:
            self.account.meet_unknown(kind or NO_TYPE)

    def skip_abandoned(self, own: str, parent: str | None) -> None:
        """Count a record off the main line (`find_main_line`); each branch is noted once."""
        self.account.ignore("abandoned branch")
        self.account.note("abandoned branches", parent not in self._abandoned)
        self._abandoned.add(own)

    def add_part(self, number: int, **more: Any) -> None:
        """Add a part of the model's current reply; readers raise `reply` where the next one begins."""
        self.add_agent(number, reply=str(self.reply), **more)

    def add_reply(self, said: Reply, raw_index: int, **more: Any) -> None:
        self.add_agent(raw_index, text=said.text, reasoning=said.reasoning, calls=said.calls, parts=said.parts, **more)

    def add_blocks(self, role: str, content: Any, raw_index: int, **more: Any) -> None:
        """Add a message in blocks of Anthropic's kinds: results first, then what the person or the agent said."""
        said = split_anthropic_reply(content, self.account)
        for block in said.results:
            text, parts = read_blocks(block.get("content"))
            failed = get_bool(block, "is_error")
            self.add_result(get_text(block, "tool_use_id"), text, raw_index, is_error=failed, parts=parts, **more)
        if role != "user":
            if said.text or said.parts or said.calls or said.reasoning or not said.results:
                self.add_reply(said, raw_index, **more)
        elif rest := [b for b in content if b not in said.results] if isinstance(content, list) else content:
            self.add_content(rest, raw_index, **more)

    def add_content(self, content: Any, raw_index: int, *, author: Author | None = None, **more: Any) -> None:
        """Add content in the user's role, split into what a person wrote and what the program added.

        Args:
            content: Text, or a list of blocks; each block is split separately.
            author: The author, if the format names one.
        """
        texts: list[tuple[Author, str]] = []
        blocks = content if isinstance(content, list) else [content]
        for block in blocks:
            text, _ = read_blocks([block])
            pieces: Iterable[tuple[Author, str]] = split_injected(text) if author is None else [(author, text)]
            for who, piece in pieces if text else ():
                before = texts.pop()[1] + "\n" if texts and texts[-1][0] == who else ""
                texts.append((who, before + piece))
        _, parts = read_blocks(blocks)
        if not texts and parts:
            texts = [(author or "user", "")]
        carrier = max((i for i, (who, _) in enumerate(texts) if who == "user"), default=len(texts) - 1)
        for index, (who, text) in enumerate(texts):
            mine = [msgspec.structs.replace(p, at=min(p.at, len(text))) for p in parts] if index == carrier else ()
            self.add_user(text, raw_index, author=who, parts=mine, **more)

    def make_trace(self, path: Path) -> Trace | Drop:
        """The trace; a Drop if it has no turn of the agent."""
        named = {"cwd": self.folder, "git_remote": self.remote, "version": self.version}
        models = {"models": dict(sorted(self.models.items()))} if len(self.models) > 1 else {}
        return finish_trace(
            self,
            key=self.key,
            task=Task(id=digest(f"{self.source}:{self.id}"), group=self._find_group(), kind="session"),
            path=path,
            tools=self.tools,
            outcome=self.outcome,
            parent=self.parent,
            extra={**{name: value for name, value in named.items() if value}, **models, **self.extra},
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
