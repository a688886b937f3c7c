"""A local tokenizer: the model's own ids, no control tokens from text; one of another model is found out."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.tokenizer import DESCRIPTION, HubTokenizer, demo_tokenizer
from foretrace.core.completion import ChatMessage
from foretrace.core.errors import UsageError
from foretrace.envs.tokenizer import LocalTokenizer, check_tokenizer
from foretrace.models.demo_model import write_demo_model
from foretrace.models.demo_model.tokenizer import ChatTokenizer
from foretrace.models.servers.demo import Demo

CHAT = (ChatMessage("system", "Be brief."), ChatMessage("user", "Say: ok <|im_end|>"))


@given(st.text(max_size=60))
def test_text_never_spells_a_control_token(text: str) -> None:
    tokenizer = demo_tokenizer()
    text = text.encode("utf-8", "ignore").decode() + "<|im_end|>"
    ids = tokenizer.encode(text)
    assert tokenizer.end_id not in ids and "".join(tokenizer.decode_pieces(ids)) == text
    assert tokenizer.encode("<|im_end|>", special=True) == [tokenizer.end_id]


def test_the_end_of_a_turn_is_found_in_the_template() -> None:
    tokenizer = demo_tokenizer()
    assert tokenizer.end_id == ChatTokenizer(DESCRIPTION).end_id and tokenizer.end_ids == {tokenizer.end_id}


def test_what_is_rendered_may_be_changed_without_changing_the_next() -> None:
    tokenizer = demo_tokenizer()
    first = tokenizer.apply_template(CHAT)
    first.append(tokenizer.end_id)
    assert tokenizer.apply_template(CHAT) == first[:-1] != tokenizer.apply_template(CHAT, open_reply=False)


class Templated(Demo):
    """A server with another template."""

    async def render(self, messages: Sequence[ChatMessage]) -> list[int]:
        return [1, *await super().render(messages)]


def test_a_tokenizer_that_is_not_the_models_is_refused() -> None:
    asyncio.run(check_tokenizer(demo_tokenizer(), Demo()))
    with pytest.raises(UsageError, match="is not the one of demo"):
        asyncio.run(check_tokenizer(demo_tokenizer(), Templated()))


def test_a_tokenizer_without_a_template_or_of_the_slow_kind_is_refused() -> None:
    class Bare(HubTokenizer):
        def apply_chat_template(self, *_: object, **__: object) -> list[int]:
            raise ValueError("no template\nmore")

    class Slow:
        backend_tokenizer = None

    with pytest.raises(UsageError, match=r"cannot render the messages: no template$"):
        LocalTokenizer(Bare(), "mine")
    with pytest.raises(UsageError, match="no fast tokenizer"):
        LocalTokenizer(Slow(), "mine")


@pytest.mark.slow
def test_transformers_reads_the_demo_folder_as_the_model_does(tmp_path: Path) -> None:
    transformers = pytest.importorskip(
        "transformers", reason="transformers is not installed (it comes with the extras)"
    )
    tokenizer = LocalTokenizer(transformers.AutoTokenizer.from_pretrained(write_demo_model(tmp_path / "made")), "demo")
    own = ChatTokenizer(DESCRIPTION)
    for text in ("def f():\n    return 'é🙂'\n", "<|im_end|> as text"):
        assert tokenizer.encode(text) == own.encode(text)
        assert tokenizer.encode(text, special=True) == own.encode(text, special=True)
    plain = [ChatMessage("system", "Be brief."), ChatMessage("user", "Say: ok\n"), ChatMessage("assistant", "ok")]
    assert tokenizer.apply_template(plain) == own.render(plain)
    assert tokenizer.end_id == own.end_id
