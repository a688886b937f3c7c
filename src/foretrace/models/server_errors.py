"""One clear line for each failure of a model server: which host and model, what happened, what to do."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

import msgspec

from foretrace.core.errors import ModelError, Parts, Setting, render_parts
from foretrace.models.address import ApiKey
from foretrace.models.context_overflow import is_overflow, is_shared_overflow
from foretrace.models.rate_limits import classify_limit, read_wait

_MAX_MESSAGE_CHARS = 300
"""Characters of a server's own message that are shown."""
_TOO_LARGE = re.compile(r"request too large", re.IGNORECASE)
_BUSY = frozenset({429, 503, 529})
CROWDED = "crowded"
"""Kind of a failure that fewer requests at a time avoid: those under way do not fit together into one context."""
_UNKNOWN_MODEL = re.compile(
    r"model.{0,200}(not found|not exist|unknown|no such|not supported)", re.IGNORECASE | re.DOTALL
)
_SERVERS = {
    "ollama": "an Ollama server",
    "openai": "an OpenAI-compatible server",
    "llamacpp": "llama.cpp's llama-server (others: openai:NAME)",
}


class ServerError(ModelError):
    """A failure of a server behind HTTP. It has two messages, both as parts (see `ForetraceError`).

    `parts` is the full line for the user: server, model, cause and remedy. `public_parts` is the same without the
    server's address, for what is stored: the address of a machine belongs in no trace. `render` writes the one and
    `public_message` the other, each in a style for its settings.
    """

    public_parts: Parts = ()
    cause: str = ""
    """What happened, without address and remedy."""


def public_message(error: ModelError, style: Callable[[Setting], str] = str) -> str:
    """Model, cause and remedy without the server's address, as it may stand in a trace; of another adapter's error,
    its whole message."""
    return render_parts((error.public_parts if isinstance(error, ServerError) else ()) or error.parts, style)


def public_cause(error: ModelError) -> str:
    """What happened, without address and remedy, as it may stand in a trace; of another adapter's error, its whole
    message."""
    return (error.cause if isinstance(error, ServerError) else "") or str(error)


@dataclass(frozen=True)
class ServerErrors:
    """Makes the errors of one model at one server."""

    origin: str
    """Scheme, host and port."""
    model: str
    kind: str
    """Name of the adapter."""
    key: ApiKey | None
    key_variable: str
    """Environment variable of the adapter's key; empty where there is none."""

    def make(
        self,
        cause: str,
        *remedy: str | Setting,
        kind: str,
        retryable: bool = False,
        retry_after_s: float | None = None,
    ) -> ServerError:
        """An error of one line, without the key.

        Args:
            cause: What happened; may quote the server.
            remedy: Parts of what to do, in our own words.
        """
        what = self.hide(f"model {self.model}: {cause}")
        todo = tuple(self.hide(part) if isinstance(part, str) else part for part in remedy)
        full, public = (shorten_line(text, 3 * _MAX_MESSAGE_CHARS) for text in (self._full(what), self._public(what)))
        error = ServerError(f"{full}; ", *todo, kind=kind, retryable=retryable, retry_after_s=retry_after_s)
        error.public_parts = (f"{public}; ", *(self._public(p) if isinstance(p, str) else p for p in todo))
        error.cause = shorten_line(self._public(self.hide(cause)))
        return error

    def hide(self, text: str) -> str:
        """The text without the key. Call it before the text is cut."""
        return self.key.hide(text) if self.key else text

    def _full(self, text: str) -> str:
        return f"{self.hide(self.origin)}, {text}"

    def _public(self, text: str) -> str:
        own = re.escape(urlsplit(self.origin).netloc)
        return re.sub(rf"https?://[^\s'\"]+|{own}" if own else r"https?://[^\s'\"]+", "(address)", text)

    def from_status(
        self, status: int, body: bytes, *, retry_after: str | None = None, location: str | None = None
    ) -> ModelError:
        """The error for an HTTP status other than 200.

        Args:
            retry_after: The header `Retry-After`.
            location: The header `Location`.
        """
        text = self.hide(body.decode("utf-8", "replace"))
        message = shorten_line(self.hide(read_error_message(body)))
        cause = f"HTTP {status} {message!r}" if message else f"HTTP {status}"
        wait = read_wait(text, retry_after)
        if 300 <= status < 400:
            remedy = ("give the final address as ", Setting("base_url"))
            return self.make(f"HTTP {status}, a redirect to {location}", *remedy, kind="redirect")
        if status == 401 or (status == 403 and "logprobs" not in text):
            return self._bad_key(status)  # without the server's message: some servers repeat the key
        if status == 429 and _TOO_LARGE.search(text):
            remedy = "one request is more than the account may use in a minute: lower "
            return self.make(cause, remedy, Setting("max_tokens"), " or ", Setting("max_turns"), kind="bad_request")
        if status == 402 or status in _BUSY:
            used_up = status == 402 or (status == 429 and classify_limit(text, wait) == "quota")
            return self._limited(cause, wait, used_up=used_up)
        if is_shared_overflow(message):
            return self.shared_overflow(cause)
        if is_overflow(message):
            return self.overflow(cause)
        if status == 404 or (status == 400 and _UNKNOWN_MODEL.search(message)):
            return self._not_found(cause, message)
        if status == 408:
            return self.make(cause, "try again later", kind="timeout", retryable=True, retry_after_s=wait)
        if status >= 500:
            remedy = "see the server's log, or try again"
            return self.make(cause, remedy, kind="server", retryable=True, retry_after_s=wait)
        remedy = "the server does not take this request: change the setting it names"
        return self.make(cause, remedy, kind="bad_request")

    def from_stream(self, error: object) -> ServerError:
        """The error for one that came inside a stream, after HTTP 200.

        Args:
            error: JSON of the server's `error` field.
        """
        text = self.hide(str(error))
        message = shorten_line(self.hide(_message_of(error)))
        if is_shared_overflow(message):
            return self.shared_overflow(f"stopped with {message!r}")
        if is_overflow(message):
            return self.overflow(repr(message))
        wait = read_wait(text)
        kind = classify_limit(text, wait)
        if kind or (isinstance(error, dict) and error.get("code") in _BUSY):
            return self._limited(f"stopped with {message!r}", wait, used_up=kind == "quota")
        remedy = "see the server's log, or try again"
        return self.make(f"stopped with {message!r}", remedy, kind="server", retryable=True)

    def _limited(self, cause: str, wait_s: float | None, *, used_up: bool) -> ServerError:
        if used_up:
            remedy = "the account's quota is used up: wait until it is renewed, or use another account or model"
            return self.make(cause, remedy, kind="quota", retry_after_s=wait_s)
        remedy = ("it is busy: lower ", Setting("concurrency"), ", or try again later")
        return self.make(cause, *remedy, kind="busy", retryable=True, retry_after_s=wait_s)

    def overflow(self, cause: str) -> ServerError:
        """The prompt is longer than the context."""
        remedy: Parts = ("raise the context length of the server",)
        if self.kind == "ollama":  # others are started with it
            remedy = ("raise ", Setting("context_length"))
        remedy = ("the prompt is longer than the context: ", *remedy, ", or lower ", Setting("max_turns"))
        return self.make(cause, *remedy, kind="overflow")

    def shared_overflow(self, cause: str, *, final: bool = False) -> ServerError:
        """The requests under way do not fit together into the context that they share.

        Args:
            final: no try of this request got through: it counts as one that is longer than the context.
        """
        remedy = (
            "the server's slots share one context, and all requests together were longer: give it more (llama-server: "
            "-c N), or lower ",
            Setting("concurrency"),
        )
        return self.make(cause, *remedy, kind="overflow" if final else CROWDED, retryable=not final)

    def broken_stream(self, cause: str) -> ServerError:
        """The stream ended before the reply did."""
        return self.make(cause, "try again; if it stays so, see the server's log", kind="stream", retryable=True)

    def bad_reply(self, cause: str) -> ServerError:
        """The reply does not have the form that it should."""
        return self.make(cause, f"check that this is the address of {self._server}", kind="bad_reply")

    def too_long(self, cause: str) -> ServerError:
        """The reply is longer than any that was asked for."""
        return self.make(cause, "the server does not hold to the token limit", kind="too_long")

    def _bad_key(self, status: int) -> ServerError:
        cause = "it refuses the key" if self.key else "it wants a key"
        home = f", or for its own host in {self.key_variable}" if self.key_variable else ""
        remedy = ("give a valid key in an environment variable that ", Setting("api_key_env"), f" names{home}")
        return self.make(f"HTTP {status}, {cause}", *remedy, kind="bad_key")

    def _not_found(self, cause: str, message: str) -> ServerError:
        if _UNKNOWN_MODEL.search(message):
            return self.make(cause, "the server does not have this model: name one that it lists", kind="not_found")
        remedy = f"there is no such path: check that this is the address of {self._server}"
        return self.make(cause, remedy, kind="not_found")

    @property
    def _server(self) -> str:
        return _SERVERS.get(self.kind, "the server")


class _ErrorBody(msgspec.Struct):
    """The forms in which servers wrap a message."""

    error: object = None
    message: object = None
    detail: object = None


def read_error_message(body: bytes) -> str:
    """The whole message in the body of an HTTP error, in whichever form the server wraps it."""
    text = body.decode("utf-8", "replace")
    try:
        parsed = msgspec.json.decode(body, type=_ErrorBody | list[_ErrorBody])
    except (msgspec.DecodeError, ValueError, RecursionError):
        return re.sub(r"<[^<>]*>", " ", text)
    if isinstance(parsed, list):  # Gemini's OpenAI-compatible interface
        parsed = parsed[0] if parsed else _ErrorBody()
    return _message_of(parsed.error or parsed.message or parsed.detail or text)


def _message_of(error: object) -> str:
    if isinstance(error, dict):
        # The code tells quota from concurrency where the message is vague.
        parts = [error.get("message"), error.get("code"), error.get("type")]
        return "; ".join(str(part) for part in parts if isinstance(part, str)) or str(error)
    return error if isinstance(error, str) else str(error)


def shorten_line(text: str, max_chars: int = _MAX_MESSAGE_CHARS) -> str:
    """The text on one line, without control characters, cut to a length."""
    flat = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return flat if len(flat) <= max_chars else f"{flat[: max_chars - 3]}..."
