"""Messages as other APIs and toolkits write them, made into messages with Anthropic's blocks, which `turn_items` reads.

Known are Gemini's `parts`, the blocks of Bedrock's Converse API, of Goose and of Amp, the AI SDK's messages for a model
and for its user interface, and LlamaIndex's `blocks`. What is in none of these forms is left as it is, so that nothing
is lost unseen.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeGuard

from foretrace.encodings.json_arguments import encode_json
from foretrace.sources.found_turns import Row
from foretrace.sources.json_values import get_value


def unify_message(item: Row) -> Iterator[Row]:
    """The message in Anthropic's form; several where one message of a user interface shows more than one step. Any
    other message as it is."""
    parts, blocks, content = item.get("parts"), item.get("blocks"), item.get("content")
    if _are_objects(parts) and all(isinstance(part.get("type"), str) for part in parts):
        yield from _split_steps({k: v for k, v in item.items() if k not in ("parts", "content")}, parts)
    elif _are_objects(parts) and content is None:
        yield {**{k: v for k, v in item.items() if k != "parts"}, "content": [_read_block(part) for part in parts]}
    elif _are_objects(blocks) and content is None:
        yield _read_llama_index(item, blocks)
    elif _are_objects(content) and any(_is_foreign(block) for block in content):
        yield {**item, "content": [_read_block(block) for block in content]}
    else:
        yield item


def _are_objects(value: Any) -> TypeGuard[list[Row]]:
    return isinstance(value, list) and bool(value) and all(isinstance(each, dict) for each in value)


def _is_foreign(block: Row) -> bool:
    if "type" not in block:
        return any(key in block for key in ("toolUse", "toolResult", "reasoningContent", "functionCall"))
    if block["type"] in ("reasoning", "tool_result"):
        return "text" in block or "run" in block
    return block["type"] in ("tool-call", "tool-result", "toolRequest", "toolResponse")


def _read_block(block: Row) -> Row:
    kind = block.get("type")
    if kind == "tool-call":
        return _make_call(block.get("toolCallId"), block.get("toolName"), block.get("input", block.get("args")))
    if kind == "tool-result":
        output = block.get("output", block.get("result"))
        is_error = block.get("isError") is True or str(get_value(output, "type")).startswith("error")
        return _make_result(block.get("toolCallId"), get_value(output, "value", output), is_error)
    if kind == "reasoning" and isinstance(block.get("text"), str):
        return {"type": "thinking", "thinking": block["text"]}
    if kind in ("toolRequest", "toolResponse"):
        return _read_goose(block, get_value(block, "toolCall" if kind == "toolRequest" else "toolResult"))
    if kind == "tool_result" and isinstance(run := block.get("run"), dict):
        value = run.get("result", run.get("error"))
        return _make_result(block.get("toolUseID"), get_value(value, "output", value), run.get("status") == "error")
    if kind is not None:
        return block
    return _read_untyped(block)


def _read_untyped(block: Row) -> Row:
    """A block of Gemini or Bedrock, whose one key says what it is."""
    if isinstance(call := block.get("toolUse"), dict):
        return _make_call(call.get("toolUseId"), call.get("name"), call.get("input"))
    if isinstance(result := block.get("toolResult"), dict):
        return _make_result(result.get("toolUseId"), result.get("content"), result.get("status") == "error")
    if isinstance(call := block.get("functionCall", block.get("function_call")), dict):
        return _make_call(call.get("id"), call.get("name"), call.get("args"))
    if isinstance(result := block.get("functionResponse", block.get("function_response")), dict):
        return _make_result(result.get("id"), result.get("response"), is_error=False)
    if isinstance(thought := get_value(get_value(block.get("reasoningContent"), "reasoningText"), "text"), str):
        return {"type": "thinking", "thinking": thought}
    if isinstance(text := block.get("text"), str):
        return (
            {"type": "thinking", "thinking": text} if block.get("thought") is True else {"type": "text", "text": text}
        )
    return {"type": next(iter(block), "unknown"), **block}


def _read_goose(block: Row, held: Any) -> Row:
    """A call or a result of Goose; either may lie in an envelope of its status."""
    value = get_value(held, "value", held)
    if block["type"] == "toolRequest":
        return _make_call(block.get("id"), get_value(value, "name"), get_value(value, "arguments"))
    is_error = get_value(held, "status") == "error" or get_value(value, "isError") is True
    return _make_result(block.get("id"), get_value(held, "error") or get_value(value, "content", value), is_error)


def _make_call(call_id: Any, name: Any, arguments: Any) -> Row:
    return {"type": "tool_use", "id": call_id, "name": name, "input": {} if arguments is None else arguments}


def _make_result(call_id: Any, value: Any, is_error: bool) -> Row:
    found = {"type": "tool_result", "tool_use_id": call_id, "content": _write_result(value)}
    return {**found, "is_error": True} if is_error else found


def _write_result(value: Any) -> str:
    if isinstance(value, list) and all(isinstance(get_value(each, "text"), str) for each in value):
        return "".join(each["text"] for each in value)
    return value if isinstance(value, str) else encode_json(value)


def _split_steps(base: Row, parts: list[Row]) -> Iterator[Row]:
    """The steps of a message of the AI SDK's user interface: what the model said and called, then the results."""
    said: list[Row] = []
    results: list[Row] = []

    def end_step() -> Iterator[Row]:
        if said:
            yield {**base, "content": said.copy()}
        if results:
            yield {"role": "user", "content": results.copy()}
        said.clear()
        results.clear()

    for part in parts:
        kind = part["type"]
        is_call = kind.startswith("tool-") or kind == "dynamic-tool"
        if kind == "step-start" or (results and not is_call):
            yield from end_step()
        if is_call:
            state = part["toolInvocation"] if isinstance(part.get("toolInvocation"), dict) else part
            name = state.get("toolName", kind.removeprefix("tool-"))
            said.append(_make_call(state.get("toolCallId"), name, state.get("input", state.get("args"))))
            output = next((state[key] for key in ("output", "result", "errorText") if state.get(key) is not None), None)
            if output is not None:
                results.append(_make_result(state.get("toolCallId"), output, state.get("state") == "output-error"))
        elif kind != "step-start":
            said.append(_read_block(part))
    yield from end_step()


def _read_llama_index(item: Row, blocks: list[Row]) -> Row:
    more = item.get("additional_kwargs")
    message = {k: v for k, v in item.items() if k not in ("blocks", "additional_kwargs")}
    for key in ("tool_calls", "tool_call_id"):
        if get_value(more, key):
            message[key] = get_value(more, key)
    read: list[Row] = []
    for block in blocks:
        kind = block.get("block_type")
        if kind == "tool_call":
            read.append(_make_call(block.get("tool_call_id"), block.get("tool_name"), block.get("tool_kwargs")))
        elif kind == "thinking":
            read.append({"type": "thinking", "thinking": str(block.get("content") or "")})
        else:
            read.append({**block, "type": kind})
    return {**message, "content": read}
