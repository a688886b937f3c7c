"""Serve a predictor to other agents: on stdin and stdout, or on a socket."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretrace.core.errors import Setting, StoreError, UsageError, find_first_line
from foretrace.core.places import make_local_path
from foretrace.core.progress import ignore_progress

if TYPE_CHECKING:
    from foretrace.core.progress import ProgressFunc
    from foretrace.evaluation.prediction_service import PredictionService, ServiceCounts
    from foretrace.evaluation.predictors.base import Predictor
    from foretrace.models.base import Server

MAX_LINE = 64 << 20
"""Bytes of one line of a client."""
_IN_FLIGHT = 1024
"""Lines of one client that are answered at a time."""


def serve(
    predictor: str | Predictor,
    dataset: str | Path,
    *,
    server: Server | None = None,
    tokenizer: str | Path | None = None,
    socket: str | None = None,
    k: int = 3,
    samples: int = 1,
    temperature: float = 0.7,
    max_tokens: int = 1024,
    allow: Sequence[str] = (),
    seed: int = 0,
    report_ready: Callable[[str], None] = lambda where: None,
    progress: ProgressFunc | None = None,
) -> ServiceCounts:
    """Serve predictions of the next action, as JSON lines, until stdin ends or the process is stopped.

    Args:
        predictor: majority, markov:1 to markov:3, regression, memory, module:Class, or a model:
            openai:NAME, ollama:NAME.
        dataset: What `foretrace build` wrote: what the predictor learns from, and how prompts look.
        server: Where the model server is.
        tokenizer: The one that the dataset was built with.
        socket: HOST:PORT or the path of a Unix socket (default: stdin and stdout).
        k: Predictions for a turn at most.
        samples: Answers of a model to each prompt.
        temperature: Of a model's sampling.
        max_tokens: Tokens of one answer of a model at most.
        allow: Also safe to run early, beside pure_read: sandbox_exec; may be repeated.
        seed: Seed of a model's samples.
        report_ready: Called with where clients are served, when they are.

    Raises:
        UsageError: a setting that cannot be served.
        PredictionError: no dataset, no rows, or a predictor that cannot learn from them.
        BuildError: a dataset of another version.
        ModelError: the model server cannot be reached.
        StoreError: the socket cannot be opened.
    """
    from foretrace.api.event_loop import run_in_event_loop
    from foretrace.api.guessers import make_guesser
    from foretrace.core.predictions import PredictionId
    from foretrace.evaluation.checked_settings import check_number, choose_safe_effects
    from foretrace.evaluation.predict_with_model import ModelSettings
    from foretrace.evaluation.prediction_service import PredictionService, ServiceCounts

    check_number("k", k, lowest=1)
    counts, safe = ServiceCounts(), choose_safe_effects(allow)
    guesser = make_guesser(
        predictor,
        make_local_path(dataset),
        server=server,
        tokenizer=tokenizer,
        settings=ModelSettings(samples=samples, temperature=temperature, max_tokens=max_tokens),
        seed=seed,
        progress=progress or ignore_progress,
    )

    def make_service() -> PredictionService:
        return PredictionService(
            lambda messages, tools: guesser.guess(PredictionId("", 0), messages, tools, k), safe, counts
        )

    async def listen() -> ServiceCounts:
        try:
            await guesser.start()
            with contextlib.suppress(asyncio.CancelledError):  # Ctrl-C: what was served is reported
                if socket is None:
                    await _serve_stdin(make_service, report_ready)
                else:
                    await _serve_socket(make_service, socket, report_ready)
        finally:
            await guesser.close()
        return counts

    return run_in_event_loop(listen)


async def _serve_stdin(make: Callable[[], PredictionService], report_ready: Callable[[str], None]) -> None:
    """Until stdin ends. A thread reads it: the event loop cannot wait for a file, and a thread of its pool would be
    waited for at the end."""
    loop, lines, room = asyncio.get_running_loop(), asyncio.Queue[bytes](), threading.Semaphore(_IN_FLIGHT)

    def read() -> None:
        rest = b""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            while chunk := os.read(sys.stdin.fileno(), 1 << 16):  # a buffered reader cannot be left at exit
                *whole, rest = (rest + chunk).split(b"\n")
                for line in whole:
                    room.acquire()
                    loop.call_soon_threadsafe(lines.put_nowait, line + b"\n")
                if len(rest) > MAX_LINE:
                    break
            loop.call_soon_threadsafe(lines.put_nowait, rest)
            loop.call_soon_threadsafe(lines.put_nowait, b"")

    async def each_line() -> AsyncIterator[bytes]:
        while line := await lines.get():
            room.release()
            yield line

    async def write(reply: bytes) -> None:
        sys.stdout.buffer.write(reply)
        sys.stdout.buffer.flush()

    threading.Thread(target=read, daemon=True).start()
    report_ready("stdin and stdout")
    with contextlib.suppress(BrokenPipeError):
        await _answer_lines(make(), each_line(), write)


async def _serve_socket(
    make: Callable[[], PredictionService], address: str, report_ready: Callable[[str], None]
) -> None:
    """Each connection is a client with turns of its own."""

    async def serve_client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def write(reply: bytes) -> None:
            writer.write(reply)
            await writer.drain()

        with contextlib.suppress(ConnectionError, asyncio.CancelledError):  # it went away, or the service ends
            try:
                await _answer_lines(make(), reader, write)
            except ValueError:
                await write(b'{"type":"error","error":"a line is longer than 64 MiB: the connection is closed"}\n')
        writer.close()

    host, colon, port = address.rpartition(":")
    try:
        if not colon or "/" in address:
            opened = await _open_unix_socket(serve_client, Path(address))
        elif host and port.isascii() and port.isdigit() and int(port) < 1 << 16:
            opened = await asyncio.start_server(serve_client, host.strip("[]"), int(port), limit=MAX_LINE)
        else:
            raise UsageError(Setting("socket", address), ": give HOST:PORT, or the path of a Unix socket")
    except OSError as error:
        raise StoreError(f"{address}: cannot be opened: {find_first_line(error)}") from error
    found = opened.sockets[0].getsockname()
    report_ready(found if isinstance(found, str) else f"{found[0]}:{found[1]}")
    try:
        async with opened:
            await opened.serve_forever()
    finally:
        if isinstance(found, str):
            Path(found).unlink(missing_ok=True)


async def _open_unix_socket(serve_client: Any, path: Path) -> asyncio.Server:
    """A socket at a path where no other service answers; one that a killed service left is replaced."""
    try:
        _, other = await asyncio.open_unix_connection(path)
    except OSError:
        return await asyncio.start_unix_server(serve_client, path, limit=MAX_LINE)
    other.close()
    raise StoreError(f"{path}: another service answers there")


async def _answer_lines(
    service: PredictionService,
    lines: AsyncIterator[bytes] | asyncio.StreamReader,
    write: Callable[[bytes], Awaitable[None]],
) -> None:
    """Answer all lines, each as soon as that can be; those of one turn in their order."""
    running: set[asyncio.Task[None]] = set()

    async def answer(line: bytes) -> None:
        await write(await service.answer(line) + b"\n")

    try:
        async for line in lines:
            if line.strip():
                running.add(asyncio.create_task(answer(line)))
            if len(running) >= _IN_FLIGHT:
                await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in [each for each in running if each.done()]:
                running.discard(task)
                task.result()
        while running:
            await running.pop()
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
