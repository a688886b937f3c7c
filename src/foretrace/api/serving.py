"""Serve a predictor to other agents: on stdin and stdout, or on a socket."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket as sockets
import sys
import threading
from collections.abc import Awaitable, Callable, Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from foretrace.api.event_loop import closing_all, run_in_event_loop
from foretrace.core.errors import Setting, StoreError, UsageError, find_first_line
from foretrace.core.places import make_local_path
from foretrace.core.progress import ProgressFunc, ignore_progress

if TYPE_CHECKING:
    from foretrace.evaluation.prediction_service import PredictionService, ServiceCounts
    from foretrace.evaluation.predictors.base import Predictor
    from foretrace.models.base import Server

MAX_LINE = 64 << 20
_IN_FLIGHT = 1024
"""Most lines of one client that are answered at a time."""


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
        allow: Effects that are safe to run early besides pure_read: sandbox_exec; may be repeated.
        seed: Seed of a model's samples.
        report_ready: Called with where clients are served, when they are.

    Raises:
        UsageError: a setting is invalid.
        PredictionError: there is no dataset or no row, or the predictor cannot learn from them.
        BuildError: the dataset has another version.
        ModelError: the model server cannot be reached.
        StoreError: the socket cannot be opened.
    """
    from foretrace.api.guessers import make_guesser
    from foretrace.episodes.proposers import Situation
    from foretrace.evaluation.predict_with_model import ModelSettings
    from foretrace.evaluation.prediction_service import PredictionService, ServiceCounts
    from foretrace.evaluation.savings import check_number, choose_safe_effects

    check_number("k", k, lowest=1)
    counts, safe = ServiceCounts(), choose_safe_effects(allow)
    # Before the predictor learns: an unusable address fails early, and clients that connect meanwhile wait.
    with contextlib.nullcontext() if socket is None else _open_socket(socket) as opened:
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
                lambda messages, tools: guesser.propose(Situation("", messages, tools), k), safe, counts
            )

        async def listen() -> ServiceCounts:
            async with closing_all(guesser):
                await guesser.start()
                with contextlib.suppress(asyncio.CancelledError):  # Ctrl-C: still report what was served
                    if opened is None:
                        await _serve_stdin(make_service, report_ready)
                    else:
                        await _serve_socket(make_service, opened, report_ready)
            return counts

        return run_in_event_loop(listen)


async def _serve_stdin(make: Callable[[], PredictionService], report_ready: Callable[[str], None]) -> None:
    """Serve until stdin ends. A separate thread reads it: the event loop cannot wait for a file, and would wait for a
    thread of its pool at the end."""
    ours, theirs = sockets.socketpair()

    def read() -> None:
        with contextlib.suppress(OSError), theirs:  # the reader has gone
            while chunk := os.read(sys.stdin.fileno(), 1 << 16):  # a buffered reader would block the exit
                theirs.sendall(chunk)

    async def write(reply: bytes) -> None:
        sys.stdout.buffer.write(reply)
        sys.stdout.buffer.flush()

    threading.Thread(target=read, daemon=True).start()
    reader, _ = await asyncio.open_connection(sock=ours, limit=MAX_LINE)
    report_ready("stdin and stdout")
    with contextlib.suppress(BrokenPipeError):
        await _answer_lines(make(), reader, write)


@contextlib.contextmanager
def _open_socket(address: str) -> Generator[sockets.socket]:
    """A listening socket; replaces the socket file of a killed service."""
    host, colon, port = address.rpartition(":")
    path = None if colon and "/" not in address else Path(address)
    try:
        if path is not None:
            with sockets.socket(sockets.AF_UNIX) as client:
                if client.connect_ex(address) == 0:
                    raise StoreError(f"{path}: another service answers there")
            if path.is_socket():
                path.unlink()
            opened = sockets.socket(sockets.AF_UNIX)
            opened.bind(address)
            opened.listen()
        elif host and port.isascii() and port.isdigit() and int(port) < 1 << 16:
            family = sockets.AF_INET6 if ":" in host else sockets.AF_INET
            opened = sockets.create_server((host.strip("[]"), int(port)), family=family)
        else:
            raise UsageError(Setting("socket", address), ": give HOST:PORT, or the path of a Unix socket")
    except OSError as error:
        raise StoreError(f"{address}: cannot be opened: {find_first_line(error)}") from error
    try:
        with opened:
            yield opened
    finally:
        if path is not None:
            path.unlink(missing_ok=True)


async def _serve_socket(
    make: Callable[[], PredictionService], opened: sockets.socket, report_ready: Callable[[str], None]
) -> None:
    async def serve_client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def write(reply: bytes) -> None:
            writer.write(reply)
            await writer.drain()

        with contextlib.suppress(ConnectionError, asyncio.CancelledError):  # the client went away, or the service ends
            await _answer_lines(make(), reader, write)
        writer.close()

    found = opened.getsockname()
    async with await asyncio.start_server(serve_client, sock=opened, limit=MAX_LINE) as service:
        report_ready(found if isinstance(found, str) else f"{found[0]}:{found[1]}")
        await service.serve_forever()


async def _answer_lines(
    service: PredictionService, reader: asyncio.StreamReader, write: Callable[[bytes], Awaitable[None]]
) -> None:
    """Answer all lines, each as soon as possible; those of one turn in order."""
    running: set[asyncio.Task[None]] = set()

    async def answer(line: bytes) -> None:
        await write(await service.answer(line) + b"\n")

    try:
        async for line in reader:
            if line.strip():
                running.add(asyncio.create_task(answer(line)))
            if len(running) >= _IN_FLIGHT:
                await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in [each for each in running if each.done()]:
                running.discard(task)
                task.result()
        while running:
            await running.pop()
    except ValueError:
        await write(b'{"type":"error","error":"a line is longer than 64 MiB: no more is read"}\n')
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
