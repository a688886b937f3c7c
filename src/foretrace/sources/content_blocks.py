"""Read a message's content: text, or a list of parts or blocks, of any maker.

Rows refuse a part whose meaning would be lost (`read_content`); logs and sessions keep it by its name or as JSON.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import Any, NamedTuple

import msgspec

from foretrace.core.trace import Part, ToolCall
from foretrace.encodings.json_arguments import encode_json
from foretrace.sources.account import Account
from foretrace.sources.base import RowError
from foretrace.sources.conversation import make_call
from foretrace.sources.json_values import as_dict, get_dict, get_text, write_text

_MEDIA = ("image", "audio", "video", "file", "document", "input_image", "input_audio", "input_file", "inlineData")


def read_content(value: Any) -> tuple[str, tuple[Part, ...]]:
    """The text of a message's content (a string, a list of parts, or `None`), and its parts that are not text.

    Raises:
        RowError: a part whose meaning would be lost, such as a call or thinking written as a part.
    """
    if value is None:
        return "", ()
    if isinstance(value, str):
        return value, ()
    if not isinstance(value, list):
        raise RowError("wrong_column_type", f"content is a {type(value).__name__}")
    text, parts = "", list[Part]()
    for item in value:
        if isinstance(item, str):
            text += item
        elif isinstance(item, dict) and (said := read_block_text(item)) is not None:
            text += said
        elif isinstance(item, dict) and (part := read_part(item, len(text))) is not None:
            parts.append(part)
        elif get_text(item, "type") == "refusal":
            parts.append(Part(type="refusal", ref=get_text(item, "refusal") or None, at=len(text)))
        elif isinstance(item, dict):
            raise RowError("unknown_part", f"content holds a part of type {str(item.get('type') or 'unknown')!r}")
    return text, tuple(parts)


def read_block_text(block: dict[str, Any]) -> str | None:
    """The text of a block of text; `None` where it is of another kind."""
    text = block.get("text", block.get("content") if block.get("type") == "text" else None)
    return text if isinstance(text, str) else None


def read_any_content(value: Any) -> tuple[str, tuple[Part, ...]]:
    """The text of a message's content in any form, and its parts that are not text; a part of an unknown kind is kept
    by its name, and what is neither text nor a list is written as JSON."""
    if not isinstance(value, list):
        return write_text(value), ()
    text, parts = "", list[Part]()
    for item in value:
        try:
            piece, media = read_content([item])
        except RowError:
            piece, media = "", (Part(type=str(as_dict(item).get("type"))),)
        text_before = len(text)
        text += piece
        parts += [msgspec.structs.replace(part, at=text_before + part.at) for part in media]
    return text, tuple(parts)


def read_blocks(content: Any) -> tuple[str, tuple[Part, ...]]:
    """The text of a content, and its parts that are not text. A block of an unknown kind is kept as its JSON."""
    text, parts = "", list[Part]()
    for block in content if isinstance(content, list) else [content]:
        if isinstance(block, dict) and (part := read_part(block, len(text))) is not None:
            parts.append(part)
        elif block is not None:
            piece = _read_text(block)
            text += "\n" * bool(text and piece) + piece
    return text, tuple(parts)


def read_part(block: dict[str, Any], at: int = 0) -> Part | None:
    """An image, a file or the like, by reference; None for a block of text."""
    kind = next((key for key in ("inlineData", "fileData") if key in block), None) or get_text(block, "type")
    if not kind.startswith(_MEDIA) and kind != "fileData":
        return None
    inner = get_dict(block, kind) or get_dict(block, "source") or get_dict(block, "file") or block
    media = get_text(inner, "media_type", "mimeType", "mime_type", "format") or get_text(block, "mimeType", "mime")
    ref = get_text(inner, "url", "image_url", "fileUri", "file_id", "filename") or get_text(block, "url", kind)
    body = get_text(inner, "data", "file_data")
    if ref.startswith("data:"):
        media, _, body = ref[5:].partition(",")
        media, ref = media.split(";")[0], ""
    kind = {"inlineData": "image" if media.startswith("image/") else "file", "fileData": "file"}.get(kind, kind)
    return Part(type=kind, media_type=media, ref=ref or None, sha256=digest_body(body) if body else None, at=at)


def digest_body(body: str) -> str:
    """The digest of a picture or a file that stands as base64."""
    try:
        data = base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError):
        data = body.encode(errors="replace")
    return hashlib.sha256(data).hexdigest()


def make_function_call(call: dict[str, Any]) -> ToolCall:
    """A call as OpenAI writes it, with its function in an object of its own or flat."""
    function = get_dict(call, "function") or call
    return make_call(call.get("id") or call.get("call_id"), get_text(function, "name"), function.get("arguments"))


class Reply(NamedTuple):
    """The blocks of a reply, by kind."""

    text: str
    parts: tuple[Part, ...]
    reasoning: str | None
    calls: list[dict[str, Any]]
    results: list[dict[str, Any]]


def split_reply(content: Any, account: Account) -> Reply:
    """A reply in blocks as Anthropic has them, in any of their spellings."""
    texts, thoughts = list[str](), list[str]()
    parts, calls, results = list[Part](), list[dict[str, Any]](), list[dict[str, Any]]()
    for block in content if isinstance(content, list) else [content]:
        kind = get_text(block, "type")
        if kind == "thinking":
            thoughts.append(get_text(block, "thinking", "text"))
        elif kind == "redacted_thinking":
            account.note("thoughts that are not readable")
        elif kind == "fallback":
            account.note("replies of a fallback model")
        elif kind.endswith("tool_use") or kind == "toolCall":
            calls.append(block)
        elif kind.endswith("tool_result"):
            results.append(block)
        elif isinstance(block, dict) and (part := read_part(block)) is not None:
            parts.append(part)
        else:
            texts.append(read_blocks([block])[0])
    reasoning = "\n\n".join(filter(None, thoughts)) or None
    return Reply("\n\n".join(filter(None, texts)), tuple(parts), reasoning, calls, results)


def _read_text(block: Any) -> str:
    if isinstance(block, str):
        return block
    text = block.get("text") if isinstance(block, dict) else None
    if isinstance(text, str):
        return text
    try:
        return encode_json(block)
    except (TypeError, ValueError, RecursionError):
        return str(block)
