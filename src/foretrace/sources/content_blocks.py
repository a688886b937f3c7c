"""Read a message's content: text, or a list of parts or blocks, from any provider.

Rows refuse a part whose meaning would be lost (`read_content`); logs and sessions keep it by its name or as JSON.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import Any, NamedTuple

from foretrace.core.trace import Part, ToolCall
from foretrace.sources.account import Account
from foretrace.sources.base import RowError
from foretrace.sources.conversation import make_call
from foretrace.sources.json_values import as_dicts, get_dict, get_text, write_text

Block = dict[str, Any]

_MEDIA = (
    "image", "audio", "video", "file", "document", "input_image", "input_audio", "input_file", "inlineData", "uri",
    "blob",
)  # fmt: skip
_CALLS = frozenset({
    "tool_use", "server_tool_use", "tool_call", "server_tool_call", "tool-call", "builtin-tool-call", "toolCall",
    "toolUse", "toolRequest", "functionCall", "function_call", "function",
})  # fmt: skip
_RESULTS = frozenset({
    "tool_result", "tool-result", "tool-return", "retry-prompt", "tool_call_response", "server_tool_call_response",
    "toolResult", "toolResponse", "functionResponse", "function_response",
})  # fmt: skip
_HELD = (
    "toolUse", "toolResult", "toolCall", "functionCall", "function_call", "functionResponse", "function_response",
    "reasoningContent", "run", "function", "server_tool_call",
)  # fmt: skip
"""Keys under which a block may nest its actual contents."""
_KINDS = ("type", "part_kind", "block_type")
_IDS = ("id", "tool_use_id", "toolUseId", "toolUseID", "toolCallId", "tool_call_id")
_NAMES = ("name", "toolName", "tool_name")
_GIVEN = ("arguments", "parameters", "input", "args", "tool_kwargs")
_GAVE = ("error", "content", "output", "response", "result", "tool_return")


def read_blocks(content: Any, between: str = "\n") -> tuple[str, tuple[Part, ...]]:
    """The text of a content with `between` between its blocks, and its parts that are not text. A block of an unknown
    kind is kept as JSON."""
    text, parts = "", list[Part]()
    for block in content if isinstance(content, list) else [content]:
        if isinstance(block, dict) and (part := read_part(block, len(text))) is not None:
            parts.append(part)
        elif block is not None:
            said = read_block_text(block) if isinstance(block, dict) else None
            piece = write_text(block) if said is None else said
            text += between * bool(text and piece) + piece
    return text, tuple(parts)


def read_any_content(content: Any) -> tuple[str, tuple[Part, ...]]:
    """Like `read_blocks`, for formats whose blocks are pieces of one text."""
    return read_blocks(content, between="")


def read_content(value: Any) -> tuple[str, tuple[Part, ...]]:
    """Like `read_any_content`, for rows: a part whose meaning would be lost, such as a call, is a RowError."""
    if value is not None and not isinstance(value, (str, list)):
        raise RowError("wrong_column_type", f"content is a {type(value).__name__}")
    for item in as_dicts(value):
        if read_block_text(item) is None and read_part(item) is None:
            raise RowError("unknown_part", f"content holds a part of type {str(item.get('type') or 'unknown')!r}")
    return read_any_content(value)


def read_block_text(block: dict[str, Any]) -> str | None:
    """The text of a text block; `None` for other blocks."""
    text = block.get("text", block.get("content") if block.get("type") == "text" else block.get("refusal"))
    return text if isinstance(text, str) else None


def read_part(block: dict[str, Any], at: int = 0) -> Part | None:
    """An image, a file or the like, by reference; `None` for a text block."""
    kind = next((key for key in ("inlineData", "fileData") if key in block), None) or get_text(block, "type")
    if not kind.startswith(_MEDIA) and kind != "fileData":
        return None
    inner = get_dict(block, kind) or get_dict(block, "source") or get_dict(block, "file") or block
    inner = get_dict(inner, kind) or inner  # OpenInference
    media = get_text(inner, "media_type", "mimeType", "mime_type", "format") or get_text(block, "mimeType", "mime")
    ref = get_text(inner, "url", "image_url", "fileUri", "file_id", "filename", "uri", "path")
    ref = ref or get_text(block, "url", kind)
    body = get_text(inner, "data", "file_data")
    if ref.startswith("data:"):
        media, _, body = ref[5:].partition(",")
        media, ref = media.split(";")[0], ""
    kind = {"inlineData": "image" if media.startswith("image/") else "file", "fileData": "file"}.get(kind, kind)
    kind = get_text(block, "modality") or kind  # OpenTelemetry
    return Part(type=kind, media_type=media, ref=ref or None, sha256=_digest_body(body) if body else None, at=at)


def _digest_body(body: str) -> str:
    try:
        data = base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError):
        data = body.encode(errors="replace")
    return hashlib.sha256(data).hexdigest()


def read_block(block: Block) -> Block:
    """A block of any provider in Anthropic's form (`tool_use`, `tool_result`, `thinking`, `text`), or else unchanged.

    Known are Gemini's parts, and the blocks of Bedrock, OpenTelemetry, the AI SDK, Pydantic AI, LlamaIndex, Goose, Amp
    and Pi.
    """
    holder = next((key for key in _HELD if isinstance(block.get(key), dict)), "")
    kind = get_text(block, *_KINDS) or holder
    if not holder and block.get("type") in ("tool_use", "server_tool_use", "tool_result", "text"):
        return block
    held = {**block, **get_dict(block, holder)}
    held |= get_dict(held, "value")  # Goose wraps the value in a status
    call_id = next((held[key] for key in _IDS if held.get(key)), None)
    if kind in _CALLS:
        given = next((held[key] for key in _GIVEN if held.get(key) is not None), {})
        return {"type": "tool_use", "id": call_id, "name": get_text(held, *_NAMES) or None, "input": given}
    if kind in _RESULTS:
        value = next((held[key] for key in _GAVE if held.get(key) is not None), None)
        is_error = True in (held.get("isError"), held.get("is_error")) or kind == "retry-prompt"
        is_error = is_error or held.get("status") == "error" or get_text(value, "type").startswith("error")
        found: Block = {"type": "tool_result", "tool_use_id": call_id, "content": _open_result(value)}
        return {**found, "is_error": True} if is_error else found
    if kind in ("thinking", "reasoning", "reasoningContent") or block.get("thought") is True:
        thought = get_text(get_dict(held, "reasoningText") or held, "thinking", "text", "content")
        return {"type": "thinking", "thinking": thought} if thought else block
    if (not kind or "part_kind" in block) and (text := get_text(block, "content")):
        return {"type": "text", "text": text}
    return block if "type" in block or "text" in block else {"type": kind or next(iter(block), "unknown"), **block}


def _open_result(value: Any) -> Any:
    """The result of a call: text, or blocks of text and media; anything else as JSON."""
    if isinstance(value, dict):
        inner = value.get("value") if "type" in value else value.get("output") if len(value) == 1 else None
        value = value if inner is None else inner
    if isinstance(value, list) and all(isinstance(b, dict) and (read_block_text(b) or read_part(b)) for b in value):
        return value
    return write_text(value)


def make_function_call(call: dict[str, Any]) -> ToolCall:
    """A call in OpenAI's form, with the function either nested in its own object or flat."""
    function = get_dict(call, "function") or call
    return make_call(call.get("id") or call.get("call_id"), get_text(function, "name"), function.get("arguments"))


class Reply(NamedTuple):
    """The blocks of a reply, by kind."""

    text: str
    parts: tuple[Part, ...]
    reasoning: str | None
    calls: list[ToolCall]
    results: list[dict[str, Any]]


def split_anthropic_reply(content: Any, account: Account) -> Reply:
    """A reply split into Anthropic's kinds of blocks, in any of their spellings."""
    texts, thoughts = list[str](), list[str]()
    parts, calls, results = list[Part](), list[ToolCall](), list[dict[str, Any]]()
    for block in content if isinstance(content, list) else [content]:
        block = read_block(block) if get_text(block, "type") == "toolCall" else block
        kind = get_text(block, "type")
        if kind == "thinking":
            thoughts.append(get_text(block, "thinking", "text"))
        elif kind == "redacted_thinking":
            account.note("thoughts that are not readable")
        elif kind == "fallback":
            account.note("replies of a fallback model")
        elif kind.endswith("tool_use"):
            calls.append(make_call(get_text(block, "id"), get_text(block, "name"), block.get("input")))
        elif kind.endswith("tool_result"):
            results.append(block)
        elif isinstance(block, dict) and (part := read_part(block)) is not None:
            parts.append(part)
        else:
            texts.append(read_blocks([block])[0])
    reasoning = "\n\n".join(filter(None, thoughts)) or None
    return Reply("\n\n".join(filter(None, texts)), tuple(parts), reasoning, calls, results)
