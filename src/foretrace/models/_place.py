"""One clear line for each failure of a model server: which host and model, what happened, what to do."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import msgspec

from foretrace.core.errors import ModelError

_LONGEST = 300
"""Characters of a server's own words that are shown."""
_OVERFLOW = re.compile(
    r"exceed_context_size|context_length_exceeded|exceeds? the (available |maximum )?(context|model.s maximum)"
    r"|maximum context length|input length exceeds|longer than the (context|maximum model)"
    r"|context (window|size) exceeded",
    re.IGNORECASE,
)
_QUOTA = re.compile(
    r"quota|billing|credit|usage.limit|(hourly|session|daily|weekly|monthly) (usage |request )?limit|upgrade",
    re.IGNORECASE,
)
_UNKNOWN_MODEL = re.compile(
    r"model.{0,200}(not found|not exist|unknown|no such|not supported)", re.IGNORECASE | re.DOTALL
)


class Key:
    """A secret for one host; it shows itself to nobody but the request that needs it."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def __repr__(self) -> str:
        return "***"

    def header(self) -> str:
        """Value of the Authorization header."""
        return f"Bearer {self._value}"

    def hide(self, text: str) -> str:
        """The text without the key."""
        return text.replace(self._value, "***")


class _ErrorBody(msgspec.Struct):
    """The forms in which servers wrap a message."""

    error: object = None
    message: object = None
    detail: object = None


@dataclass(frozen=True)
class Place:
    """Where a model is, for error lines."""

    host: str
    model: str
    kind: str
    """The adapter's name."""
    key: Key | None
    key_variable: str
    """Environment variable of the adapter's key; empty where there is none."""

    def error(
        self, cause: str, remedy: str, *, kind: str, retryable: bool = False, retry_after_s: float | None = None
    ) -> ModelError:
        """A `ModelError` of one line, without the key."""
        line = one_line(f"{self.host}, model {self.model}: {cause}; {remedy}", 3 * _LONGEST)
        hidden = self.key.hide(line) if self.key else line
        return ModelError(hidden, kind=kind, retryable=retryable, retry_after_s=retry_after_s)

    def of_status(
        self, status: int, body: bytes, *, retry_after: str | None = None, to: str | None = None
    ) -> ModelError:
        """What an HTTP status other than 200 means."""
        said = said_by(body)
        quoted = f"HTTP {status} {said!r}" if said else f"HTTP {status}"
        wait = _seconds(retry_after)
        if 300 <= status < 400:
            return self.error(
                f"HTTP {status}, a redirect to {to}", "give the final address as base URL", kind="redirect"
            )
        if status in (401, 403):  # its words are left out: some servers repeat the key
            return self._refused_key(status)
        if status == 402 or (status == 429 and _QUOTA.search(said)):
            remedy = "the account's quota is used up: wait until it is renewed, or use another account or model"
            return self.error(quoted, remedy, kind="quota", retry_after_s=wait)
        if status in (429, 503, 529):
            remedy = "it is busy: lower the concurrency, or try again later"
            return self.error(quoted, remedy, kind="busy", retryable=True, retry_after_s=wait)
        if _OVERFLOW.search(said):
            return self.overflow(quoted)
        if status == 404:
            return self._not_found(quoted, said)
        if status == 408:
            return self.error(quoted, "try again later", kind="timeout", retryable=True, retry_after_s=wait)
        if status >= 500:
            return self.error(
                quoted, "see the server's log, or try again", kind="server", retryable=True, retry_after_s=wait
            )
        if status == 400 and _UNKNOWN_MODEL.search(said):
            return self._not_found(quoted, said)
        return self.error(
            quoted, "the server does not take this request: change the setting it names", kind="bad_request"
        )

    def of_words(self, error: object) -> ModelError:
        """What an error inside a stream means, which began as HTTP 200."""
        said = _words(error)
        if _OVERFLOW.search(said):
            return self.overflow(repr(said))
        if _QUOTA.search(said):
            return self.error(f"stopped with {said!r}", "the account's quota is used up", kind="quota")
        return self.error(f"stopped with {said!r}", "see the server's log, or try again", kind="server", retryable=True)

    def overflow(self, cause: str) -> ModelError:
        """The prompt does not fit."""
        remedy = "the prompt is longer than the context: raise the context length, or shorten the episode"
        return self.error(cause, remedy, kind="overflow")

    def stream(self, cause: str) -> ModelError:
        """The reply ended before its end."""
        return self.error(cause, "try again; if it stays so, see the server's log", kind="stream", retryable=True)

    def bad_reply(self, cause: str) -> ModelError:
        """The reply is not in the form it should have."""
        return self.error(
            cause, f"check that this is the address of {_SERVERS.get(self.kind, 'the server')}", kind="bad_reply"
        )

    def _refused_key(self, status: int) -> ModelError:
        cause = "it refuses the key" if self.key else "it wants a key"
        where = f"in {self.key_variable} (for its own host) or as api_key" if self.key_variable else "as api_key"
        return self.error(f"HTTP {status}, {cause}", f"give a valid key {where}", kind="bad_key")

    def _not_found(self, quoted: str, said: str) -> ModelError:
        if _UNKNOWN_MODEL.search(said):
            return self.error(quoted, "the server does not have this model: name one that it lists", kind="not_found")
        remedy = f"there is no such path: check that this is the address of {_SERVERS.get(self.kind, 'the server')}"
        return self.error(quoted, remedy, kind="not_found")


_SERVERS = {
    "ollama": "an Ollama server",
    "openai": "an OpenAI-compatible server",
    "llamacpp": "llama.cpp's llama-server (others: openai:NAME)",
}


def one_line(text: str, longest: int = _LONGEST) -> str:
    """The text on one line, without control characters, cut to a length."""
    flat = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return flat if len(flat) <= longest else f"{flat[: longest - 3]}..."


def said_by(body: bytes) -> str:
    """The message in an error body, whichever form it has."""
    text = body.decode("utf-8", "replace")
    try:
        parsed = msgspec.json.decode(body, type=_ErrorBody)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return one_line(re.sub(r"<[^<>]*>", " ", text))
    return _words(parsed.error or parsed.message or parsed.detail or text)


def is_unknown_model(said: str) -> bool:
    """Whether a server's words say that it does not have the model."""
    return bool(_UNKNOWN_MODEL.search(said))


def _words(error: object) -> str:
    if isinstance(error, dict):
        # The code tells quota from concurrency where the message is vague.
        parts = [error.get("message"), error.get("code"), error.get("type")]
        return one_line("; ".join(str(part) for part in parts if isinstance(part, str)) or str(error))
    return one_line(error if isinstance(error, str) else str(error))


def _seconds(retry_after: str | None) -> float | None:
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
