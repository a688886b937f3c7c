"""What trainers store holds no secret, as what `generate` stores."""

from __future__ import annotations

import asyncio
import random
import string
from pathlib import Path

import zstandard

from foretrace.core.store import read_traces
from foretrace.core.trace import Message, Provenance, Task, Trace
from foretrace.envs.trace_sink import TraceSink

TOKEN = "ghp_" + "".join(random.Random(1).choices(string.ascii_letters + string.digits, k=36))


def test_secrets_are_taken_out_before_anything_is_written(tmp_path: Path) -> None:
    said = Message(role="assistant", author="model", content=f"I log in with {TOKEN}.")
    origin = Provenance(origin="generated", source="s")
    trace = Trace(key="s/0", task=Task(id="s", group="s"), messages=(said,), provenance=origin)

    async def store() -> None:
        sink = TraceSink(str(tmp_path / "t"), "test")
        await sink.put(trace)
        (journal,) = tmp_path.rglob("*.zst")
        with zstandard.open(journal, "rt") as lines:
            written = lines.read()
        assert "I log in with" in written and TOKEN not in written
        await sink.close()

    asyncio.run(store())
    (stored,) = read_traces(tmp_path / "t")
    assert stored.messages[0].content == "I log in with <SECRET:github_token:1>."
    assert any(name.startswith("redact") for name in stored.provenance.transforms)
