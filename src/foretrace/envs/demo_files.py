"""The demo model as files that other libraries load: a tokenizer for transformers, and weights for TRL."""

from __future__ import annotations

import json
from pathlib import Path

from foretrace.models.demo_model import CHECKPOINT

DEMO_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
"""The demo model's chat template (`models.demo_model.tokenizer.ChatTokenizer.render`) in Jinja."""


def write_demo_tokenizer(folder: Path | str) -> str:
    """Write the demo model's tokenizer as transformers loads it.

    Returns:
        The folder, which is made.
    """
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "clean_up_tokenization_spaces": False,
        "model_max_length": 1 << 20,
        "chat_template": DEMO_TEMPLATE,
    }
    Path(folder).mkdir(parents=True, exist_ok=True)
    Path(folder, "tokenizer_config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    return _copy(folder, "tokenizer.json")


def write_demo_model(folder: Path | str) -> str:
    """Write the demo model as transformers loads it, a Qwen3 with its tokenizer, for a first try without a network; it
    has ten problems by heart.

    Returns:
        The folder, which is made.
    """
    return _copy(write_demo_tokenizer(folder), "config.json", "model.safetensors")


def _copy(folder: Path | str, *names: str) -> str:
    for name in names:
        Path(folder, name).write_bytes((CHECKPOINT / name).read_bytes())
    return str(folder)
