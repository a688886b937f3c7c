"""HTTP archives (HAR), which browsers and proxies record: the calls of a model's API in them, each a trace."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from foretrace.core.trace import Trace
from foretrace.rows.base import Drop, RowRef
from foretrace.rows.files import read_document
from foretrace.rows.head import FileHead
from foretrace.sources.account import Account
from foretrace.sources.base import RowError, make_row_id
from foretrace.sources.chat import Chat
from foretrace.sources.event_streams import read_reply_body
from foretrace.sources.json_values import decode_json, get_dict, get_dicts, get_text

Row = dict[str, Any]

_ASKED = ("messages", "contents", "input")
"""What the body of a request to a model has; `input` that of one for an embedding, too."""


class Har:
    """A call repeats the replies before it, which were recorded with calls of their own: the reply to it alone is to be
    trained."""

    name = "har"
    license = None

    def recognize(self, head: FileHead) -> str | None:
        """By `log.entries` of which one asks a model, or may do so behind what is seen of the file."""
        entries = get_dicts(get_dict(head.first, "log"), "entries")
        for number, entry in enumerate(entries):
            if _read_request(entry) is not None:
                return f"entry {number} of an HTTP archive asks a model"
        is_archive = any("request" in entry and "startedDateTime" in entry for entry in entries)
        return "an HTTP archive, whose beginning asks no model" if is_archive and head.is_cut else None

    def read_traces(self, path: Path, account: Account) -> Iterator[Trace | Drop]:
        """The calls, in their order; other requests are ignored."""
        document = read_document(path)
        if isinstance(document, Drop):
            account.drop(document.reason)
            yield document
            return
        known: set[str] = set()
        for number, entry in enumerate(get_dicts(get_dict(document, "log"), "entries")):
            asked = _read_request(entry)
            if asked is None:
                account.ignore("request to something else")
                continue
            found = _read_call(asked, entry, number, path)
            if isinstance(found, Drop):
                account.drop(found.reason)
                yield found
            elif found.key in known:
                account.ignore("request that was recorded twice")
            else:
                known.add(found.key)
                account.use()
                yield found


def _read_request(entry: Row) -> Row | None:
    request = get_dict(entry, "request")
    body = decode_json(get_text(get_dict(request, "postData"), "text"))
    given = [name for name in _ASKED if isinstance(body, dict) and isinstance(body.get(name), (list, str))]
    if not given or (given == ["input"] and "/responses" not in get_text(request, "url")):
        return None
    return body if "model" in body or "contents" in body else None


def _read_call(asked: Row, entry: Row, number: int, path: Path) -> Trace | Drop:
    content = get_dict(get_dict(entry, "response"), "content")
    said = read_reply_body(_decode_text(content))
    if said is None:
        status = get_dict(entry, "response").get("status")
        return Drop("no_reply", f"entry {number}: no reply of a model is kept (status {status})")
    own = make_row_id({"asked": asked, "said": said})
    row = {"responses_create_params" if "input" in asked else "request": asked, "response": said, "id": own}
    try:
        found = Chat().to_trace(row, RowRef(number, path.name))
    except RowError as error:
        return Drop(error.drop.reason, f"entry {number}: {error.drop.detail}")
    if isinstance(found, Drop):
        return found
    at = get_text(entry, "startedDateTime") or None
    origin = msgspec.structs.replace(
        found.provenance, source=Har.name, split=None, created_at=at, model=get_text(asked, "model") or None
    )
    return msgspec.structs.replace(found, key=f"{Har.name}@{own}", provenance=origin)


def _decode_text(content: Row) -> str:
    text = get_text(content, "text")
    if get_text(content, "encoding") != "base64":
        return text
    try:
        return base64.b64decode(text).decode("utf-8", "replace")
    except (binascii.Error, ValueError):
        return ""


PLUGIN = Har
