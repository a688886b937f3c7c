"""The prompts of an agent at work, for a proposer that was trained on a dataset."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from foretrace.core.errors import BuildError, Setting, UsageError
from foretrace.core.trace import Message, Provenance, Task, ToolSpec, Trace
from foretrace.dataset.prompts import RENDERER_VERSION, Prompts, make_token_counter
from foretrace.dataset.settings import TargetFormat, Window

_TASK = Task(id="agent", group="agent")
_PROVENANCE = Provenance(origin="imported", source="agent")


class _Settings(msgspec.Struct):
    target: TargetFormat
    max_context_tokens: int
    window: Window = "sliding"


class _Versions(msgspec.Struct):
    renderer: str


class _Manifest(msgspec.Struct):
    """What a manifest says of how prompts are made."""

    settings: _Settings
    versions: _Versions
    token_counter: str


class PromptRenderer:
    """Makes the prompts that the rows of a dataset have, for other messages."""

    def __init__(self, dataset: str | Path, *, tokenizer: str | Path | None = None) -> None:
        """
        Args:
            dataset: What the proposer was trained on; its manifest alone is read.
            tokenizer: What the dataset was built with.

        Raises:
            BuildError: `dataset` is none of ours, or its prompts look otherwise than those of this version.
            UsageError: the dataset was built with another tokenizer.
        """
        try:
            manifest = msgspec.json.decode((Path(dataset) / "manifest.json").read_bytes(), type=_Manifest)
        except (OSError, msgspec.DecodeError) as error:
            raise BuildError(f"{dataset}: is no dataset of ours: {error}") from None
        version = manifest.versions.renderer
        if version != RENDERER_VERSION:
            raise BuildError(
                f"{dataset}: its prompts are of version {version} of the renderer, and this is version "
                f"{RENDERER_VERSION}: build and train again, or use the foretrace that built it"
            )
        file = None if tokenizer is None else str(tokenizer)
        self._counter = make_token_counter(file)
        if self._counter.method != manifest.token_counter:
            why = f": the dataset's prompts are counted by {manifest.token_counter}, and not by {self._counter.method}"
            raise UsageError(Setting("tokenizer", file), why)
        self._settings = manifest.settings

    def render(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> list[dict[str, str]]:
        """The prompt for the agent's next message: `{"role", "content"}` each, as a chat server takes them.

        Args:
            messages: All that was said so far, from the beginning.
            tools: What the agent is offered.
        """
        trace = Trace(key="", task=_TASK, messages=tuple(messages), tools=tuple(tools), provenance=_PROVENANCE)
        settings = self._settings
        prompts = Prompts(trace, settings.target, settings.max_context_tokens, self._counter, settings.window)
        return [message._asdict() for message in prompts.render(len(messages))]
