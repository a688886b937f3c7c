"""The demo model's tokenizer: token ids of texts and of chats, and the bytes of each token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tokenizers import Tokenizer

from foretrace.core.completion import ChatMessage

START, END = "<|im_start|>", "<|im_end|>"
SPECIAL = ("<|endoftext|>", START, END)
"""Names of the special tokens. In the text of a message they are plain characters."""


class ChatTokenizer:
    """Encodes texts and chats by the content of a `tokenizer.json` (a byte-level BPE)."""

    def __init__(self, description: str) -> None:
        self._plain: Any = Tokenizer.from_str(description)
        self._plain.encode_special_tokens = True
        self._special: Any = Tokenizer.from_str(description)
        self.start_id: int = self._special.token_to_id(START)
        self.end_id: int = self._special.token_to_id(END)
        self.end_ids = frozenset((self.end_id, self._special.token_to_id(SPECIAL[0])))
        """Ids that end a reply."""
        added: dict[int, Any] = self._special.get_added_tokens_decoder()
        letters = _bytes_of_letters()
        self.token_bytes: list[bytes] = []
        """Bytes of each token, indexed by id; empty for a special token."""
        for number in range(self._special.get_vocab_size()):
            name: str = self._special.id_to_token(number)
            if number in added:
                self.token_bytes.append(b"" if name in SPECIAL else name.encode())
            else:
                self.token_bytes.append(bytes(letters[letter] for letter in name))

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """Ids of a text; `special` encodes the names of special tokens as those tokens."""
        reader = self._special if special else self._plain
        return list(reader.encode(text.encode("utf-8", "replace").decode(), add_special_tokens=False).ids)

    def render(self, messages: Sequence[ChatMessage], prefill: str = "") -> list[int]:
        """Ids of a conversation, up to the beginning of the assistant's reply."""
        ids: list[int] = []
        for message in messages:
            ids += [*self.render_opening(message.role), *self.encode(message.content), *self.render_closing()]
        return [*ids, *self.render_opening("assistant"), *self.encode(prefill)]

    def render_opening(self, role: str) -> list[int]:
        return [self.start_id, *self.encode(f"{role}\n")]

    def render_closing(self) -> list[int]:
        return [self.end_id, *self.encode("\n")]


def _bytes_of_letters() -> dict[str, int]:
    """The byte that each letter of a byte-level BPE stands for. Printable bytes are written as themselves."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return {chr(byte): byte for byte in shown} | {chr(256 + n): byte for n, byte in enumerate(hidden)}
