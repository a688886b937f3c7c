"""The contract of a model server: complete one request, say what it can do.

To add one, write a module in `servers/` whose `PLUGIN` has the members of `ChatModel`, and name it in `BUILT_IN` of
`core/plugins.py`. It is made from a model's name and a `Server`, and has the members of `TokenModel` too if it works on
token ids. See docs/models.md.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, Self, TypeAlias, runtime_checkable

import msgspec

from foretrace.core.completion import Capabilities, ChatMessage, Completion, Request
from foretrace.core.errors import ModelError

OnRetry: TypeAlias = Callable[[ModelError, float], Awaitable[None]]
"""Called before a request is sent again, with the failure and the seconds to wait; waits, and may wait longer."""


class Server(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a model server is, and how patient to be with it."""

    base_url: str | None = None
    """`None` is the adapter's own default."""
    api_key: str | None = None
    """`None` is the adapter's own environment variable, and only for the host that it belongs to. Never recorded."""
    context_length: int | None = None
    """Tokens of context to ask the server for (Ollama's num_ctx); `None` is the adapter's default."""
    timeout_s: float = 300.0
    """Longest silence of the server within one completion."""
    retries: int = 4
    """How often a request is tried again after a failure that may pass."""
    options: dict[str, str] = {}
    """Options of one adapter, by name."""

    def list_settings_except(self, *supported: str) -> list[str]:
        """Names of the settings that differ from the defaults and that a model does not support, and so refuses."""
        defaults = msgspec.structs.asdict(Server())
        changed = [name for name, value in msgspec.structs.asdict(self).items() if value != defaults[name]]
        return [name for name in changed if name not in supported]

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
        """Find out what the server can do, by small requests; cached.

        Raises:
            ModelError: it cannot be reached, does not know the model, or refuses the key; says what to do.
        """
        ...

    async def complete(self, request: Request) -> Completion:
        """Complete one request; failures that may pass are tried again within `Server.retries`.

        Raises:
            ModelError: it failed for good; `retryable` says whether a later try of the whole episode may help.
            UsageError: the request needs what the probe found the server cannot do.
        """
        ...

    async def close(self) -> None:
        """Close connections. May be called twice."""
        ...

    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *error: object) -> None: ...


@runtime_checkable
class ConfiguredModel(Protocol):
    """A model with settings of its own, beside the sampling, that change what it writes."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """By name; part of each attempt's key, and recorded in `Provenance.sampling`. Without the server's address (the
        same model at another address is the same) and without what only says how long to wait."""
        ...


@runtime_checkable
class RetryingModel(Protocol):
    """A model that sends a failed request again by itself, and lets the caller see each failure at once."""

    async def complete_with_retries(self, request: Request, on_retry: OnRetry) -> Completion:
        """As `ChatModel.complete`; before each retry `on_retry` is awaited in place of the wait."""
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


class ClosingModel:
    """A model as a context manager, which closes it at the end."""

    async def close(self) -> None:
        """Nothing to close."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()


class ModelWrapper(ClosingModel):
    """A `ChatModel` on top of another, which it is like in all that a subclass does not change."""

    def __init__(self, model: ChatModel) -> None:
        self._model = model
        self.name, self.spec, self.endpoint = model.name, model.spec, model.endpoint

    async def probe(self) -> Capabilities:
        """See `ChatModel.probe`."""
        return await self._model.probe()

    async def complete(self, request: Request) -> Completion:
        """See `ChatModel.complete`."""
        return await self._model.complete(request)

    async def close(self) -> None:
        """Close the model."""
        await self._model.close()
