"""A tiny chat model made on the spot: tokenizer, template, random weights; and the same chat written by hand."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

QUIET_ON_CPU: dict[str, Any] = {
    "logging_steps": 1,
    "report_to": "none",
    "save_strategy": "no",
    "disable_tqdm": True,
    "use_cpu": True,
    "bf16": False,
}
"""Settings of TRL's trainers in these tests."""
PAD, START, END = "<|pad|>", "<|im_start|>", "<|im_end|>"
TEMPLATE = (
    "{%- if tools %}{{ '<|im_start|>system\\n# Tools\\n' }}"
    "{%- for tool in tools %}{{ tool | tojson + '\\n' }}{% endfor %}"
    "{{ '<|im_end|>\\n' }}{% endif %}"
    "{%- for message in messages %}{{ '<|im_start|>' + message.role + '\\n' + message.content }}"
    "{%- for call in message.tool_calls or [] %}{{ '\\n<tool_call>\\n' }}"
    "{{- '{\"name\": \"' + call.function.name + '\", \"arguments\": ' + call.function.arguments | tojson + '}' }}"
    "{{- '\\n</tool_call>' }}{% endfor %}"
    "{{- '<|im_end|>\\n' }}{% endfor %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
"""ChatML that keeps earlier turns as they were."""


class Turn(NamedTuple):
    """One message as text: what stands before the model's part, and that part (of a tool or user: all of it)."""

    header: str
    body: str
    trained: bool


def turns(messages: Iterable[dict[str, Any]], tools: Iterable[Any] = ()) -> list[Turn]:
    """The chat as `TEMPLATE` writes it, without the template."""
    listed = "".join(json.dumps(tool, ensure_ascii=False) + "\n" for tool in tools)
    made = [Turn(f"{START}system\n", f"# Tools\n{listed}{END}\n", False)] if listed else []
    for message in messages:
        calls = "".join(_call(**call["function"]) for call in message.get("tool_calls") or [])
        body = f"{message['content']}{calls}{END}\n"
        made.append(Turn(f"{START}{message['role']}\n", body, message.get("trained", False)))
    return made


def _call(name: str, arguments: Any) -> str:
    given = json.dumps(arguments, ensure_ascii=False)
    return f'\n<tool_call>\n{{"name": "{name}", "arguments": {given}}}\n</tool_call>'


def text_of(chat: Iterable[Turn]) -> str:
    """The chat as one text."""
    return "".join(turn.header + turn.body for turn in chat)


def train_tokenizer(texts: Iterable[str]) -> Any:
    """Byte-level BPE of 2,000 ids that cuts text into words as Qwen's does: it can spell every text, and newlines
    merge."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    words = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(words), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    _train(tokenizer, texts, [], pre_tokenizers.ByteLevel.alphabet())
    return _chat_tokenizer(tokenizer)


def train_spaced_tokenizer(texts: Iterable[str]) -> Any:
    """One in the manner of SentencePiece and the older Llamas: it puts a space before every text, and spells what it
    does not know, newlines among it, in bytes."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    tokenizer = Tokenizer(models.BPE(byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="first")])
    lines = (line for text in texts for line in text.splitlines())
    _train(tokenizer, lines, [f"<0x{n:02X}>" for n in range(256)], [])
    return _chat_tokenizer(tokenizer)


def _train(tokenizer: Any, texts: Iterable[str], special: list[str], alphabet: list[str]) -> None:
    from tokenizers import trainers

    trainer = trainers.BpeTrainer(
        vocab_size=2000, special_tokens=[PAD, START, END, *special], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)


def _chat_tokenizer(tokenizer: Any) -> Any:
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token=PAD, eos_token=END, chat_template=TEMPLATE)


def make_model(tokenizer: Any) -> Any:
    """Two layers with random weights, the same every time."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=32768,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        tie_word_embeddings=True,
    )
    return Qwen2ForCausalLM(config)
