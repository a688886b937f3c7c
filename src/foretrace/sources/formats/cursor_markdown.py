"""What Cursor exports of a chat as Markdown: a title, when it was exported, and the texts of both between rules. Calls
are not in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from foretrace.core.digest import digest
from foretrace.core.trace import Trace
from foretrace.rows.base import Drop
from foretrace.rows.head import FileHead
from foretrace.sources.account import Account
from foretrace.sources.conversation import Conversation
from foretrace.sources.sessions import Session

_START = re.compile(r"\ufeff?# (?P<title>[^\n]*)\n_Exported on [^\n]* from Cursor \((?P<version>[^()\n]*)\)_[ \t]*\n")
_SPEAKER = re.compile(r"^---[ \t]*\n\n\*\*(User|Cursor)\*\*[ \t]*\n", re.MULTILINE)


class CursorMarkdown:
    """A turn begins with a rule and the name of who speaks; a rule alone is a part of the text."""

    name = "cursor_markdown"
    license = None

    def recognize(self, head: FileHead) -> str | None:
        """By its second line, which says that Cursor exported it."""
        found = _START.match(head.start.decode("utf-8", "replace").replace("\r\n", "\n"))
        return "line 2 says that Cursor exported it" if found else None

    def read_traces(self, path: Path, account: Account) -> Iterator[Trace | Drop]:
        """The one chat of the file."""
        text = path.read_text(encoding="utf-8", errors="replace").replace("\r\n", "\n")
        start = _START.match(text)
        session = Session(source=self.name, agent="cursor", id=digest(text))
        if start is not None:
            session.version = start["version"]
            session.extra["title"] = start["title"]
        talk = Conversation(account)
        pieces = _SPEAKER.split(text)
        for number, (speaker, said) in enumerate(zip(pieces[1::2], pieces[2::2], strict=True)):
            account.use()
            session.types[speaker] += 1
            if speaker == "User":
                talk.add_user(said.strip(), number)
            else:
                talk.add_agent(number, text=said.strip())
        yield session.make_trace(talk, path)


PLUGIN = CursorMarkdown
