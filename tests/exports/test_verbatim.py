"""Generated traces are exported as the text that the model wrote, character for character.

With `FORETRACE_VERBATIM_SAMPLES=7` it is 630 traces.
"""

from __future__ import annotations

import functools
import json
import os
from pathlib import Path
from typing import Any

import pytest

import foretrace
from foretrace.core.trace import Sampled, Trace
from foretrace.models.demo_model.tokenizer import SPECIAL
from foretrace.models.servers.demo import load_checkpoint

SAMPLES = int(os.environ.get("FORETRACE_VERBATIM_SAMPLES", "0"))
PROTOCOLS = ("inline", "interleaved", "interleaved_tools", "structured", "tools")


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_the_demo_model_wrote(protocol: str, tmp_path: Path) -> None:
    """The assistant's text of a row is that of the trace, and this is what the sampled ids spell."""
    settings: dict[str, Any] = {"samples": SAMPLES} if SAMPLES else {"limit": 6}
    foretrace.generate("builtin", model="demo", protocol=protocol, out=tmp_path / "traces", temperature=1.0, **settings)
    foretrace.export(tmp_path / "traces", format="chat", out=tmp_path / "chat.jsonl")
    rows = {row["id"]: row for row in map(json.loads, (tmp_path / "chat.jsonl").read_text().splitlines())}
    traces = list(foretrace.read_traces(tmp_path / "traces"))
    assert len(rows) == len(traces) == (18 * SAMPLES or 6)
    for trace in traces:
        texts = [message["content"] for message in rows[trace.key]["messages"] if message["role"] == "assistant"]
        assert "".join(texts) == "".join(message.content for message in trace.messages if message.role == "assistant")
        check_ids(trace)


def check_ids(trace: Trace) -> None:
    """A reply that was cut has the ids of what is left as text: those are not the sampled ones."""
    for message in trace.messages:
        if message.author == "model" and message.sampled is not None and message.sampled.exact == "token":
            assert spell(message.sampled) == message.content


@functools.cache
def load_tokenizer() -> Any:
    tokenizer, _ = load_checkpoint()
    return tokenizer._special


def spell(sampled: Sampled) -> str:
    """The text of the ids, without control tokens: a server shows none of them."""
    text = load_tokenizer().decode(list(sampled.token_ids), skip_special_tokens=False)
    for name in SPECIAL:
        text = text.replace(name, "")
    return text
