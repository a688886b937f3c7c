"""`foretrace.tokenize` with a small tokenizer of our own: characters and merged newlines, tags as one token."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

import foretrace
from foretrace.core.errors import BuildError

Messages = list[dict[str, Any]]
START, END = "<|im_start|>", "<|im_end|>"


def chatml(messages: Messages, tools: Any = None, generate: bool = False) -> str:
    """A template that keeps earlier turns as they were."""
    text = f"{START}system\n{json.dumps(tools)}{END}\n" if tools else ""
    for message in messages:
        calls = "".join(f"\n<tool_call>{json.dumps(c['function'])}" for c in message.get("tool_calls", ()))
        text += f"{START}{message['role']}\n{message['content']}{calls}{END}\n"
    return text + f"{START}assistant\n" * generate


Template = Callable[..., str]


class FakeTokenizer:
    """Turns every tag, run of newlines and other character into one id; renders with a function."""

    chat_template: str | None = "a function"

    def __init__(self, template: Template = chatml, *, prefix: str = "") -> None:
        self.template = template
        self.prefix = prefix
        self.seen = 0
        """Characters tokenized."""
        self._known: list[str] = []

    def apply_chat_template(
        self, messages: Messages, *, tools: Any, tokenize: bool, add_generation_prompt: bool
    ) -> str:
        assert not tokenize
        assert tools is None or tools
        return self.template(messages, tools, add_generation_prompt)

    def __call__(self, text: str, *, add_special_tokens: bool, return_offsets_mapping: bool = False) -> Any:
        assert not add_special_tokens
        self.seen += len(text)
        found = list(re.finditer(r"<\|\w+\|>|\n+|.", self.prefix + text))
        shift = len(self.prefix)
        result: dict[str, list[Any]] = {"input_ids": [self._id(m[0]) for m in found]}
        if return_offsets_mapping:
            result["offset_mapping"] = [(max(0, m.start() - shift), m.end() - shift) for m in found]
        return result

    def _id(self, token: str) -> int:
        if token not in self._known:
            self._known.append(token)
        return self._known.index(token)

    def decode(self, ids: list[int]) -> str:
        return "".join(self._known[i] for i in ids)


def call(name: str, arguments: dict[str, Any], own: str = "c1") -> dict[str, Any]:
    return {"id": own, "type": "function", "function": {"name": name, "arguments": arguments}}


def message(role: str, content: str, *calls: dict[str, Any], train: bool = False, answers: str = "") -> dict[str, Any]:
    more = ({"tool_calls": [*calls]} if calls else {}) | ({"tool_call_id": answers} if answers else {})
    return {"role": role, "content": content, **more, "trained": train}


def row(*messages: dict[str, Any], tools: tuple[Any, ...] = ()) -> dict[str, Any]:
    return {"messages": [*messages], "tools": [*tools], "key": "k1"}


CHAT = (
    message("user", "fix it"),
    message("assistant", "", call("bash", {"command": "ls"}), train=True),
    message("tool", "a.py", answers="c1"),
    message("assistant", "an edit that someone else wrote"),
    message("user", "go on"),
    message("assistant", "\n\nDone.", train=True),
    message("user", "thanks"),
)
THOUGHT = message("assistant", "Look.\n", call("bash", {"command": "ls"}), train=True)
TRAINED = [
    '\n<tool_call>{"name": "bash", "arguments": {"command": "ls"}}<|im_end|>\n',
    "\n\nDone.<|im_end|>\n",
]


def trained_texts(tokenizer: FakeTokenizer, made: dict[str, Any]) -> list[str]:
    """Texts of the runs of tokens that bear loss."""
    texts: list[str] = []
    running = False
    for token, label in zip(made["input_ids"], made["labels"], strict=True):
        assert label in (-100, token)
        if label != -100 and not running:
            texts.append("")
        running = label != -100
        if running:
            texts[-1] += tokenizer.decode([token])
    return texts


def test_loss_is_on_what_the_model_writes_and_nowhere_else():
    tokenizer = FakeTokenizer()
    (made,) = foretrace.tokenize([row(*CHAT)], tokenizer)
    assert trained_texts(tokenizer, made) == TRAINED
    expected = chatml([{**m, "tool_calls": []} for m in CHAT]).replace(
        f"assistant\n{END}", f"assistant\n{TRAINED[0]}".removesuffix("\n"), 1
    )
    assert tokenizer.decode(made["input_ids"]) == expected
    assert made["attention_mask"] == [1] * len(made["input_ids"])
    assert made["key"] == "k1"


def test_newlines_do_not_merge_across_the_generation_prompt():
    """A run of newlines is one token here: the prompt's must not swallow those that the answer begins with."""
    tokenizer = FakeTokenizer()
    (made,) = foretrace.tokenize([row(*CHAT)], tokenizer)
    at = next(i for i, label in enumerate(made["labels"]) if label != -100)
    assert tokenizer.decode(made["input_ids"][at - 1 : at + 1]) == "\n\n"
    assert tokenizer.decode(made["input_ids"][at - 1 : at]) == "\n"


def test_a_tokenizer_that_puts_a_space_before_every_text():
    tokenizer = FakeTokenizer(prefix=" ")
    plain = (CHAT[0], THOUGHT, *CHAT[2:5], message("assistant", "Done.", train=True))
    (made,) = foretrace.tokenize([row(*plain)], tokenizer)
    assert tokenizer.decode(made["input_ids"]).count(" <|im_start|>") == 1
    assert trained_texts(tokenizer, made)[1] == "Done.<|im_end|>\n"


def test_such_a_tokenizer_is_refused_where_a_token_lies_on_both_sides():
    with pytest.raises(BuildError, match=r"both sides .*row k1"):
        list(foretrace.tokenize([row(*CHAT)], FakeTokenizer(prefix=" ")))


def test_max_length_cuts_behind_the_last_message_that_fits():
    tokenizer = FakeTokenizer()
    (whole,) = foretrace.tokenize([row(*CHAT)], tokenizer)
    last = max(i for i, label in enumerate(whole["labels"]) if label != -100) + 1
    (fits,) = foretrace.tokenize([row(*CHAT)], tokenizer, max_length=last)
    assert fits["labels"] == whole["labels"][:last]
    (cut,) = foretrace.tokenize([row(*CHAT)], tokenizer, max_length=last - 1)
    assert trained_texts(tokenizer, cut) == TRAINED[:1]
    assert cut["labels"][-1] != -100
    assert list(foretrace.tokenize([row(*CHAT)], tokenizer, max_length=20)) == []
    assert list(foretrace.tokenize([row(*CHAT)], tokenizer, max_length=10_000)) == [whole]


def test_rows_without_trained_messages_are_left_out():
    assert list(foretrace.tokenize([row(*({**m, "trained": False} for m in CHAT))], FakeTokenizer())) == []


def test_tools_are_shown_and_none_means_none():
    tool = {"type": "function", "function": {"name": "bash", "description": "", "parameters": {"type": "object"}}}
    tokenizer = FakeTokenizer()
    (made,) = foretrace.tokenize([row(*CHAT, tools=(tool,))], tokenizer)
    assert tokenizer.decode(made["input_ids"]).startswith(f"{START}system\n[{{")
    assert trained_texts(tokenizer, made) == TRAINED


def test_arguments_as_text_for_a_template_that_wants_text():
    def wants_text(messages: Messages, tools: Any, generate: bool) -> str:
        def write(message: dict[str, Any]) -> str:
            functions = [call["function"] for call in message.get("tool_calls", ())]
            return message["content"] + "".join(f"@{each['name']}" + each["arguments"] for each in functions)

        return chatml([{**m, "content": write(m), "tool_calls": []} for m in messages], tools, generate)

    tokenizer = FakeTokenizer(wants_text)
    (made,) = foretrace.tokenize([row(*CHAT)], tokenizer)
    assert trained_texts(tokenizer, made)[0] == f'@bash{{"command": "ls"}}{END}\n'


# Templates that are refused.


def strips_thoughts(messages: Messages, tools: Any, generate: bool) -> str:
    """Drops the content of all but the last message, as templates do with earlier thinking."""
    return chatml([*({**m, "content": m["content"].strip()} for m in messages[:-1]), *messages[-1:]], tools, generate)


def drops_calls(messages: Messages, tools: Any, generate: bool) -> str:
    return chatml([{**m, "tool_calls": []} for m in messages], tools, generate)


def drops_text_beside_calls(messages: Messages, tools: Any, generate: bool) -> str:
    return chatml([{**m, "content": ""} if m.get("tool_calls") else m for m in messages], tools, generate)


def drops_results(messages: Messages, tools: Any, generate: bool) -> str:
    return chatml([m for m in messages if m["role"] != "tool"], tools, generate)


def first_call_only(messages: Messages, tools: Any, generate: bool) -> str:
    return chatml([{**m, "tool_calls": m.get("tool_calls", [])[:1]} for m in messages], tools, generate)


def python_arguments(messages: Messages, tools: Any, generate: bool) -> str:
    return chatml([{**m, "content": f"{m['content']}{m.get('tool_calls', '')}"} for m in messages], tools, generate)


def raises(messages: Messages, tools: Any, generate: bool) -> str:
    raise ValueError("roles must alternate")


TWO_CALLS = message("assistant", "", call("a", {}), call("b", {}, "c2"), train=True)


@pytest.mark.parametrize(
    ("template", "turn", "refusal"),
    [
        (strips_thoughts, CHAT[5], "does not keep earlier turns as they were .row k1, message 1"),
        (drops_calls, CHAT[1], "does not show tool calls or their results.* take the tokenizer of a model that calls"),
        (drops_results, CHAT[1], "does not show tool calls or their results"),
        (drops_text_beside_calls, THOUGHT, "does not show all of row k1, message 1"),
        (first_call_only, TWO_CALLS, "of a chat with 2 calls"),
        (python_arguments, THOUGHT, "as Python and not as JSON"),
        (raises, CHAT[1], "roles must alternate"),
    ],
)
def test_templates_that_would_train_something_else_are_refused(template: Template, turn: dict[str, Any], refusal: str):
    with pytest.raises(BuildError, match=refusal):
        list(foretrace.tokenize([row(CHAT[0], turn, CHAT[2], CHAT[6])], FakeTokenizer(template)))


def test_no_chat_template():
    tokenizer = FakeTokenizer()
    tokenizer.chat_template = None
    with pytest.raises(BuildError, match="no chat template"):
        foretrace.tokenize([], tokenizer)
