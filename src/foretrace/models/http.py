"""One aiohttp session per adapter: JSON answers and streamed lines, with every failure as a `ModelError`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from foretrace.core.errors import ModelError
from foretrace.models.address import Address
from foretrace.models.server_errors import ServerErrors

if TYPE_CHECKING:
    import aiohttp

T = TypeVar("T")
_CONNECT_S = 15.0
_MAX_ERROR_BYTES = 64 * 1024
_MAX_LINE_BYTES = 8 * 1024 * 1024
_BATCH_BYTES = 32 * 1024
_FAILURE = b"error"
"""Appears in the event that reports a failure, on all servers."""
_LLAMA_SERVER = "llama.cpp"
"""How llama-server identifies itself in its answers."""


class HttpClient:
    """Requests to one server."""

    def __init__(self, address: Address, errors: ServerErrors, timeout_s: float) -> None:
        self.address = address
        self.errors = errors
        self._timeout_s = timeout_s
        self._session: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.lock = asyncio.Lock()
        self._may_drop = True
        """Whether the server may be a llama-server, which silently closes a connection after a stream: the next request
        on that connection would be lost."""

    async def request_json(self, method: str, path: str, body: object, form: type[T]) -> T:
        """Send one request; returns its JSON answer as `form`."""
        try:
            async with self._request(method, path, body) as response:
                await self._check(response)
                return self.decode(await response.read(), form)
        except _transport_errors() as error:
            raise self._classify(error) from None

    async def read_stream(
        self,
        path: str,
        body: object,
        form: type[T],
        add: Callable[[T], None],
        *,
        max_bytes: int,
        is_sse: bool = True,
    ) -> None:
        """Send one request whose answer is a stream, and call `add` with each of its events: server-sent ones, or
        lines of JSON.

        Nobody needs a token before the reply is complete, so lines are collected up to `_BATCH_BYTES`. A line that may
        report a failure is read at once, since the server may send nothing after it. If the stream breaks off, all
        complete lines before that are read.
        """
        chunks: list[bytes] = []

        def read_lines(lines: bytes) -> None:
            for line in lines.split(b"\n"):
                if (text := line.strip()) and (data := parse_sse_line(text) if is_sse else text) is not None:
                    add(self.decode(data, form))

        try:
            async with self._request("POST", path, body, close=self._may_drop) as response:
                await self._check(response)
                size = total = 0
                async for chunk in response.content.iter_any():
                    chunks.append(chunk)
                    size, total = size + len(chunk), total + len(chunk)
                    if total > max_bytes or size > _MAX_LINE_BYTES:
                        raise self.errors.make("too_long", f"the reply is longer than {max_bytes:,} bytes")
                    # The start of a long line is not joined again for each chunk, since it cannot be decoded yet.
                    if (size >= _BATCH_BYTES and b"\n" in chunk) or _FAILURE in chunk:
                        whole, _, rest = b"".join(chunks).rpartition(b"\n")
                        chunks, size = [rest], len(rest)
                        read_lines(whole)
                read_lines(b"".join(chunks))
        except _transport_errors() as error:
            read_lines(b"".join(chunks).rpartition(b"\n")[0])
            raise self._classify(error) from None

    def decode(self, data: bytes, form: type[T]) -> T:
        try:
            return msgspec.json.decode(data, type=form)
        except msgspec.ValidationError as error:
            raise self.errors.make("bad_reply", f"the reply has another form: {error}") from None
        except (msgspec.DecodeError, ValueError, RecursionError):
            start = self.errors.hide(data[:_MAX_ERROR_BYTES].decode("utf-8", "replace"))[:60]
            raise self.errors.make("bad_reply", f"the reply is not JSON but {start!r}") from None

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is None or self._loop is not asyncio.get_running_loop():
            return
        await session.close()
        await asyncio.sleep(0)  # transports close in the next iteration of the loop

    def _request(self, method: str, path: str, body: object, *, close: bool = False) -> Any:
        """A request. With `close`, its connection is not reused."""
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity", "User-Agent": "foretrace"}
        if close:
            headers["Connection"] = "close"
        data = None if body is None else msgspec.json.encode(body)
        key = self.errors.key
        return self.open_session().request(
            method,
            path if "://" in path else self.address.base + path,
            data=data,
            headers=headers if key is None else headers | {"Authorization": key.header()},
            allow_redirects=False,  # a redirect must not send the key to another host
        )

    def open_session(self) -> aiohttp.ClientSession:
        """The session of the running event loop, created when first needed."""
        import aiohttp

        loop = asyncio.get_running_loop()
        if self._session is None or self._loop is not loop:
            if self._session is not None:
                self._session.detach()  # its loop is gone, and its connections too
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
        self._may_drop = response.headers.get("Server") == _LLAMA_SERVER
        if response.status == 200:
            return
        body = await response.content.read(_MAX_ERROR_BYTES)
        headers = response.headers
        raise self.errors.from_status(
            response.status, body, retry_after=headers.get("Retry-After"), location=headers.get("Location")
        )

    def _classify(self, error: Exception) -> ModelError:
        import ssl

        import aiohttp

        make, name = self.errors.make, type(error).__name__
        if isinstance(error, TimeoutError):
            waited = f"no answer for {self._timeout_s:g} s" if "Connection" not in name else "no connection in time"
            return make("timeout", waited)
        if isinstance(error, (aiohttp.ClientSSLError, ssl.SSLError)):
            why = str(getattr(error, "certificate_error", None) or getattr(error, "os_error", None) or error)
            return make("tls", f"no secure connection ({why})")
        if isinstance(error, aiohttp.ClientConnectorDNSError):
            return make("dns", "the host's name is not known")
        if isinstance(error, (aiohttp.ClientConnectorError, ConnectionRefusedError)):
            code = getattr(error, "errno", None)
            reason = os.strerror(code) if isinstance(code, int) and code > 0 else name
            return make("refused", f"no connection ({reason})")
        if isinstance(error, aiohttp.ClientResponseError):
            return make("bad_reply", "the answer is not HTTP")
        if isinstance(error, (aiohttp.ClientError, ConnectionError)):
            return make("stream", "the connection broke off in mid-reply")
        return make("bad_reply", f"the answer cannot be read ({name})")


def parse_sse_line(line: bytes) -> bytes | None:
    """The JSON of one line of server-sent events; `None` for lines without JSON, such as `[DONE]`. Any other line is
    returned unchanged, so that decoding it fails with an error that quotes it."""
    if line.startswith(b"data:"):
        data = line[5:].strip()
        return None if data in (b"[DONE]", b"") else data
    if line.startswith((b":", b"event:", b"id:", b"retry:")):
        return None
    return line


def _transport_errors() -> tuple[type[Exception], ...]:
    """What aiohttp may raise. Our own errors and cancellation pass through unchanged."""
    import aiohttp

    return (aiohttp.ClientError, OSError, TimeoutError)
