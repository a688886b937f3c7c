"""The contract of a model server: complete one request, and report what the server supports.

To add one, write a module in `servers/` whose `PLUGIN` has the members of `ChatModel`, and list it in `BUILT_IN` of
`core/plugins.py`. It is created from a model's name and a `Server`. If it works on token ids, it also has the members
of `TokenModel`. See docs/models.md.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, Self, TypeAlias, runtime_checkable

import msgspec

from foretrace.core.completion import Capabilities, ChatMessage, Completion, Request
from foretrace.core.errors import ModelError

OnRetry: TypeAlias = Callable[[ModelError, float], Awaitable[None]]
"""Called before a retry, with the failure and the seconds to wait. It does the waiting, and may wait longer."""


class Server(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a model server is, and how patient to be with it."""

    base_url: str | None = None
    """`None` means the adapter's default."""
    api_key: str | None = None
    """`None` means the adapter's environment variable, which is only sent to its own host. Never recorded."""
    context_length: int | None = None
    """Context length in tokens to request from the server (Ollama's num_ctx); `None` means the adapter's default."""
    timeout_s: float = 300.0
    """The longest that the server may be silent within one completion."""
    retries: int = 4
    """How often a request is retried after a failure that may pass."""
    options: dict[str, str] = {}
    """Adapter-specific options, by name."""

    def list_settings_except(self, *supported: str) -> list[str]:
        """Names of the settings that are not at their defaults and not in `supported`: the model refuses them."""
        defaults = msgspec.structs.asdict(Server())
        changed = [name for name, value in msgspec.structs.asdict(self).items() if value != defaults[name]]
        return [name for name in changed if name not in supported]

    def __repr__(self) -> str:
        key = None if self.api_key is None else "***"
        return f"Server(base_url={self.base_url!r}, api_key={key}, options={self.options!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("base_url", self.base_url), ("options", self.options)]


class ChatModel(Protocol):
    """A model behind a server, or in this process."""

    name: str
    """The model's name, e.g. `qwen3-coder`."""
    spec: str
    """The name a user gave, e.g. `ollama:qwen3-coder`; recorded in every trace."""
    endpoint: str
    """Scheme and host of the server, for messages and for concurrency limits; empty for a model in this process."""

    async def probe(self) -> Capabilities:
        """Find out what the server supports with small requests. The result is cached.

        Raises:
            ModelError: the server cannot be reached, does not know the model, or refuses the key; the message says what
                to do.
        """
        ...

    async def complete(self, request: Request) -> Completion:
        """Complete one request. Failures that may pass are retried up to `Server.retries` times.

        Raises:
            ModelError: the request failed for good; `retryable` says whether trying the whole episode again later may
                help.
            UsageError: the request needs something that the server does not support.
        """
        ...

    async def close(self) -> None:
        """Close connections. May be called twice."""
        ...

    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *error: object) -> None: ...


@runtime_checkable
class ConfiguredModel(Protocol):
    """A model with its own settings, besides the sampling, that change what it writes."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """The settings by name. They are part of each attempt's key and are recorded in `Provenance.sampling`. They
        leave out the server's address (the same model at another address is the same model) and settings that only
        affect waiting."""
        ...


@runtime_checkable
class RetryingModel(Protocol):
    """A model that retries failed requests itself, and reports each failure to the caller at once."""

    async def complete_with_retries(self, request: Request, on_retry: OnRetry) -> Completion:
        """Like `ChatModel.complete`, but awaits `on_retry` instead of waiting before each retry."""
        ...


@runtime_checkable
class TokenModel(Protocol):
    """A model that works on token ids, so that an episode can control its exact prompt."""

    async def tokenize(self, text: str, *, special: bool = False) -> list[int]:
        """Ids of a text; `special` encodes the names of special tokens as those tokens."""
        ...

    async def render(self, messages: Sequence[ChatMessage]) -> list[int]:
        """Ids of messages in the model's template, ready for the assistant's reply."""
        ...


class ClosingModel:
    """A model as a context manager, closed at the end of the block."""

    async def close(self) -> None:
        """Nothing to close."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()


class ModelWrapper(ClosingModel):
    """A `ChatModel` around another one; it behaves the same except where a subclass overrides it."""

    def __init__(self, model: ChatModel) -> None:
        self._model = model
        self.name, self.spec, self.endpoint = model.name, model.spec, model.endpoint

    async def probe(self) -> Capabilities:
        return await self._model.probe()

    async def complete(self, request: Request) -> Completion:
        return await self._model.complete(request)

    async def close(self) -> None:
        await self._model.close()
