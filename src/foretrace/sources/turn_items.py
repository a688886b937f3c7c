"""Turns of any vocabulary as messages of one: a role, a content, and calls as OpenAI writes them.

Read are OpenAI chat messages, ShareGPT turns, Anthropic blocks (`tool_use`, `tool_result`, `thinking`), items of the
OpenAI Responses API, LangChain's messages, turns whose text is in `text` and `system_prompt`, and what
`vendor_messages` and `toolkit_messages` know.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from foretrace.core.trace import Role
from foretrace.encodings.json_arguments import encode_json
from foretrace.sources.found_turns import Row, make_call, make_result
from foretrace.sources.json_values import as_dicts, get_text
from foretrace.sources.leftovers import find_rest
from foretrace.sources.toolkit_messages import get_speaker, is_step, is_task, put_in_order, read_toolkit
from foretrace.sources.vendor_messages import unify_message

Place = int | None

ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "model": "assistant",
    "ai": "assistant",
    "agent": "assistant",
    "bot": "assistant",
    "chatgpt": "assistant",
    "tool": "tool",
    "function": "tool",
    "observation": "tool",
    "environment": "tool",
    "ipython": "tool",
    "function_call": "assistant",
    "tool_call": "assistant",
    "tool_response": "tool",
    "tool_result": "tool",
    "function_response": "tool",
    "environment_state": "user",
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
_OF_EACH_REPLY = ("role", "from", "created_at", "timestamp", "train", "trainable", "loss", "is_demo")
"""What each of the replies has that stand in one message; other fields stay with the first."""
REST = "rest of the item"
"""Key of a message under which stands what its turn has beside it, for the message's `extra`."""
_BLOCKS = frozenset({"tool_use", "tool_result", "thinking", "redacted_thinking", "server_tool_use"})


def is_turn(item: Any) -> bool:
    """Whether a value is a turn of a vocabulary that is read here."""
    if not isinstance(item, dict):
        return False
    if get_role(item) is not None:
        return any(key in item for key in (*_TEXTS, "tool_calls", "function_call", "system_prompt", "parts", "blocks"))
    kind = item.get("type")
    if isinstance(kind, str) and kind in _ITEMS and item.keys() & _ITEM_KEYS:
        return True
    return _unwrap_langchain(item) is not None or read_toolkit(item) is not None


def get_role(item: Row) -> Role | None:
    """The role of a turn; `None` where it has none that is known."""
    name = item.get("role", item.get("from"))
    return ROLES.get(name.lower()) if isinstance(name, str) else None


def is_agent(item: Row) -> bool:
    """Whether a turn has the agent's role."""
    return get_role(item) == "assistant"


def flatten_turns(turns: Iterable[tuple[Place, Row]], keys: tuple[str | None, str | None]) -> list[tuple[Place, Row]]:
    """The messages of a conversation, each with the place of its turn, and with what else the turn holds.

    Args:
        keys: What the row calls role and content, where the user names them.
    """
    messages: list[tuple[Place, Row]] = []
    pending: list[str] = []  # thoughts that explain the next item
    waiting: list[Any] = []  # what items hold that are not messages
    answered: set[str] = set()  # calls of which their own message says what came of them
    turns = put_in_order(list(turns))
    has_steps = any(is_step(item) for _, item in turns)
    speakers = {get_speaker(item) for _, item in turns}
    for place, item in turns:
        item = _rename(item, *keys)
        found = [{"role": "user", "content": item["task"]}] if has_steps and is_task(item) else read_toolkit(item)
        if found and get_speaker(item) == "system" and "assistant" in speakers:  # it is not who answers
            found = [{**each, "role": "system"} for each in found]
        made: list[Row] = []
        thoughts: list[str] = []
        for named in (item,) if found is None else found:
            if named.get("type") == "reasoning" and "role" not in named:
                thoughts.append(_add_thought(messages, pending, named))
                continue
            for message in itertools.chain.from_iterable(map(_read_item, unify_message(named))):
                if found is None or "toolCallStates" not in item:
                    if answered and message.get("role") == "tool" and str(message.get("tool_call_id")) in answered:
                        continue
                elif message.get("role") == "tool":
                    answered.add(str(message.get("tool_call_id")))
                made.append(message)
        if not made:
            waiting += [rest for rest in (find_rest(item, thoughts),) if rest is not None]
        elif made[0] is not item or waiting:
            rest = (find_rest(item, [*made, *thoughts]) or {}) | ({"before": waiting} if waiting else {})
            made[0] = {**made[0], **({REST: {**made[0].get(REST, {}), **rest}} if rest else {})}
            waiting = []
        for message in made:
            _add_message(messages, pending, place, message)
    if pending:
        messages.append((None, {"role": "assistant", "content": "", "reasoning": "\n\n".join(pending)}))
    if waiting and messages:
        place, last = messages[-1]
        messages[-1] = place, {**last, REST: {**last.get(REST, {}), "after": waiting}}
    return messages


def _rename(item: Row, role: str | None, content: str | None) -> Row:
    if role is None and content is None:
        return item
    renamed = dict(item)
    for wanted, name in (("role", role), ("content", content)):
        if name is not None and name != wanted and name in renamed:
            renamed[wanted] = renamed.pop(name)
    return renamed


def _add_thought(messages: list[tuple[Place, Row]], pending: list[str], item: Row) -> str:
    """Put the text of a reasoning item onto the item that it explains: the next one, or, in a response that writes its
    reasoning after the call, the call before."""
    parts = [part for key in ("summary", "content") for part in as_dicts(item.get(key))]
    text = "\n\n".join(part["text"] for part in parts if isinstance(part.get("text"), str))
    last = messages[-1][1] if messages else {}
    if text and last.get("is_item_call") and "reasoning" not in last:
        last["reasoning"] = text
    elif text:
        pending.append(text)
    return text


def _add_message(messages: list[tuple[Place, Row]], pending: list[str], place: Place, message: Row) -> None:
    if message.get("role") == "assistant" and pending and not message.get("reasoning"):
        message["reasoning"] = "\n\n".join(pending)
        pending.clear()
    messages.append((place, message))


def _read_item(item: Row) -> Iterator[Row]:
    kind = item.get("type")
    name = item.get("role", item.get("from"))
    if not isinstance(name, str):
        if isinstance(kind, str) and kind in _ITEMS:
            yield from _read_response_item(item, kind)
            return
        if (unwrapped := _unwrap_langchain(item)) is not None:
            yield unwrapped
            return
    content = item.get("content", item.get("value"))
    if content is None:
        other = next((key for key in ("text", "system_prompt", "message") if isinstance(item.get(key), str)), None)
        if other is not None:
            content = item[other]
            item = {**{k: v for k, v in item.items() if k != other}, "content": content}
    if isinstance(content, list) and any(get_text(block, "type") in _BLOCKS for block in content):
        yield from _split_blocks(item, content)
    elif isinstance(content, dict):
        yield {**item, "content": encode_json(content)}
    else:
        yield item


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
    name = item.get("name") or kind.removesuffix("_call")
    if kind == "custom_tool_call" or not isinstance(given, (str, dict)):
        given = {"input": given}
    if isinstance(given, str) and not isinstance(item.get("arguments"), str):
        given = {"input": given}
    call = make_call(name, given, item.get("call_id") or item.get("id"))
    yield {"role": "assistant", "content": "", "tool_calls": [call], "is_item_call": True}
    result = item.get("output") if kind == "mcp_call" else item.get("results")
    if result is not None:
        yield make_result(call["id"], result)


def _unwrap_langchain(item: Row) -> Row | None:
    """A message as LangChain serialises it: `{type, data}`, `{lc, id, kwargs}`, or flat with a `type`."""
    kind, inner = item.get("type"), item
    if kind == "constructor" and isinstance(item.get("kwargs"), dict) and isinstance(item.get("id"), list):
        inner = item["kwargs"]
        kind = str(item["id"][-1] if item["id"] else "").removesuffix("Chunk").removesuffix("Message").lower()
    elif isinstance(item.get("data"), dict):
        inner = item["data"]
    role = _LANGCHAIN.get(kind) if isinstance(kind, str) else None
    if role is None or "content" not in inner:
        return None
    more = inner.get("additional_kwargs")
    calls = inner.get("tool_calls") or (more.get("tool_calls") if isinstance(more, dict) else None)
    message: Row = {"role": role, "content": inner["content"]}
    if isinstance(calls, list) and calls:
        message["tool_calls"] = [_read_langchain_call(call) for call in calls]
    if inner.get("tool_call_id"):
        message["tool_call_id"] = inner["tool_call_id"]
    if inner.get("status") == "error":
        message["is_error"] = True
    return (
        next(iter(_split_blocks(message, inner["content"])), message) if isinstance(inner["content"], list) else message
    )


def _read_langchain_call(call: Any) -> Any:
    if isinstance(call, dict) and "args" in call:
        return make_call(call.get("name"), call["args"], call.get("id"))
    return call


def _split_blocks(item: Row, content: list[Any]) -> Iterator[Row]:
    """Anthropic's blocks: calls and thinking of one reply together, each result a message of its own. A message of the
    agent that holds results too (exports of Claude's chats) is several replies, each before what came of it."""
    if not is_agent(item) or item.get("tool_calls"):
        yield from _split_reply(item, content)
        return
    parts = itertools.groupby(content, key=lambda block: isinstance(block, dict) and block.get("type") == "tool_result")
    for number, (_, blocks) in enumerate(parts):
        base = {key: value for key, value in item.items() if key in _OF_EACH_REPLY} if number else item
        yield from _split_reply(base, list(blocks))


def _split_reply(item: Row, content: list[Any]) -> Iterator[Row]:
    calls: list[Row] = []
    thoughts: list[str] = []
    rest: list[Any] = []
    results: list[Row] = []
    for block in content:
        kind = block.get("type") if isinstance(block, dict) else None
        if kind in ("tool_use", "server_tool_use"):
            calls.append(make_call(block.get("name"), block.get("input"), block.get("id")))
        elif kind == "thinking":
            thoughts.append(str(block.get("thinking") or ""))
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
