"""One clear line for each failure of a model server: which host and model, what happened, what to do.

Also parses what servers say about context length and waiting, since busy servers and used-up quotas use similar words.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

import msgspec

from foretrace.core.errors import ModelError, Parts, Setting, render_parts
from foretrace.models.address import ApiKey

_MAX_MESSAGE_CHARS = 300
"""The most characters of a server's message that are shown."""
_TOO_LARGE = re.compile(r"request too large", re.IGNORECASE)
_BUSY = frozenset({429, 503, 529})
CROWDED = "crowded"
"""Kind of a failure that fewer requests would avoid: those in flight do not fit together into one shared context."""
_UNKNOWN_MODEL = re.compile(
    r"model.{0,200}(not found|not exist|unknown|no such|not supported)", re.IGNORECASE | re.DOTALL
)
_SERVERS = {
    "ollama": "an Ollama server",
    "openai": "an OpenAI-compatible server",
    "llamacpp": "llama.cpp's llama-server (others: openai:NAME)",
}


MIN_REPLY_TOKENS = 64
"""A shorter reply is not worth a request."""
_OVERFLOW = re.compile(
    r"exceed_context_size|context_length_exceeded|exceeds? the (available |maximum )?(context|model.s maximum)"
    r"|maximum context length|input length exceeds|longer than the (context|maximum model)"
    r"|context (window|size) exceeded|tokens \+ .max_new_tokens. must be",
    re.IGNORECASE,
)
_SHARED_OVERFLOW = re.compile(r"context size has been exceeded", re.IGNORECASE)
"""How a llama-server whose slots share one context ends all requests in flight when together they exceed it."""
_CONTEXT = re.compile(r"(?:context length (?:is|of)|max_new_tokens. must be <=) (\d{1,9})\b")
_PROMPT = re.compile(
    r"\b(\d{1,9}) (?:in the messages|in your prompt|of text input|input tokens|tokens from the input|.inputs. tokens)"
)
_REPLY = re.compile(r"completion|in the output|output tokens|max_(?:completion_|new_)?tokens")
_LOWER_BOUND = re.compile(r"at least|upper bound")
"""Newer vLLM stops counting once the prompt no longer fits, so the number that it names is not the length."""
MAX_WAIT_S = 120.0
"""The longest wait that a server may ask for. If it asks for more, the request fails."""
_USED_UP = re.compile(
    r"insufficient[_ ](quota|balance|credit|fund)|credit balance|(more|of|available) credits"
    r"|(usage|spend|spending|hard).limit|billing_not_active|limit: 0(?![\d.])|PerDay",
    re.IGNORECASE,
)
"""Means a used-up quota, regardless of the rest of the message."""
_PER_MINUTE = re.compile(
    r"per[ _-]?(min|minute|sec|second)s?\b|PerMinute|PerSecond|/ ?(min|sec|s)\b|\b[TR]PM\b", re.IGNORECASE
)
_PER_DAY = re.compile(r"per[ _-]?day\b|/ ?day\b|\b[TR]PD\b|daily", re.IGNORECASE)
_RATE = re.compile(r"rate[_ ]limit[_ ](exceeded|error)", re.IGNORECASE)
_MONEY = re.compile(r"quota|billing|credit|upgrade|(hourly|session|weekly|monthly) (request )?limit", re.IGNORECASE)
_WAIT = re.compile(
    r"(?:\b(?:re)?try(?:ing)?(?: again)? (?:in|after)|\"retryDelay\": ?\")\s*"
    r"((?:\d{1,9}(?:\.\d{1,12})?\s?[a-z]{1,12}[\s,]{0,2}){1,3})",
    re.IGNORECASE,
)
_PART = re.compile(r"([\d.]+)\s?(ms|milliseconds?|[smhd]|secs?|seconds?|mins?|minutes?|hours?|days?)(?![a-z])", re.I)
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class ServerError(ModelError):
    """A failure of a server behind HTTP. It has two messages, both in parts (see `ForetraceError`).

    `parts` is the full line for the user: server, model, cause and remedy. `public_parts` is the same without the
    server's address, for storage, since a machine's address does not belong in a trace. `render` writes the first and
    `public_message` the second, each in a given style for settings.
    """

    public_parts: Parts = ()
    cause: str = ""
    """What happened, without address and remedy."""


def public_message(error: ModelError, style: Callable[[Setting], str] = str) -> str:
    """Model, cause and remedy without the server's address, as it may be stored in a trace. For an error that is not a
    `ServerError`, its whole message."""
    return render_parts((error.public_parts if isinstance(error, ServerError) else ()) or error.parts, style)


def public_cause(error: ModelError) -> str:
    """What happened, without address and remedy, as it may be stored in a trace. For an error that is not a
    `ServerError`, its whole message."""
    return (error.cause if isinstance(error, ServerError) else "") or str(error)


@dataclass(frozen=True)
class ServerErrors:
    """Creates the errors of one model at one server."""

    origin: str
    """Scheme, host and port."""
    model: str
    kind: str
    """Name of the adapter."""
    key: ApiKey | None
    key_variable: str
    """Environment variable of the adapter's key; empty if it has none."""

    def make(
        self,
        cause: str,
        *remedy: str | Setting,
        kind: str,
        retryable: bool = False,
        retry_after_s: float | None = None,
    ) -> ServerError:
        """A one-line error, without the key.

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
        """The text without the key. Call this before cutting the text."""
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
            return self._bad_key(status)  # without the server's message, since some servers repeat the key
        if status == 429 and _TOO_LARGE.search(text):
            remedy = "one request is more than the account may use in a minute: lower "
            return self.make(cause, remedy, Setting("max_tokens"), " or ", Setting("max_turns"), kind="bad_request")
        if status == 402 or status in _BUSY:
            used_up = status == 402 or (status == 429 and classify_limit(text, wait) == "quota")
            return self._limited(cause, wait, used_up=used_up)
        if _SHARED_OVERFLOW.search(message):
            return self.shared_overflow(cause)
        if _OVERFLOW.search(message):
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
        if _SHARED_OVERFLOW.search(message):
            return self.shared_overflow(f"stopped with {message!r}")
        if _OVERFLOW.search(message):
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
        """The error if the prompt is longer than the context."""
        remedy: Parts = ("raise the context length of the server",)
        if self.kind == "ollama":  # other servers are started with it
            remedy = ("raise ", Setting("context_length"))
        remedy = ("the prompt is longer than the context: ", *remedy, ", or lower ", Setting("max_turns"))
        return self.make(cause, *remedy, kind="overflow")

    def shared_overflow(self, cause: str, *, final: bool = False) -> ServerError:
        """The error if the requests in flight do not fit together into the context that they share.

        Args:
            final: No retry of this request succeeded, so it counts as longer than the context by itself.
        """
        remedy = (
            "the server's slots share one context, and all requests together were longer: give it more (llama-server: "
            "-c N), or lower ",
            Setting("concurrency"),
        )
        return self.make(cause, *remedy, kind="overflow" if final else CROWDED, retryable=not final)

    def broken_stream(self, cause: str) -> ServerError:
        """The error if the stream ended before the reply did."""
        return self.make(cause, "try again; if it stays so, see the server's log", kind="stream", retryable=True)

    def bad_reply(self, cause: str) -> ServerError:
        """The error if the reply does not have the expected form."""
        return self.make(cause, f"check that this is the address of {self._server}", kind="bad_reply")

    def too_long(self, cause: str) -> ServerError:
        """The error if the reply is much longer than the token limit allows."""
        return self.make(cause, "the server ignores the token limit; see its log and settings", kind="too_long")

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
    """The whole message in the body of an HTTP error, in any form that a server wraps it in."""
    text = body.decode("utf-8", "replace")
    try:
        parsed = msgspec.json.decode(body, type=_ErrorBody | list[_ErrorBody])
    except (msgspec.DecodeError, ValueError, RecursionError):
        return re.sub(r"<[^<>]*>", " ", text)
    if isinstance(parsed, list):  # Gemini's OpenAI-compatible API
        parsed = parsed[0] if parsed else _ErrorBody()
    return _message_of(parsed.error or parsed.message or parsed.detail or text)


def _message_of(error: object) -> str:
    if isinstance(error, dict):
        # The code distinguishes quota from concurrency if the message is vague.
        parts = [error.get("message"), error.get("code"), error.get("type")]
        return "; ".join(str(part) for part in parts if isinstance(part, str)) or str(error)
    return error if isinstance(error, str) else str(error)


def shorten_line(text: str, max_chars: int = _MAX_MESSAGE_CHARS) -> str:
    """The text on one line, without control characters, cut to a length."""
    flat = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return flat if len(flat) <= max_chars else f"{flat[: max_chars - 3]}..."


class ContextOverflow(NamedTuple):
    """Lengths that a server reports if prompt and reply do not fit into the context together.

    Many servers refuse a request whose prompt and `max_tokens` together exceed the context, even if the reply would
    have been short.
    """

    context_tokens: int
    prompt_tokens: int | None
    """`None` if the server has not counted them."""


def parse_overflow(message: str) -> ContextOverflow | None:
    """The lengths in an error message of vLLM, SGLang, TGI, OpenAI or OpenRouter; `None` for any other message."""
    context, prompt = _CONTEXT.search(message), _PROMPT.search(message)
    if context is None or not _REPLY.search(message):
        return None
    return ContextOverflow(int(context[1]), int(prompt[1]) if prompt and not _LOWER_BOUND.search(message) else None)


def classify_limit(text: str, wait_s: float | None) -> Literal["quota", "busy", ""]:
    """What a refusal means: `busy` is temporary, `quota` is not; empty if the text does not mention a limit.

    Args:
        text: The whole answer of the server.
        wait_s: How long it asks to wait.
    """
    short = wait_s is not None and wait_s <= MAX_WAIT_S
    if _USED_UP.search(text):
        return "quota"
    if short or _PER_MINUTE.search(text):
        return "busy"
    if _PER_DAY.search(text):
        return "quota"
    if _RATE.search(text):
        return "busy"
    return "quota" if _MONEY.search(text) else ""


def read_wait(text: str, header: str | None = None) -> float | None:
    """Seconds that a server asks to wait, in its text or in its header `Retry-After`; the longer of the two."""
    found = [seconds for seconds in (_parse_retry_after(header), _parse_wait(text)) if seconds is not None]
    return max(found, default=None)


def _parse_wait(text: str) -> float | None:
    named = _WAIT.search(text)
    parts = _PART.findall(named[1]) if named else []
    if not parts:
        return None
    return sum(
        float(n) * (0.001 if unit.lower().startswith(("ms", "mil")) else _UNITS[unit[0].lower()]) for n, unit in parts
    )


def _parse_retry_after(retry_after: str | None) -> float | None:
    """Seconds that a Retry-After header asks for: a number, or a date."""
    if not retry_after:
        return None
    try:
        return max(0.0, min(float(retry_after), 1e9))
    except ValueError:
        pass
    try:
        until = parsedate_to_datetime(retry_after)
    except ValueError:
        return None
    return max(0.0, (until.replace(tzinfo=until.tzinfo or UTC) - datetime.now(UTC)).total_seconds())
