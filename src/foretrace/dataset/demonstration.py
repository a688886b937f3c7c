"""Traces of the demo model. A dataset that contains them is a demonstration: built only on request, never pushed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from foretrace.core.errors import Setting, UsageError
from foretrace.core.store import TraceStore
from foretrace.core.trace import DEMO_MODEL


def is_demo_model(model: str | None) -> bool:
    """Whether a trace's model is the demo model, in this process or on a server.

    The kind of server, a folder, `.gguf`, a tag and case are ignored: `ollama:demo-model:latest` is the demo model.
    """
    parts = (model or "").casefold().replace("\\", "/").split(":")
    return any(part.rpartition("/")[2].removesuffix(".gguf") == DEMO_MODEL for part in parts)


def refuse_demo_traces(stores: Sequence[TraceStore]) -> None:
    """Refuse traces of the demo model; reads one column of each segment."""
    found = [(store.folder, *_count_demo_traces(store)) for store in stores]
    holding = [f"{folder}: {count:,} of {total:,} traces" for folder, count, total in found if count]
    if holding:
        raise UsageError(
            f"{', '.join(holding)} come from the demo model, and what it writes is never training data: build without "
            "them, or allow a dataset that is marked as a demonstration with ",
            Setting("allow_demo", True),
        )


def describe_demonstration(manifest: Mapping[str, Any]) -> str | None:
    """The warning for a dataset with traces of the demo model; `None` for any other."""
    counts = manifest.get("counts") or {}
    count = counts.get("traces_of_demo_model", 0)
    if not count:
        return None
    return (
        f"{count:,} of {counts['traces']:,} traces come from the demo model: "
        "this dataset is a demonstration, never training data"
    )


def _count_demo_traces(store: TraceStore) -> tuple[int, int]:
    models = Counter(store.read_columns("model")["model"].to_pylist())
    return sum(count for model, count in models.items() if is_demo_model(model)), models.total()
