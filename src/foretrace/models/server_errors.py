"""One clear line for each failure of a model server: which host and model, what happened, what to do."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

import msgspec

from foretrace.core.errors import ModelError
from foretrace.models.rate_limits import limit_in, wait_in

_LONGEST = 300
"""Characters of a server's own words that are shown."""
_OVERFLOW = re.compile(
    r"exceed_context_size|context_length_exceeded|exceeds? the (available |maximum )?(context|model.s maximum)"
    r"|maximum context length|input length exceeds|longer than the (context|maximum model)"
    r"|context (window|size) exceeded|tokens \+ .max_new_tokens. must be",
    re.IGNORECASE,
)
_TOO_LARGE = re.compile(r"request too large", re.IGNORECASE)
_BUSY = frozenset({429, 503, 529})
_PART_OF_KEY = 8
"""Characters of a key, in a row, that are never shown."""
_SHORT_KEY = 6
"""A key of fewer characters (a placeholder, mostly) is hidden as a whole word only: it may stand in any other."""
_UNKNOWN_MODEL = re.compile(
    r"model.{0,200}(not found|not exist|unknown|no such|not supported)", re.IGNORECASE | re.DOTALL
)


class Key:
    """A secret for one host; it shows itself to nobody but the request that needs it."""

    __slots__ = ("_pieces", "_size", "_value", "_word")

    def __init__(self, value: str) -> None:
        self._value = value
        self._size = size = min(_PART_OF_KEY, len(value))
        forms = {value, quote(value), quoted := quote(value, safe=""), re.sub("%..", lambda m: m[0].lower(), quoted)}
        self._pieces = frozenset(form[at : at + size] for form in forms for at in range(len(form) - size + 1))
        whole = "|".join(re.escape(form) for form in sorted(forms, key=len, reverse=True))
        self._word = re.compile(rf"(?<!\w)(?:{whole})(?!\w)") if len(value) < _SHORT_KEY else None

    def __repr__(self) -> str:
        return "***"

    def header(self) -> str:
        """Value of the Authorization header."""
        return f"Bearer {self._value}"

    def hide(self, text: str) -> str:
        """The text without the key, and without any part of it that is long enough to tell: a text may have been cut
        in the middle of a key."""
        if self._word is not None:
            return self._word.sub("***", text)
        shown: list[str] = []
        hidden_to = 0
        for at, char in enumerate(text):
            if text[at : at + self._size] in self._pieces:
                if at > hidden_to or not at:
                    shown.append("***")
                hidden_to = at + self._size
            elif at >= hidden_to:
                shown.append(char)
        return "".join(shown)


class PlacedError(ModelError):
    """A `ModelError` of an adapter."""

    cause: str = ""
    """What happened, without the server's address and without a remedy: what may stand in a trace."""
    placeless: str = ""
    """The whole line without the server's address."""


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
        line = one_line(self.hide(f"{self.host}, model {self.model}: {cause}; {remedy}"), 3 * _LONGEST)
        error = PlacedError(line, kind=kind, retryable=retryable, retry_after_s=retry_after_s)
        error.cause = one_line(self._placeless(self.hide(cause)))
        error.placeless = one_line(self._placeless(self.hide(f"model {self.model}: {cause}; {remedy}")), 3 * _LONGEST)
        return error

    def hide(self, text: str) -> str:
        """The text without the key; to be called before a text is cut."""
        return self.key.hide(text) if self.key else text

    def _placeless(self, text: str) -> str:
        own = re.escape(urlsplit(self.host).netloc)
        return re.sub(rf"https?://[^\s'\"]+|{own}" if own else r"https?://[^\s'\"]+", "(address)", text)

    def of_status(
        self, status: int, body: bytes, *, retry_after: str | None = None, to: str | None = None
    ) -> ModelError:
        """What an HTTP status other than 200 means."""
        words = self.hide(body.decode("utf-8", "replace"))
        said = one_line(self.hide(said_by(body)))
        quoted = f"HTTP {status} {said!r}" if said else f"HTTP {status}"
        wait = wait_in(words, retry_after)
        if 300 <= status < 400:
            return self.error(
                f"HTTP {status}, a redirect to {to}", "give the final address as --base-url", kind="redirect"
            )
        if status == 401 or (status == 403 and "logprobs" not in words):
            return self._refused_key(status)  # its words are left out: some servers repeat the key
        if status == 429 and _TOO_LARGE.search(words):
            remedy = "one request is more than the account may use in a minute: lower --max-tokens or --max-turns"
            return self.error(quoted, remedy, kind="bad_request")
        if status == 402 or status in _BUSY:
            used_up = status == 402 or (status == 429 and limit_in(words, wait) == "quota")
            return self._limited(quoted, wait, used_up=used_up)
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
        words = self.hide(str(error))
        said = one_line(self.hide(_words(error)))
        if _OVERFLOW.search(said):
            return self.overflow(repr(said))
        wait = wait_in(words)
        kind = limit_in(words, wait)
        if kind or (isinstance(error, dict) and error.get("code") in _BUSY):
            return self._limited(f"stopped with {said!r}", wait, used_up=kind == "quota")
        return self.error(f"stopped with {said!r}", "see the server's log, or try again", kind="server", retryable=True)

    def _limited(self, cause: str, wait_s: float | None, *, used_up: bool) -> ModelError:
        if used_up:
            remedy = "the account's quota is used up: wait until it is renewed, or use another account or model"
            return self.error(cause, remedy, kind="quota", retry_after_s=wait_s)
        remedy = "it is busy: lower the concurrency (--concurrency), or try again later"
        return self.error(cause, remedy, kind="busy", retryable=True, retry_after_s=wait_s)

    def overflow(self, cause: str) -> ModelError:
        """The prompt does not fit."""
        how = "raise the context length (--context-length)"
        if self.kind != "ollama":  # others are started with it
            how = "raise the context length of the server"
        remedy = f"the prompt is longer than the context: {how}, or shorten the episode (--max-turns)"
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
        own = f", or for its own host in {self.key_variable}" if self.key_variable else ""
        remedy = f"give a valid key in an environment variable that --api-key-env names{own}"
        return self.error(f"HTTP {status}, {cause}", remedy, kind="bad_key")

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
    """The message in an error body, whichever form it has, in full."""
    text = body.decode("utf-8", "replace")
    try:
        parsed = msgspec.json.decode(body, type=_ErrorBody | list[_ErrorBody])
    except (msgspec.DecodeError, ValueError, RecursionError):
        return re.sub(r"<[^<>]*>", " ", text)
    if isinstance(parsed, list):  # Gemini, where it speaks as OpenAI does
        parsed = parsed[0] if parsed else _ErrorBody()
    return _words(parsed.error or parsed.message or parsed.detail or text)


def reason_of(error: ModelError) -> str:
    """What happened, as a reason that may stand in a trace: without address and remedy."""
    return (error.cause if isinstance(error, PlacedError) else "") or str(error)


def placeless(error: ModelError) -> str:
    """What happened and what to do, without the server's address: another port makes no other trace."""
    return (error.placeless if isinstance(error, PlacedError) else "") or str(error)


def _words(error: object) -> str:
    if isinstance(error, dict):
        # The code tells quota from concurrency where the message is vague.
        parts = [error.get("message"), error.get("code"), error.get("type")]
        return "; ".join(str(part) for part in parts if isinstance(part, str)) or str(error)
    return error if isinstance(error, str) else str(error)
