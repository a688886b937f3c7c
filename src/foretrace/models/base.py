"""The contract of a model server: complete one request, say what it can do.

To add a model server, drop a file in this folder with a `PLUGIN` class that is made from a model name and `Server`, and
has the methods of `ChatModel` (and of `TokenModel`, where it works on token ids). See docs/models.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, Self, runtime_checkable

import msgspec

from foretrace.core.completion import Capabilities, ChatMessage, Completion, Request


class Server(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a model server is, and how patient to be with it."""

    base_url: str | None = None
    """Null is the adapter's own default."""
    api_key: str | None = None
    """Null is the adapter's own environment variable, and only for the host it belongs to. Never recorded."""
    context_length: int | None = None
    """Tokens of context to ask the server for (Ollama's num_ctx); null is the adapter's default."""
    timeout_s: float = 300.0
    """Longest silence of the server within one completion, seconds."""
    retries: int = 4
    """How often a request is tried again after a failure that may pass."""
    options: dict[str, str] = {}
    """Options of one adapter, by name."""

    def beside(self, *taken: str) -> list[str]:
        """Names of the settings that were given and are none of these: a model refuses those that it would ignore."""
        known = msgspec.structs.asdict(Server())
        return [
            name for name, value in msgspec.structs.asdict(self).items() if value != known[name] and name not in taken
        ]

    def __repr__(self) -> str:
        key = None if self.api_key is None else "***"
        return f"Server(base_url={self.base_url!r}, api_key={key}, options={self.options!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("base_url", self.base_url), ("options", self.options)]


class ChatModel(Protocol):
    """A model behind a server (or in this process)."""

    name: str
    """The model's name, e.g. `qwen3-coder`."""
    spec: str
    """How a user named it, e.g. `ollama:qwen3-coder`; recorded in every trace."""
    endpoint: str
    """Scheme and host of the server, for messages and for limits of concurrency; empty for a model in this process."""

    async def probe(self) -> Capabilities:
        """Find out what the server does, by small requests; cached.

        Raises:
            ModelError: it cannot be reached, does not know the model, or refuses the key; says what to do.
        """
        ...

    async def complete(self, request: Request) -> Completion:
        """Complete one request; failures that may pass are tried again within `Server.retries`.

        Raises:
            ModelError: it failed for good; `retryable` says whether a later try of the whole episode may help.
            UsageError: the request asks for what the server was found not to do.
        """
        ...

    async def close(self) -> None:
        """Close connections. May be called twice."""
        ...

    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *error: object) -> None: ...


@runtime_checkable
class Configured(Protocol):
    """A model with settings of its own, beside the sampling, that change what it writes."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """A part of each attempt's key, recorded in `Provenance.sampling`. Not the server's address (the same model
        behind another one is the same), and nothing that only says how long to wait."""
        ...


@runtime_checkable
class TokenModel(Protocol):
    """A model that works on token ids, so that an episode can own its prompt."""

    async def tokenize(self, text: str, *, special: bool = False) -> list[int]:
        """Ids of a text; `special` reads the names of special tokens as such."""
        ...

    async def render(self, messages: Sequence[ChatMessage]) -> list[int]:
        """Ids of messages under the model's own template, ready for the assistant's reply."""
        ...
