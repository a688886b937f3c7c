"""A model server that waits instead of computing, as a process that takes orders: `python -m _baselines.canned_server`.

It speaks the OpenAI interface over plain sockets, so that it takes little of the cores that are measured on. A reply
depends on the turn alone, and its latency on the request's bytes: the same work takes the same time, whoever asks.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
import zlib
from pathlib import Path
from typing import Any

from _baselines.orders import serve

MODEL = "canned"
TURNS = 4
_TOKEN = re.compile(r" ?\w+|\s+|.", re.DOTALL)
_CODE = (
    "<think>{thought} The function takes two lists and gives their elements in turn, as long as both last, and then "
    "what is left over of the longer one.</think>\n<code>\ndef merged(left, right):\n    out = []\n"
    "    for a, b in zip(left, right):\n        out += [a, b]\n    rest = {rest}\n    return out + rest\n"
)
REPLIES = (
    _CODE.format(thought="A loop over both will do.", rest="left[len(right):]"),
    _CODE.format(thought="The right one may be longer.", rest="right[len(left):]"),
    _CODE.format(thought="Either may be longer.", rest="left[len(right):] + right[len(left):]"),
    "<verify>The loop takes one element of each, and what the longer list has left over comes behind them, in order. "
    "Where both are equally long nothing is left over, and of two empty lists nothing comes.",
)
_PARTS = 4
"""Writes of one reply, spread evenly over its latency."""
_JSON = b"HTTP/1.1 %d OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def events(text: str) -> list[bytes]:
    """The events of one streamed reply: one a token, with its logprob, as real servers write them."""

    def event(**fields: Any) -> bytes:
        whole = {"id": "chatcmpl-0", "object": "chat.completion.chunk", "created": 0, "model": MODEL} | fields
        return b"data: " + json.dumps(whole).encode() + b"\n\n"

    found = list[bytes]()
    for token in _TOKEN.findall(text):
        weight = {"token": token, "logprob": -0.015625 * len(token), "bytes": list(token.encode()), "top_logprobs": []}
        choice = {"index": 0, "delta": {"content": token}, "logprobs": {"content": [weight]}, "finish_reason": None}
        found.append(event(choices=[choice]))
    usage = {"prompt_tokens": 600, "completion_tokens": len(found), "total_tokens": 600 + len(found)}
    end = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": "stop"}
    return [*found, event(choices=[end]), event(choices=[], usage=usage), b"data: [DONE]\n\n"]


def parts(text: str) -> list[bytes]:
    """A reply as it is written: HTTP chunks of many events each, the first with the head."""
    whole = events(text)
    size = -(-len(whole) // _PARTS)
    cut = [b"".join(whole[at : at + size]) for at in range(0, len(whole), size)]
    chunks = [b"%x\r\n%b\r\n" % (len(part), part) for part in cut]
    return [_HEAD + chunks[0], *chunks[1:-1], chunks[-1] + b"0\r\n\r\n"]


class Load:
    """What is asked of the server, and how long it takes."""

    def __init__(self) -> None:
        self.replies = [parts(text) for text in REPLIES]
        self.fastest = self.slowest = 0.0
        self.bodies: list[bytes] | None = None
        """Bodies of the requests of episodes, while they are recorded."""
        self.in_flight = 0
        self.seen: list[tuple[float, int]] = []
        """Times at which the number of requests in flight changed, and the number from then on."""

    def latency_s(self, body: bytes) -> float:
        """Seconds that a reply takes."""
        return self.fastest + (self.slowest - self.fastest) * zlib.crc32(body) / (1 << 32)

    def change(self, by: int) -> None:
        """A request of an episode came or was answered; 0 for others."""
        self.in_flight += by
        if by:
            self.seen.append((time.perf_counter(), self.in_flight))


class Connection(asyncio.Protocol):
    """One connection, which is kept open."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._data = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep where to answer."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer the request when all of it is there; the next one comes after the answer."""
        self._data += data
        head, found, body = self._data.partition(b"\r\n\r\n")
        length = re.search(rb"\r\ncontent-length: *(\d+)", head, re.IGNORECASE)
        if found and len(body) >= int(length[1] if length else 0):
            self._data = b""
            self._answer(head.split(b" ", 2)[1], body)

    def _answer(self, path: bytes, body: bytes) -> None:
        assert self._transport is not None
        if path != b"/v1/chat/completions":
            status, said = (200, b'{"data":[{"id":"%b"}]}' % MODEL.encode()) if path == b"/v1/models" else (404, b"{}")
            self._transport.write(_JSON % (status, len(said), said))
            return
        load = self._load
        counted = int(b'"seed":' in body)  # the probe's requests have none
        load.change(counted)
        if load.bodies is not None and counted:
            load.bodies.append(body)
        turn = min(body.count(b'"role":"assistant"'), TURNS - 1)
        self._write(load.replies[turn], 0, load.latency_s(body) / _PARTS, counted)

    def _write(self, reply: list[bytes], number: int, pause_s: float, counted: int) -> None:
        """Write the parts from `number` on, a pause before each."""
        if number:
            assert self._transport is not None
            self._transport.write(reply[number - 1])
            if number == len(reply):
                self._load.change(-counted)
                return
        asyncio.get_running_loop().call_later(pause_s, self._write, reply, number + 1, pause_s, counted)


def main() -> None:
    """Listen, and serve orders until stdin ends: where it is, how slow to be, what was seen."""
    load, loop = Load(), asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()

    async def listen() -> int:
        server = await loop.create_server(lambda: Connection(load), "127.0.0.1", 0, backlog=2048)
        return server.sockets[0].getsockname()[1]

    port = asyncio.run_coroutine_threadsafe(listen(), loop).result()

    def act(order: dict[str, Any]) -> dict[str, Any]:
        if order["do"] == "begin":
            load.fastest, load.slowest = order["latency_s"]
            load.bodies = [] if order.get("record") else None
            load.seen = []
        if order["do"] != "end":
            return {"passed": 1, "url": f"http://127.0.0.1:{port}"}
        if load.bodies is not None:
            Path(order["record"]).write_bytes(b"\n".join(load.bodies))
        return {"passed": 1, "seen": load.seen}

    serve("canned server", act)


if __name__ == "__main__":
    main()
