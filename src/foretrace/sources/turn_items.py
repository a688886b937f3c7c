"""Turns of any vocabulary as messages of one: a role, a content, and calls in OpenAI's form.

Known are OpenAI chat messages, ShareGPT turns, blocks of Anthropic and others (`content_blocks.read_block`), items of
the OpenAI Responses API, LangChain's messages, UI messages of the AI SDK, turns whose text is in `text` or
`system_prompt`. Without a role: smolagents' steps, AutoGen's events, requests and responses of Pydantic AI, turns of a
dialogue by their speaker, and a message in an envelope (Continue's, events of Google's ADK, lines of Goose, Droid and
others).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from foretrace.core.trace import Role
from foretrace.encodings.json_arguments import encode_json
from foretrace.sources.content_blocks import read_block
from foretrace.sources.json_values import as_dicts, get_dict, get_text, get_value, write_text
from foretrace.sources.leftovers import find_rest

Row = dict[str, Any]
Place = int | None
Turns = list[tuple[Place, Row]]
"""Turns with their position in the row's own list; `None` for turns found elsewhere in the row."""

ROLES: dict[str, Role] = {
    **dict.fromkeys(("system", "developer"), "system"),
    **dict.fromkeys(("user", "human", "customer", "environment_state"), "user"),
    **dict.fromkeys(("assistant", "gpt", "model", "ai", "agent", "bot", "chatgpt"), "assistant"),
    **dict.fromkeys(("function_call", "tool_call"), "assistant"),
    **dict.fromkeys(("tool", "function", "observation", "environment", "ipython"), "tool"),
    **dict.fromkeys(("tool_response", "tool_result", "function_response"), "tool"),
}
CALL_ROLES = frozenset({"function_call", "tool_call"})
"""ShareGPT roles whose whole text is one call as JSON."""
_LANGCHAIN = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool", "function": "tool"}
_CALL_ITEMS = ("function_call", "custom_tool_call", "mcp_call", "local_shell_call", "computer_call")
_CALL_OUTPUTS = ("function_call_output", "custom_tool_call_output", "local_shell_call_output", "computer_call_output")
_SERVER_CALLS = ("web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call")
_ITEM_KEYS = frozenset({"call_id", "summary", "content", "output", "arguments", "action"})
_ITEMS = frozenset({*_CALL_ITEMS, *_CALL_OUTPUTS, *_SERVER_CALLS, "reasoning", "message"})
_TEXTS = ("content", "value", "text", "message")
_CAMEL = {"toolCalls": "tool_calls", "toolCallId": "tool_call_id"}
_AUTOGEN_MESSAGES = ("TextMessage", "MultiModalMessage", "StopMessage", "HandoffMessage", "StructuredMessage")
_SPOKEN = ("content", "text", "utterance", "message")
_OF_SPEECH = frozenset({"sender", "speaker", "type", "kind", "parts", "blocks", "attachments", *_SPOKEN})
"""Keys for the content of a dialogue's turn, and keys that another vocabulary uses; other keys are kept."""
_OF_RESPONSES = frozenset({"index", "finish_reason", "finishReason", "logprobs", "done", "done_reason"})
"""Keys next to a message that is one of several replies, or a piece of one, and so not a turn."""
_OF_EACH_REPLY = ("role", "from", "created_at", "timestamp", "train", "trainable", "loss", "is_demo")
"""Fields copied to each reply if one message holds several; other fields stay with the first."""
REST = "rest of the item"
"""Key of a message for what else its turn contains; goes to the message's `extra`."""
_BLOCKS = frozenset({"tool_use", "tool_result", "thinking", "redacted_thinking", "server_tool_use"})


def is_turn(item: Any) -> bool:
    """Whether a value is a turn in one of the known vocabularies."""
    if not isinstance(item, dict):
        return False
    if get_role(item) is not None:
        return any(key in item for key in (*_TEXTS, "tool_calls", "function_call", "system_prompt", "parts", "blocks"))
    if get_text(item, "type") in _ITEMS and item.keys() & _ITEM_KEYS:
        return True
    return _unwrap_langchain(item) is not None or _read_toolkit(item) is not None


def get_role(item: Row) -> Role | None:
    """The role of a turn; `None` if it has none or an unknown one."""
    name = item.get("role", item.get("from"))
    return ROLES.get(name.lower()) if isinstance(name, str) else None


def is_agent(item: Row) -> bool:
    return get_role(item) == "assistant"


def flatten_turns(turns: Iterable[tuple[Place, Row]], keys: tuple[str | None, str | None] = (None, None)) -> Turns:
    """The messages of a conversation, each with the position of its turn, and with what else the turn contains.

    Args:
        keys: The row's names for role and content, if the user gives them.
    """
    messages: Turns = []
    pending: list[str] = []  # thoughts that explain the next item
    waiting: list[Any] = []  # contents of items that are not messages
    for place, item in turns:
        item = _rename(item, *keys)
        found = _read_toolkit(item)
        made: list[Row] = []
        thoughts: list[str] = []
        for named in (item,) if found is None else found:
            if named.get("type") == "reasoning" and "role" not in named:
                thoughts.append(_add_thought(messages, pending, named))
            else:
                made += _read_item(named)
        if not made:
            waiting += [rest for rest in (find_rest(item, thoughts),) if rest is not None]
        elif made[0] is not item or waiting:
            rest = (find_rest(item, [*made, *thoughts]) or {}) | ({"before": waiting} if waiting else {})
            made[0] = {**made[0], **({REST: {**made[0].get(REST, {}), **rest}} if rest else {})}
            waiting = []
        for message in made:
            if message.get("role") == "assistant" and pending and not message.get("reasoning"):
                message["reasoning"] = "\n\n".join(pending)
                pending.clear()
            messages.append((place, message))
    if pending:
        messages.append((None, {"role": "assistant", "content": "", "reasoning": "\n\n".join(pending)}))
    if waiting and messages:
        place, last = messages[-1]
        messages[-1] = place, {**last, REST: {**last.get(REST, {}), "after": waiting}}
    return messages


def _rename(item: Row, role: str | None, content: str | None) -> Row:
    names = {role: "role", content: "content"}
    return item if role is content is None else {names.get(key, key): value for key, value in item.items()}


def _add_thought(messages: Turns, pending: list[str], item: Row) -> str:
    """Add the text of a reasoning item to the item that it explains: the next one, or the previous call in a response
    that writes its reasoning after the call."""
    parts = [part for key in ("summary", "content") for part in as_dicts(item.get(key))]
    text = "\n\n".join(part["text"] for part in parts if isinstance(part.get("text"), str))
    last = messages[-1][1] if messages else {}
    if text and last.get("is_item_call") and "reasoning" not in last:
        last["reasoning"] = text
    elif text:
        pending.append(text)
    return text


def _read_item(item: Row) -> Iterable[Row]:
    kind = get_text(item, "type")
    if not isinstance(item.get("role", item.get("from")), str):
        if kind in _ITEMS:
            return _read_response_item(item, kind)
        item = _unwrap_langchain(item) or item
    content = item.get("content", item.get("value"))
    shown = as_dicts(item.get("parts"))
    shown = shown if all(isinstance(part.get("type"), str) for part in shown) else []
    if content is None and not shown:
        other = next((key for key in ("text", "system_prompt", "message") if isinstance(item.get(key), str)), None)
        other = other or next((key for key in ("parts", "blocks") if as_dicts(item.get(key))), None)
        if other is not None:
            content = item[other]
            item = {**{k: v for k, v in item.items() if k != other}, "content": content}
    if shown:  # the AI SDK's, which may repeat the text
        content, item = _read_shown(shown), {k: v for k, v in item.items() if k not in ("parts", "content")}
    elif isinstance(content, list):
        read = [read_block(block) if isinstance(block, dict) else block for block in content]
        is_same = all(new is old for new, old in zip(read, content, strict=True))
        content, item = read, item if is_same else {**item, "content": read}
    elif isinstance(content, dict):
        return ({**item, "content": encode_json(content)},)
    if isinstance(more := item.get("additional_kwargs"), dict) and "tool_calls" not in item:  # LlamaIndex
        item = {**item, **{k: more[k] for k in ("tool_calls", "tool_call_id") if more.get(k)}}
    if isinstance(content, list) and (shown or any(get_text(block, "type") in _BLOCKS for block in content)):
        return _split_blocks(item, content)
    return (item,)


def _read_shown(parts: list[Row]) -> list[Row]:
    """The blocks of an AI SDK UI message: for each step, what the model said and called, then the results."""
    blocks: list[Row] = []
    results: list[Row] = []
    for part in parts:
        kind = part["type"]
        if not kind.startswith("tool-") and kind != "dynamic-tool":
            blocks += [*results, *([] if kind == "step-start" else [read_block(part)])]
            results = []
            continue
        state = get_dict(part, "toolInvocation") or part
        name = state.get("toolName", kind.removeprefix("tool-"))
        blocks.append(read_block({**state, "type": "tool-call", "toolName": name}))
        output = next((state[key] for key in ("output", "result", "errorText") if state.get(key) is not None), None)
        if output is not None:
            failed = state.get("state") == "output-error"
            results.append(read_block({**state, "type": "tool-result", "output": output, "isError": failed}))
    return [*blocks, *results]


def _read_response_item(item: Row, kind: str) -> Iterator[Row]:
    if kind in _CALL_OUTPUTS:
        output = item.get("output")
        text = output if isinstance(output, (str, list)) else encode_json(output)
        yield {"role": "tool", "content": text, "tool_call_id": item.get("call_id")}
        return
    if kind == "message":
        yield {**item, "role": "assistant"}
        return
    given: Any = next(
        (item[k] for k in ("arguments", "input", "action", "code", "queries") if item.get(k) is not None), {}
    )
    is_text = isinstance(given, str) and not isinstance(item.get("arguments"), str)
    if is_text or kind == "custom_tool_call" or not isinstance(given, (str, dict)):
        given = {"input": given}
    call = make_raw_call(item.get("name") or kind.removesuffix("_call"), given, item.get("call_id") or item.get("id"))
    yield {"role": "assistant", "content": "", "tool_calls": [call], "is_item_call": True}
    result = item.get("output") if kind == "mcp_call" else item.get("results")
    if result is not None:
        yield make_result(call["id"], result)


def _unwrap_langchain(item: Row) -> Row | None:
    """A message serialized by LangChain: `{type, data}`, `{lc, id, kwargs}`, or flat with a `type`."""
    kind, inner = item.get("type"), item
    if kind == "constructor" and isinstance(item.get("kwargs"), dict) and isinstance(item.get("id"), list):
        inner = item["kwargs"]
        kind = str(item["id"][-1] if item["id"] else "").removesuffix("Chunk").removesuffix("Message").lower()
    elif isinstance(item.get("data"), dict):
        inner = item["data"]
    role = _LANGCHAIN.get(kind) if isinstance(kind, str) else None
    if role is None or "content" not in inner:
        return None
    calls = inner.get("tool_calls") or get_value(inner.get("additional_kwargs"), "tool_calls")
    message: Row = {"role": role, "content": inner["content"]}
    if isinstance(calls, list) and calls:
        message["tool_calls"] = calls
    if inner.get("tool_call_id"):
        message["tool_call_id"] = inner["tool_call_id"]
    return {**message, "is_error": True} if inner.get("status") == "error" else message


def _split_blocks(item: Row, content: list[Any]) -> Iterator[Row]:
    """Anthropic's blocks: calls and thinking of one reply together, each result as its own message. An agent's message
    that also holds results (exports of Claude's chats) is several replies, each followed by its results."""
    if not is_agent(item) or item.get("tool_calls"):
        yield from _split_reply(item, content)
        return
    parts = itertools.groupby(content, key=lambda block: get_text(block, "type") == "tool_result")
    for number, (_, blocks) in enumerate(parts):
        base = {key: value for key, value in item.items() if key in _OF_EACH_REPLY} if number else item
        yield from _split_reply(base, list(blocks))


def _split_reply(item: Row, content: list[Any]) -> Iterator[Row]:
    calls: list[Row] = []
    thoughts: list[str] = []
    rest: list[Any] = []
    results: list[Row] = []
    for block in content:
        kind = get_text(block, "type")
        if kind in ("tool_use", "server_tool_use"):
            calls.append(make_raw_call(block.get("name"), block.get("input"), block.get("id")))
        elif kind == "thinking":
            thoughts.append(get_text(block, "thinking"))
        elif kind == "tool_result":
            result = {"role": "tool", "content": block.get("content"), "tool_call_id": block.get("tool_use_id")}
            results.append({**result, "is_error": True} if block.get("is_error") is True else result)
        elif kind != "redacted_thinking":
            rest.append(block)
    yield from results
    if rest or calls or thoughts or not results:
        message = {**item, "content": rest}
        if calls and not item.get("tool_calls"):
            message["tool_calls"] = calls
        if any(thoughts):
            message["reasoning"] = "\n\n".join(thoughts)
        yield message


def _read_toolkit(item: Row) -> list[Row] | None:
    """The messages in an item without a role; `None` if the item is not from a known toolkit."""
    if "role" in item or "from" in item:
        return [_rename_camel(item)] if _CAMEL.keys() & item.keys() else None
    readers = (_read_speech, _read_smolagents, _read_autogen, _read_pydantic_ai, _read_envelope)
    return next((found for read in readers if (found := read(item)) is not None), None)


def _rename_camel(item: Row) -> Row:
    return {_CAMEL.get(key, key): value for key, value in item.items()}


def _read_envelope(item: Row) -> list[Row] | None:
    message = item.get("message")
    if isinstance(message, dict) and item.keys() & _OF_RESPONSES:
        return None
    if not isinstance(message, dict):
        message, author = get_dict(item, "content"), item.get("author")
        if not isinstance(author, str) or not isinstance(message.get("parts"), list):
            return None
        message = {"role": "user" if author == "user" else "model", **message}
    role = message.get("role")
    if not isinstance(role, str) or not message.keys() & {"content", "parts", "tool_calls", "toolCalls"}:
        return None
    return [make_thought(message.get("content")) if role == "thinking" else _rename_camel(message)]


def _read_smolagents(item: Row) -> list[Row] | None:
    """smolagents' task, or a step: what the model wrote, its call, and the observation."""
    if isinstance(item.get("task"), str) and item.keys() <= {"task", "task_images"}:
        return [{"role": "user", "content": item["task"]}]
    if not isinstance(item.get("step_number"), int) or "observations" not in item:
        return None
    written, calls = get_text(item, "model_output"), as_dicts(item.get("tool_calls"))
    if not calls:
        return [{"role": "assistant", "content": written}]
    thought = written.partition("<code>")[0].partition("```")[0].strip() or None
    reply = {"role": "assistant", "content": "", "reasoning": thought, "tool_calls": [_name_code(c) for c in calls]}
    error = get_value(item.get("error"), "message", item.get("error"))
    observed = item["observations"] or error
    return [reply, make_result(calls[0].get("id"), observed, bool(error))] if observed else [reply]


def _name_code(call: Row) -> Row:
    """A call of smolagents, whose Python code is a text by itself, with named arguments."""
    function = get_dict(call, "function")
    code = function.get("arguments")
    is_code = function.get("name") == "python_interpreter" and isinstance(code, str)
    return make_raw_call(function["name"], {"code": code}, call.get("id")) if is_code else call


def _read_autogen(item: Row) -> list[Row] | None:
    kind, content = get_text(item, "type"), item.get("content")
    if not isinstance(item.get("source"), str):
        return None
    if kind == "ToolCallRequestEvent" and isinstance(content, list):
        return [{"role": "assistant", "content": "", "tool_calls": content}]
    if kind == "ToolCallExecutionEvent":
        results = as_dicts(content)
        return [make_result(r.get("call_id"), r.get("content"), r.get("is_error") is True) for r in results]
    if kind == "ThoughtEvent":
        return [make_thought(content)]
    if kind == "ToolCallSummaryMessage":  # repeats the results in the agent's name
        return []
    role = "user" if item["source"] in ("user", "user_proxy", "human") else "assistant"
    return [{"role": role, "content": content}] if kind in _AUTOGEN_MESSAGES else None


def _read_pydantic_ai(item: Row) -> list[Row] | None:
    parts = item.get("parts")
    if item.get("kind") not in ("request", "response") or not isinstance(parts, list):
        return None
    if item["kind"] == "response":
        return [{"role": "assistant", "content": parts}]
    kinds = {"system-prompt": "system", "user-prompt": "user"}
    roles = [kinds.get(get_text(part, "part_kind"), "") for part in parts]
    return [
        {"role": role, "content": part["content"]} if role else {"role": "user", "content": [part]}
        for part, role in zip(parts, roles, strict=True)
    ]


def _read_speech(item: Row) -> list[Row] | None:
    """A turn of a dialogue: Claude's exported chats and similar ones."""
    role = ROLES.get(get_text(item, "sender", "speaker").lower())
    content = next((item[key] for key in _SPOKEN if item.get(key)), None)
    if content is None and item.keys() & {"tool_calls", *_SPOKEN}:
        content = ""
    if role is None or not isinstance(content, str | list):
        return None
    files = "".join(
        f"\n\n{get_text(file, 'file_name')}\n{text}"
        for file in as_dicts(item.get("attachments"))
        if (text := get_text(file, "extracted_content"))
    )
    if files:  # as the model saw them
        said = [{"type": "text", "text": content}] if isinstance(content, str) else content
        content = [*said, {"type": "text", "text": files}]
    more = {key: value for key, value in item.items() if key not in _OF_SPEECH}
    return [{"role": role, "content": content, **more}]


def make_raw_call(name: Any, arguments: Any, call_id: Any = None) -> Row:
    """A call in OpenAI's form."""
    return {"id": call_id, "function": {"name": name, "arguments": arguments}}


def make_result(call_id: Any, value: Any, is_error: bool = False) -> Row:
    """A tool's turn that answers a call."""
    result: Row = {"role": "tool", "content": write_text(value), "tool_call_id": call_id}
    return {**result, "is_error": True} if is_error else result


def make_thought(text: Any) -> Row:
    """A reasoning item of the Responses API, which joins the message that follows."""
    return {"type": "reasoning", "summary": [{"text": str(text or "")}]}
