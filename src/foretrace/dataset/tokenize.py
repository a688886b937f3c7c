"""Whole attempts as token ids and labels, with the loss on trained messages only and nowhere else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from foretrace.core.errors import BuildError

IGNORED = -100
"""The label of a token that bears no loss."""


def tokenize(
    rows: Iterable[dict[str, Any]], tokenizer: Any, *, max_length: int | None = None
) -> Iterator[dict[str, Any]]:
    """Turn `trajectories` rows into `input_ids` and `labels`, ready for a trainer as they are.

    The chat is rendered once for each trained message and once with it, by the tokenizer's own chat template; the
    tokens between the two ends are the message's. That is right only where a template leaves earlier turns as they
    were, so it is checked for every row.

    Args:
        rows: Rows of the `trajectories` config.
        tokenizer: A Hugging Face tokenizer with a chat template that can show tool calls.
        max_length: Tokens after which a row is cut; a row whose trained tokens are all cut off is left out.

    Yields:
        `input_ids`, `labels` (-100 where no loss is), `attention_mask`, `key`.

    Raises:
        BuildError: the template rewrites earlier turns, cannot show tool calls, or there is none.
    """
    if getattr(tokenizer, "chat_template", None) is None:
        raise BuildError("the tokenizer has no chat template; set tokenizer.chat_template")
    _check_shows_calls(tokenizer)
    for row in rows:
        ids, labels = _row(row, tokenizer)
        ids, labels = ids[:max_length], labels[:max_length]
        if any(label != IGNORED for label in labels):
            yield {"input_ids": ids, "labels": labels, "attention_mask": [1] * len(ids), "key": row.get("key", "")}


def _row(row: dict[str, Any], tokenizer: Any) -> tuple[list[int], list[int]]:
    messages = [_message(m) for m in row["messages"]]
    tools = msgspec.json.decode(row["tools"]) or None
    ids = _render(tokenizer, messages, tools, generate=False)
    labels = [IGNORED] * len(ids)
    for index, message in enumerate(row["messages"]):
        if not message["train"]:
            continue
        before = _render(tokenizer, messages[:index], tools, generate=True)
        after = _render(tokenizer, messages[: index + 1], tools, generate=False)
        if ids[: len(after)] != after or after[: len(before)] != before or len(after) <= len(before):
            raise BuildError(
                f"the chat template does not keep earlier turns as they were (message {index} of {row.get('key')}): "
                "the loss would fall on other tokens; use a template that preserves prefixes, or the proposer rows"
            )
        labels[len(before) : len(after)] = after[len(before) :]
    return ids, labels


def _message(message: dict[str, Any]) -> dict[str, Any]:
    """The message as chat templates want it: arguments as objects, nothing empty."""
    result: dict[str, Any] = {"role": message["role"], "content": message["content"]}
    if message["tool_calls"]:
        result["tool_calls"] = [
            {
                "id": call["id"],
                "type": "function",
                "function": {
                    "name": call["function"]["name"],
                    "arguments": msgspec.json.decode(call["function"]["arguments"]),
                },
            }
            for call in message["tool_calls"]
        ]
    if message["tool_call_id"]:
        result["tool_call_id"] = message["tool_call_id"]
    return result


def _render(tokenizer: Any, messages: Sequence[dict[str, Any]], tools: Any, *, generate: bool) -> list[int]:
    if not messages:
        return []
    text = tokenizer.apply_chat_template(list(messages), tools=tools, tokenize=False, add_generation_prompt=generate)
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def _check_shows_calls(tokenizer: Any) -> None:
    """A template that drops tool calls raises nothing: it would train empty turns."""
    name, value = "probe_tool_name", "probe_argument_value"
    call = {"id": "c1", "type": "function", "function": {"name": name, "arguments": {"x": value}}}
    chat = [
        {"role": "user", "content": "u"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "probe_result", "tool_call_id": "c1"},
    ]
    try:
        text = tokenizer.apply_chat_template(chat, tokenize=False)
    except Exception as error:  # templates raise what they like
        raise BuildError(f"the chat template cannot show tool calls: {error}") from None
    if any(part not in text for part in (name, value, "probe_result")):
        raise BuildError("the chat template does not show tool calls or their results: they would vanish from training")
