"""The demo model's tokenizer in the shape that transformers gives tokenizers, without transformers."""

from __future__ import annotations

from typing import Any

from tokenizers import Tokenizer

from foretrace.core.completion import ChatMessage
from foretrace.envs.tokenizer import LocalTokenizer
from foretrace.models.demo_model import CHECKPOINT
from foretrace.models.demo_model.tokenizer import ChatTokenizer

DESCRIPTION = (CHECKPOINT / "tokenizer.json").read_text(encoding="utf-8")


class HubTokenizer:
    """As far as `LocalTokenizer` looks."""

    def __init__(self) -> None:
        self.backend_tokenizer: Any = Tokenizer.from_str(DESCRIPTION)
        self._text = ChatTokenizer(DESCRIPTION)
        self.eos_token_id = self._text.end_id

    def apply_chat_template(
        self, messages: list[dict[str, str]], *, add_generation_prompt: bool, **_: Any
    ) -> list[int]:
        ids = self._text.render([ChatMessage(m["role"], m["content"]) for m in messages])  # type: ignore[arg-type]
        return ids if add_generation_prompt else ids[: -len(self._text.render_opening("assistant"))]


def demo_tokenizer() -> LocalTokenizer:
    return LocalTokenizer(HubTokenizer(), "demo")
