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
MAX_WAIT_S = 120.0
"""The longest wait that a server may ask for. If it asks for more, the request fails."""
MIN_REPLY_TOKENS = 64
"""A shorter reply is not worth a request."""
TRANSIENT_KINDS = frozenset({"refused", "timeout", "busy", "server", "stream", "empty"})
"""Kinds of failure that may pass."""
CROWDED = "crowded"
"""Kind of a failure that fewer requests would avoid: those in flight do not fit together into one shared context."""
_BUSY = frozenset({429, 503, 529})
_SERVERS = {
    "ollama": "an Ollama server",
    "openai": "an OpenAI-compatible server",
    "llamacpp": "llama.cpp's llama-server (others: openai:NAME)",
}
_SHARED_CONTEXT: Parts = (
    "the server's slots share one context, and all requests together were longer: give it more (llama-server: -c N), "
    "or lower ",
    Setting("concurrency"),
)
_REMEDIES: dict[str, Parts] = {
    "bad_reply": ("check that this is the address of {server}",),
    "bad_request": ("the server does not take this request: change the setting it names",),
    "busy": ("it is busy: lower ", Setting("concurrency"), ", or try again later"),
    CROWDED: _SHARED_CONTEXT,
    "dns": ("check the base URL and the network",),
    "empty": ("try again, or check the model's template and the stop sequences",),
    "filtered": ("the server's filter stopped the reply: the same request will be stopped again",),
    "not_found": ("there is no such path: check that this is the address of {server}",),
    "overflow": (
        "the prompt is longer than the context: raise the context length of the server, or lower ",
        Setting("max_turns"),
    ),
    "quota": ("the account's quota is used up: wait until it is renewed, or use another account or model",),
    "redirect": ("give the final address as ", Setting("base_url")),
    "refused": ("start the server, or check the base URL",),
    "server": ("see the server's log, or try again",),
    "stream": ("try again; if it stays so, see the server's log",),
    "timeout": ("see whether the server is stuck, or raise ", Setting("timeout")),
    "tls": ("use http:// if the server has no TLS, or a certificate that this machine trusts",),
    "too_long": ("the server ignores the token limit; see its log and settings",),
}
"""What to do about each kind of failure, unless the place where it is found knows better."""
_OLLAMA_OVERFLOW: Parts = (
    "the prompt is longer than the context: raise ",
    Setting("context_length"),  # other servers are started with it
    ", or lower ",
    Setting("max_turns"),
)

_UNKNOWN_MODEL = re.compile(
    r"model.{0,200}(not found|not exist|unknown|no such|not supported)", re.IGNORECASE | re.DOTALL
)
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
    """A failure of a server behind HTTP. Its own message has the server's address, which does not belong in a trace."""

    public_parts: Parts = ()
    """Model, cause and remedy, without the address."""
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
    model: str
    adapter: str
    key: ApiKey | None
    key_variable: str
    """Environment variable of the adapter's key; empty if it has none."""

    def make(self, kind: str, cause: str, *remedy: str | Setting, retry_after_s: float | None = None) -> ServerError:
        """A one-line error, without the key: what happened, which may quote the server, and what to do in our own
        words, by default what helps against this kind of failure."""
        server = _SERVERS.get(self.adapter, "the server")
        parts = [
            part if isinstance(part, Setting) else part.replace("{server}", server) for part in _REMEDIES.get(kind, ())
        ]
        todo = [self.hide(part) if isinstance(part, str) else part for part in remedy or parts]
        what = self.hide(f"model {self.model}: {cause}")
        lines = (f"{self.hide(self.origin)}, {what}", self._remove_addresses(what))
        full, public = (f"{shorten_line(line, 3 * _MAX_MESSAGE_CHARS)}; " for line in lines)
        retryable = kind in TRANSIENT_KINDS or kind == CROWDED
        error = ServerError(full, *todo, kind=kind, retryable=retryable, retry_after_s=retry_after_s)
        error.public_parts = (public, *(self._remove_addresses(p) if isinstance(p, str) else p for p in todo))
        error.cause = shorten_line(self._remove_addresses(self.hide(cause)))
        return error

    def hide(self, text: str) -> str:
        """The text without the key. Call this before cutting the text."""
        return self.key.hide(text) if self.key else text

    def _remove_addresses(self, text: str) -> str:
        own = re.escape(urlsplit(self.origin).netloc)
        return re.sub(rf"https?://[^\s'\"]+|{own}" if own else r"https?://[^\s'\"]+", "(address)", text)

    def from_status(
        self, status: int, body: bytes, *, retry_after: str | None = None, location: str | None = None
    ) -> ModelError:
        """The error for an HTTP status other than 200; `retry_after` and `location` are headers."""
        text = self.hide(body.decode("utf-8", "replace"))
        message = shorten_line(self.hide(read_error_message(body)))
        cause = f"HTTP {status} {message!r}" if message else f"HTTP {status}"
        wait = read_wait(text, retry_after)
        if 300 <= status < 400:
            return self.make("redirect", f"HTTP {status}, a redirect to {location}")
        if status == 401 or (status == 403 and "logprobs" not in text):
            return self._bad_key(status)  # without the server's message, since some servers repeat the key
        if status == 429 and "request too large" in text.lower():
            remedy = "one request is more than the account may use in a minute: lower "
            return self.make("bad_request", cause, remedy, Setting("max_tokens"), " or ", Setting("max_turns"))
        if status == 402 or (status == 429 and classify_limit(text, wait) == "quota"):
            return self.make("quota", cause, retry_after_s=wait)
        if status in _BUSY:
            return self.make("busy", cause, retry_after_s=wait)
        if overflow := self._find_overflow(message, cause):
            return overflow
        if _UNKNOWN_MODEL.search(message) and status in (400, 404):
            return self.make("not_found", cause, "the server does not have this model: name one that it lists")
        if status == 404:
            return self.make("not_found", cause)
        if status == 408:
            return self.make("timeout", cause, "try again later", retry_after_s=wait)
        if status >= 500:
            return self.make("server", cause, retry_after_s=wait)
        return self.make("bad_request", cause)

    def from_stream(self, error: object) -> ServerError:
        """The error for the JSON of an `error` field that came inside a stream, after HTTP 200."""
        text = self.hide(str(error))
        message = shorten_line(self.hide(_message_of(error)))
        cause = repr(message) if _OVERFLOW.search(message) else f"stopped with {message!r}"
        if overflow := self._find_overflow(message, cause):
            return overflow
        wait = read_wait(text)
        kind = classify_limit(text, wait)
        if not kind and isinstance(error, dict) and error.get("code") in _BUSY:
            kind = "busy"
        return self.make(kind, cause, retry_after_s=wait) if kind else self.make("server", cause)

    def _find_overflow(self, message: str, cause: str) -> ServerError | None:
        if _SHARED_OVERFLOW.search(message):
            return self.make(CROWDED, cause)
        if _OVERFLOW.search(message):
            return self.make("overflow", cause, *(_OLLAMA_OVERFLOW if self.adapter == "ollama" else ()))
        return None

    def end_of_crowding(self, failure: ModelError) -> ServerError:
        """The error if no retry of a `CROWDED` request succeeded: it counts as longer than the context by itself."""
        return self.make("overflow", public_cause(failure), *_SHARED_CONTEXT)

    def _bad_key(self, status: int) -> ServerError:
        cause = "it refuses the key" if self.key else "it wants a key"
        home = f", or for its own host in {self.key_variable}" if self.key_variable else ""
        remedy = ("give a valid key in an environment variable that ", Setting("api_key_env"), f" names{home}")
        return self.make("bad_key", f"HTTP {status}, {cause}", *remedy)


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
    """Lengths that a server reports if prompt and `max_tokens` together exceed the context."""

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
    """What a refusal means, by the server's whole answer and the wait it asks for: `busy` is temporary, `quota` is not;
    empty if it does not mention a limit."""
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
