"""One shared aiohttp session for each adapter: JSON answers and streamed lines, with failures classified."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from foretrace.core.errors import ModelError, UsageError
from foretrace.models.base import Server
from foretrace.models.server_errors import Key, Place

if TYPE_CHECKING:
    import aiohttp

T = TypeVar("T")
_CONNECT_S = 15.0
_ERROR_BYTES = 64 * 1024
_ANSWER_BYTES = 32 * 1024 * 1024
_LINE_BYTES = 8 * 1024 * 1024
_BATCH_BYTES = 32 * 1024
_FAILURE = b"error"
"""In the event of a failure, with all servers."""
_LLAMA_SERVER = "llama.cpp"
"""How llama-server names itself in its answers."""


class Address(msgspec.Struct, frozen=True):
    """A base URL in its parts."""

    scheme: str
    host: str
    origin: str
    """Scheme, host and port."""
    base: str
    """Origin and path, without a slash at the end."""


def address_of(url: str) -> Address:
    """Read a base URL.

    Raises:
        UsageError: it is none, or holds a password, a query or a fragment.
    """
    whole = url.strip() if "://" in url else f"http://{url.strip()}"
    try:
        parts = urlsplit(whole)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
        parts = urlsplit("")
    if parts.username is not None or parts.password is not None:
        raise UsageError("the base URL holds a user name or password: give the key by --api-key-env instead")
    if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment or not whole.isprintable():
        raise UsageError(f"{url!r} is no base URL: give it like http://127.0.0.1:8080 or https://host/path")
    shown = f"[{host}]" if ":" in host else host
    origin = f"{parts.scheme}://{shown}" + (f":{port}" if port else "")
    return Address(parts.scheme, host, origin, origin + parts.path.rstrip("/"))


def key_for(server: Server, address: Address, variable: str, home: str) -> Key | None:
    """The key for a host: the one given, or the adapter's environment variable if this is the host it belongs to.

    Raises:
        UsageError: the key holds characters that no key holds.
    """
    value = server.api_key
    if value is None and variable and address.host == home and address.scheme == "https":
        value = os.environ.get(variable)
    value = (value or "").strip()
    if not value:
        return None
    if not value.isascii() or not value.isprintable() or " " in value:
        raise UsageError("the API key holds blanks, line ends or other signs that no key holds: copy it again")
    return Key(value)


@functools.cache
def _decoder(kind: type[Any]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(list[kind])


class Http:
    """Requests to one server."""

    def __init__(self, address: Address, place: Place, timeout_s: float) -> None:
        self.address = address
        self.place = place
        self._timeout_s = timeout_s
        self._session: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.lock = asyncio.Lock()
        self._drops = True
        """Whether the server may be a llama-server, which closes a connection behind a stream without saying so: a
        request behind it would be lost."""

    async def answer(self, method: str, path: str, body: object, kind: type[T]) -> T:
        """One JSON answer.

        Raises:
            ModelError: no connection, another status than 200, or an answer of another form.
        """
        try:
            async with self._request(method, path, body) as response:
                await self._check(response)
                return self.decode(await self._read(response, _ANSWER_BYTES), kind)
        except _failures() as error:
            raise self._classified(error) from None

    async def events(
        self, path: str, body: object, kind: type[T], *, most_bytes: int, data_of: Callable[[bytes], bytes | None]
    ) -> AsyncGenerator[Iterable[T]]:
        """Events of a streamed answer, many at a time; to be closed by `contextlib.aclosing`.

        Nobody needs a token before the reply is whole, and events that are decoded together cost a fraction: they are
        gathered, unless one tells a failure, behind which the server may fall silent. A stream that breaks off gives
        all that came whole before it.

        Args:
            data_of: the JSON of a line (not empty, without its end); null for a line that holds none.

        Raises:
            ModelError: as `answer`; also a stream that breaks off or is longer than `most_bytes`.
        """
        gathered: list[bytes] = []
        try:
            async with self._request("POST", path, body, last=self._drops) as response:
                await self._check(response)
                size = total = 0
                async for chunk in response.content.iter_any():
                    gathered.append(chunk)
                    size, total = size + len(chunk), total + len(chunk)
                    if total > most_bytes or size > _LINE_BYTES:
                        raise self.too_long(f"the reply is longer than {most_bytes:,} bytes")
                    # Within a long line there is nothing to read yet: it is not put together again and again.
                    if (size >= _BATCH_BYTES and b"\n" in chunk) or _FAILURE in chunk:
                        *whole, rest = b"".join(gathered).split(b"\n")
                        gathered, size = [rest], len(rest)
                        yield self._decode_all(whole, kind, data_of)
                yield self._decode_all(b"".join(gathered).split(b"\n"), kind, data_of)
        except _failures() as error:
            yield self._decode_all(b"".join(gathered).split(b"\n")[:-1], kind, data_of)
            raise self._classified(error) from None

    def _decode_all(self, lines: list[bytes], kind: type[T], data_of: Callable[[bytes], bytes | None]) -> Iterable[T]:
        """What the lines hold, decoded together, which is faster; one after the other where that fails, so that what
        stands before a fault is taken, and the fault is named."""
        found = [data for line in lines if line and (shown := line.strip()) and (data := data_of(shown)) is not None]
        if len(found) > 1:
            with contextlib.suppress(msgspec.DecodeError, ValueError, RecursionError):
                events: list[T] = _decoder(kind).decode(b"[" + b",".join(found) + b"]")
                if len(events) == len(found):
                    return events
        return (self.decode(data, kind) for data in found)

    def decode(self, data: bytes, kind: type[T]) -> T:
        """JSON of a form, or a `ModelError`."""
        try:
            return msgspec.json.decode(data, type=kind)
        except msgspec.ValidationError as error:
            raise self.place.bad_reply(f"the reply has another form: {error}") from None
        except (msgspec.DecodeError, ValueError, RecursionError):
            start = self.place.hide(data[:_ERROR_BYTES].decode("utf-8", "replace"))[:60]
            raise self.place.bad_reply(f"the reply is not JSON but {start!r}") from None

    def too_long(self, cause: str) -> ModelError:
        """A reply beyond all that was asked for."""
        return self.place.error(cause, "the server does not hold to the token limit", kind="too_long")

    async def close(self) -> None:
        """Close the connections. May be called twice."""
        session, self._session = self._session, None
        if session is None or self._loop is not asyncio.get_running_loop():
            return
        await session.close()
        await asyncio.sleep(0)  # transports close in the next round of the loop

    def _request(self, method: str, path: str, body: object, *, last: bool = False) -> Any:
        """A request; with `last` its connection carries no other one behind it."""
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity", "User-Agent": "foretrace"}
        if last:
            headers["Connection"] = "close"
        data = None if body is None else msgspec.json.encode(body)
        # The key must not follow a redirect to another host; so none is followed.
        return self.join().request(
            method,
            path if "://" in path else self.address.base + path,
            data=data,
            headers=headers if self.place.key is None else headers | {"Authorization": self.place.key.header()},
            allow_redirects=False,
        )

    def join(self) -> aiohttp.ClientSession:
        """The session of the running loop, made when it is first needed."""
        import aiohttp

        loop = asyncio.get_running_loop()
        if self._session is None or self._loop is not loop:
            if self._session is not None:
                self._session.detach()  # its loop is gone, and its connections with it
                self.lock = asyncio.Lock()
            self._loop = loop
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),
                timeout=aiohttp.ClientTimeout(
                    total=None, sock_connect=min(_CONNECT_S, self._timeout_s), sock_read=self._timeout_s
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session

    async def _check(self, response: aiohttp.ClientResponse) -> None:
        self._drops = response.headers.get("Server") == _LLAMA_SERVER
        if response.status == 200:
            return
        body = await response.content.read(_ERROR_BYTES)
        headers = response.headers
        raise self.place.of_status(
            response.status, body, retry_after=headers.get("Retry-After"), to=headers.get("Location")
        )

    async def _read(self, response: aiohttp.ClientResponse, most: int) -> bytes:
        data = bytearray()
        async for chunk in response.content.iter_any():
            data += chunk
            if len(data) > most:
                raise self.too_long(f"the answer is longer than {most:,} bytes")
        return bytes(data)

    def _classified(self, error: Exception) -> ModelError:
        import ssl

        import aiohttp

        place, name = self.place, type(error).__name__
        if isinstance(error, TimeoutError):
            cause = f"no answer for {self._timeout_s:g} s" if "Connection" not in name else "no connection in time"
            remedy = "see whether the server is stuck, or raise the timeout (--timeout)"
            return place.error(cause, remedy, kind="timeout", retryable=True)
        if isinstance(error, (aiohttp.ClientSSLError, ssl.SSLError)):
            why = str(getattr(error, "certificate_error", None) or getattr(error, "os_error", None) or error)
            remedy = "use http:// if the server has no TLS, or a certificate that this machine trusts"
            return place.error(f"no secure connection ({why})", remedy, kind="tls")
        if isinstance(error, aiohttp.ClientConnectorDNSError):
            return place.error("the host's name is not known", "check the base URL and the network", kind="dns")
        if isinstance(error, (aiohttp.ClientConnectorError, ConnectionRefusedError)):
            cause = f"no connection ({_reason(error)})"
            return place.error(cause, "start the server, or check the base URL", kind="refused", retryable=True)
        if isinstance(error, aiohttp.ClientResponseError):
            return place.bad_reply("the answer is not HTTP")
        if isinstance(error, (aiohttp.ClientError, ConnectionError)):
            return place.stream("the connection broke off in mid-reply")
        return place.bad_reply(f"the answer cannot be read ({name})")


def _reason(error: Exception) -> str:
    code = getattr(error, "errno", None)
    return os.strerror(code) if isinstance(code, int) and code > 0 else type(error).__name__


def _failures() -> tuple[type[Exception], ...]:
    """What a request may raise; ours passes through unchanged, and so does a cancellation."""
    import aiohttp

    return (aiohttp.ClientError, OSError, TimeoutError)
