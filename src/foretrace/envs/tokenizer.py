"""A Hugging Face tokenizer as what makes ids of text for an episode, and the proof that it is the model's own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from foretrace.core.completion import ChatMessage, Request, Sampling
from foretrace.core.errors import UsageError
from foretrace.models.base import ChatModel, TokenModel
from foretrace.models.demo_model import CHECKPOINT

DEMO_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
"""The demo model's chat template (`models/_demo_text.Text.render`) in Jinja."""
_TEXTS = ("def f(x):\n    return x + 1\n", 'Größe "é" 🙂\t<tool_call> 1234567', "  \n\n</think>\n```python\n")
_KEPT_PROMPTS = 256
"""Prompts whose ids are kept: all rollouts of a problem begin alike, and a template costs more than a small episode."""
_CHAT = (ChatMessage("system", "Be brief."), ChatMessage("user", "Say: ok\n"))


class LocalTokens:
    """What a tokenizer makes of text and messages (see `models.base.TokenModel`).

    Args:
        tokenizer: of transformers 4 or 5, with a `tokenizer.json` behind it.
        name: how it is called in messages.

    Raises:
        UsageError: it has no chat template, or is not of the fast kind.
    """

    def __init__(self, tokenizer: Any, name: str = "the tokenizer") -> None:
        from tokenizers import Tokenizer

        backend: Any = getattr(tokenizer, "backend_tokenizer", None)
        if not hasattr(backend, "to_str"):
            raise UsageError(f"{name}: no fast tokenizer; give a folder with a tokenizer.json")
        self.name = name
        self._tokenizer = tokenizer
        self._special: Any = Tokenizer.from_str(backend.to_str())
        self._plain: Any = Tokenizer.from_str(backend.to_str())
        for one in (self._special, self._plain):
            one.no_padding()
            one.no_truncation()
        self._plain.encode_special_tokens = True
        self._told = lru_cache(_KEPT_PROMPTS)(self._told_afresh)
        self.end, self.ends = self._ends()

    async def tokenize(self, text: str, *, special: bool = False) -> list[int]:
        """Ids of a text (see `models.base.TokenModel.tokenize`)."""
        return self.encode(text, special=special)

    async def render(self, messages: Sequence[ChatMessage]) -> list[int]:
        """Ids of messages under the chat template (see `models.base.TokenModel.render`)."""
        return self.rendered(messages)

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """Ids of a text; without `special`, no text spells a control token."""
        reader = self._special if special else self._plain
        return list(reader.encode(text, add_special_tokens=False).ids)

    def rendered(self, messages: Sequence[ChatMessage], *, open_reply: bool = True) -> list[int]:
        """Ids of messages under the chat template, with the assistant's reply begun or not.

        Raises:
            UsageError: there is no template, or it refuses the messages.
        """
        return list(self._told(tuple(messages), open_reply))

    def _told_afresh(self, messages: tuple[ChatMessage, ...], open_reply: bool) -> tuple[int, ...]:
        told = [{"role": m.role, "content": m.content} for m in messages]
        try:
            ids = self._tokenizer.apply_chat_template(
                told, tokenize=True, return_dict=False, add_generation_prompt=open_reply
            )
        except Exception as error:  # a template raises what it likes
            why = str(error).strip().split("\n")[0]
            raise UsageError(f"{self.name}: its chat template cannot render the messages: {why}") from None
        return tuple(int(number) for number in ids)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Text of each id; a character that spans several stands in the last of them, and a control token has none."""
        from tokenizers.decoders import DecodeStream

        stream: Any = DecodeStream(skip_special_tokens=True)
        return [stream.step(self._special, number) or "" for number in ids]

    def _ends(self) -> tuple[int, frozenset[int]]:
        """The id that ends an assistant's turn under the template, and all ids that end a reply."""
        user = ChatMessage("user", "Go on.")
        begun = self.rendered([user])
        whole = self.rendered([user, ChatMessage("assistant", "yes")], open_reply=False)
        eos: int | None = self._tokenizer.eos_token_id
        behind = [number for number in whole[len(begun) :] if self._is_control(number)]
        known = [number for number in (*behind[:1], eos) if number is not None]
        if not known:
            raise UsageError(f"{self.name}: it has no token that ends a turn (eos_token)")
        return known[0], frozenset(known)

    def _is_control(self, number: int) -> bool:
        added: dict[int, Any] = self._special.get_added_tokens_decoder()
        return number in added and bool(added[number].special)


async def check_same(local: LocalTokens, model: ChatModel) -> None:
    """Refuse a tokenizer that is not the model's own, as far as its server lets see.

    A server that makes ids of text is asked for some; another is asked how many tokens a prompt has.

    Raises:
        UsageError: they differ, or the model's template changes earlier turns.
        ModelError: the server failed.
    """
    remedy = f"the tokenizer {local.name} is not the one of {model.spec}: give the model's own (--env.tokenizer_name)"
    if isinstance(model, TokenModel) and (await model.probe()).token_prompts:
        for text in _TEXTS:
            for special in (False, True):
                if await model.tokenize(text, special=special) != local.encode(text, special=special):
                    raise UsageError(f"{remedy}; they differ on {text!r}")
        if await model.render(_CHAT) != local.rendered(_CHAT):
            raise UsageError(f"{remedy}; their chat templates differ")
        return
    seen = await model.complete(Request(messages=_CHAT, sampling=Sampling(temperature=0.0, max_tokens=1)))
    counted = seen.usage.prompt_tokens if seen.usage else None
    if counted is not None and counted != (own := len(local.rendered(_CHAT))):
        raise UsageError(f"{remedy}; the server counts {counted} tokens where it counts {own}")


def demo_folder(folder: Path) -> Path:
    """Write the demo model's tokenizer as transformers reads it; returns the folder, which is made."""
    source = CHECKPOINT / "tokenizer.json"
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "clean_up_tokenization_spaces": False,
        "model_max_length": 1 << 20,
        "chat_template": DEMO_TEMPLATE,
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_bytes(source.read_bytes())
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    return folder
