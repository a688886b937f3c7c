"""Whole attempts as token ids and labels, with loss only on the trained messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from foretrace.core.errors import BuildError, find_first_line
from foretrace.core.message_columns import ChatText
from foretrace.encodings.json_arguments import encode_json

IGNORED = -100

Span = tuple[int, int]
"""Start and end of a trained message in the rendered text, in characters."""


def tokenize(
    rows: Iterable[dict[str, Any]], tokenizer: Any, *, max_length: int | None = None
) -> Iterator[dict[str, Any]]:
    """Turn `trajectories` rows into `input_ids` and `labels`, ready for a trainer as they are.

    The loss is on what the model would write: the text that the tokenizer's own chat template puts after its generation
    prompt, including the end of the turn. The text is cut there before it is tokenized, so no token spans the cut, and
    the ids before a trained message are those of a real request for it.

    Args:
        rows: Rows of the `trajectories` config.
        tokenizer: A Hugging Face tokenizer with a chat template that can show tool calls.
        max_length: Most tokens of a row. It is cut after the last trained message that fits completely; a row in which
            none fits is left out. Do not set a trainer's own limit lower: it would cut again.

    Returns:
        An iterator of `input_ids`, `labels` (-100 for no loss), `attention_mask` and `key`.

    Raises:
        BuildError: there is no chat template, or it rewrites earlier turns, or does not show what is trained.
    """
    if getattr(tokenizer, "chat_template", None) is None:
        raise BuildError("the tokenizer has no chat template; set tokenizer.chat_template")
    return _tokenize_rows(rows, _ChatTemplate(tokenizer), max_length)


def _tokenize_rows(
    rows: Iterable[dict[str, Any]], chat: _ChatTemplate, max_length: int | None
) -> Iterator[dict[str, Any]]:
    for row in rows:
        where = f"row {row.get('key', '')}"
        text, spans = chat.render(row, where)
        ids, trained = chat.encode(text, spans, where)
        kept = [(start, end) for start, end in trained if max_length is None or end <= max_length]
        if not kept:
            continue
        ids = ids if max_length is None or len(ids) <= max_length else ids[: kept[-1][1]]
        labels = [IGNORED] * len(ids)
        for start, end in kept:
            labels[start:end] = ids[start:end]
        yield {"input_ids": ids, "labels": labels, "attention_mask": [1] * len(ids), "key": row.get("key", "")}


class _ChatTemplate:
    """A tokenizer, and how its chat template behaves."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._objects = True
        """Whether the template takes arguments as objects rather than JSON text."""
        self._parallel = False
        """Whether the template is known to show several calls of one message."""
        self._objects = self._find_argument_form(1)
        self._joins = self._encode_text("\na") == [*self._encode_text("\n"), *self._encode_text("a")]
        """Whether tokenizing pieces gives the tokens of the whole text: some tokenizers put a space before any text."""

    def render(self, row: dict[str, Any], where: str) -> tuple[str, list[Span]]:
        """The whole chat as text, and the spans of its trained messages. It is rendered again for each of them, but
        tokenized only once."""
        if not self._parallel and any(len(m.get("tool_calls", ())) > 1 for m in row["messages"]):
            self._objects = self._find_argument_form(2)
            self._parallel = True
        messages = row["messages"] if self._objects else [_write_arguments(m) for m in row["messages"]]
        tools = row["tools"] or None
        text = self._apply(messages, tools, where)
        spans: list[Span] = []
        for index, message in enumerate(messages):
            if not row["messages"][index]["trained"]:
                continue
            here = f"{where}, message {index}"
            before = self._apply(messages[:index], tools, here, generate=True)
            after = self._apply(messages[: index + 1], tools, here)
            if not (text.startswith(after) and after.startswith(before) and len(after) > len(before)):
                raise BuildError(
                    f"the chat template does not keep earlier turns as they were ({here}): the loss would fall on "
                    "other text; use a template that preserves prefixes, or the proposer rows"
                )
            _check_shown(message, after[len(before) :], here)
            spans.append((len(before), len(after)))
        return text, spans

    def encode(self, text: str, spans: list[Span], where: str) -> tuple[list[int], list[Span]]:
        if not self._joins:
            return self._encode_whole(text, spans, where)
        ids: list[int] = []
        trained: list[Span] = []
        done = 0
        for start, end in spans:
            ids += self._encode_text(text[done:start])
            first = len(ids)
            ids += self._encode_text(text[start:end])
            trained.append((first, len(ids)))
            done = end
        return ids + self._encode_text(text[done:]), trained

    def _encode_whole(self, text: str, spans: list[Span], where: str) -> tuple[list[int], list[Span]]:
        """Like `encode` but without cutting the text: uses the characters that each token covers."""
        try:
            encoded = self._tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
            offsets: list[Span] = [(start, end) for start, end in encoded["offset_mapping"]]
        except (NotImplementedError, KeyError):
            raise BuildError("the tokenizer puts a space before every text, and is not a fast one: use that") from None
        trained: list[Span] = []
        at = 0
        for edges in spans:
            found: list[int] = []
            for edge in edges:
                while at < len(offsets) and offsets[at][1] <= edge and offsets[at][0] < edge:
                    at += 1
                if at < len(offsets) and offsets[at][0] < edge:
                    raise BuildError(f"a token lies on both sides of the edge of a trained message ({where})")
                found.append(at)
            trained.append((found[0], found[1]))
        return list(encoded["input_ids"]), trained

    def _encode_text(self, text: str) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"]) if text else []

    def _apply(self, messages: Sequence[dict[str, Any]], tools: Any, where: str, *, generate: bool = False) -> str:
        try:
            return self._tokenizer.apply_chat_template(
                list(messages), tools=tools, tokenize=False, add_generation_prompt=generate
            )
        except Exception as error:  # templates raise exceptions of any kind
            raise BuildError(f"the chat template cannot show {where}: {error}") from None

    def _find_argument_form(self, calls: int) -> bool:
        """Whether the template wants arguments as objects rather than JSON text, found by rendering a small chat. A
        template that drops tool calls does not raise, and would train empty turns."""
        try:
            self._check_calls_shown(calls, as_objects=True)
        except BuildError as refusal:
            try:
                self._check_calls_shown(calls, as_objects=False)
            except BuildError:
                raise refusal from None
            return False
        return True

    def _check_calls_shown(self, calls: int, *, as_objects: bool) -> None:
        numbers = range(calls)
        asked = [
            {
                "id": f"probe0000{n}",
                "type": "function",
                "function": {"name": f"probe_tool_{n}", "arguments": {"probe": f"probe_value_{n}"}},
            }
            for n in numbers
        ]
        answers = [
            {"role": "tool", "content": f"probe_result_{n}", "tool_call_id": f"probe0000{n}", "name": f"probe_tool_{n}"}
            for n in numbers
        ]
        chat: list[dict[str, Any]] = [
            {"role": "user", "content": "probe"},
            {"role": "assistant", "content": "", "tool_calls": asked},
            *answers,
            {"role": "assistant", "content": "probe_end"},
        ]
        parameters = {"type": "object", "properties": {}}
        tools = [{"type": "function", "function": {"name": "other", "description": "", "parameters": parameters}}]
        shown = chat if as_objects else [_write_arguments(message) for message in chat]
        text = self._apply(shown, tools, f"{calls} tool call{'s' * (calls > 1)}")
        wanted = [f"probe_{what}_{n}" for n in numbers for what in ("tool", "value", "result")]
        if any(part not in text for part in wanted):
            raise BuildError(
                "the chat template does not show tool calls or their results, which would vanish from training "
                f"(of a chat with {calls} call{'s' * (calls > 1)}); take the tokenizer of a model that calls tools"
            )
        if "{'probe'" in text or "'probe_tool" in text:
            raise BuildError("the chat template shows tool calls as Python and not as JSON")


def load_tokenizer(folder: Path) -> Any:
    """The Hugging Face tokenizer in a local folder; a `BuildError` if it has none with a chat template."""
    if not folder.is_dir():
        raise BuildError(f"{folder}: is not a folder of a tokenizer")
    try:
        from transformers import AutoTokenizer
    except ImportError:
        raise BuildError("a tokenizer is read with transformers: pip install transformers") from None
    try:
        found = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    except Exception as error:  # the library raises exceptions of any kind
        raise BuildError(f"{folder}: holds no tokenizer: {find_first_line(error)}") from None
    if getattr(found, "chat_template", None) is None:
        raise BuildError(f"{folder}: its tokenizer has no chat template")
    return found


def render_row(tokenizer: Any, prompt: Sequence[ChatText], answer: Sequence[ChatText]) -> tuple[str, str]:
    """A row as a trainer renders it: the text shown to the model, and the text with loss. A `BuildError` if the chat
    template cannot show it, or renders the prompt differently once it is answered."""
    messages = [message._asdict() for message in (*prompt, *answer)]
    try:
        before = tokenizer.apply_chat_template(messages[: len(prompt)], tokenize=False, add_generation_prompt=True)
        text = tokenizer.apply_chat_template(messages, tokenize=False)
    except Exception as error:  # templates raise exceptions of any kind
        raise BuildError(f"the chat template cannot show a row: {find_first_line(error)}") from None
    if not text.startswith(before):
        raise BuildError("the chat template writes a prompt in another way once it is answered")
    return before, text[len(before) :]


def _write_arguments(message: dict[str, Any]) -> dict[str, Any]:
    if "tool_calls" not in message:
        return message
    functions = [call["function"] for call in message["tool_calls"]]
    texts = [function | {"arguments": encode_json(function["arguments"])} for function in functions]
    calls = [call | {"function": text} for call, text in zip(message["tool_calls"], texts, strict=True)]
    return message | {"tool_calls": calls}


def _check_shown(message: dict[str, Any], turn: str, where: str) -> None:
    """Refuse a turn that lacks the message's text or a call: some templates drop the text next to a call."""
    wanted = [message["content"], *(call["function"]["name"] for call in message.get("tool_calls", ()))]
    have = "".join(turn.split())
    if any("".join(part.split()) not in have for part in wanted):
        raise BuildError(
            f"the chat template does not show all of {where}: its text or a call would vanish from training"
        )
