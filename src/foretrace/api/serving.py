"""Serve a predictor to other agents: on stdin and stdout, or on a socket."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretrace.core.errors import PredictionError, Setting, StoreError, UsageError, find_first_line
from foretrace.core.places import make_local_path
from foretrace.core.progress import ignore_progress

if TYPE_CHECKING:
    from foretrace.core.message_columns import ChatText
    from foretrace.core.progress import ProgressFunc
    from foretrace.evaluation.predict_with_model import ModelSettings
    from foretrace.evaluation.prediction_service import AskPredictor, PredictionService, ServiceCounts
    from foretrace.evaluation.predictors.base import Guess, Predictor
    from foretrace.models.base import ChatModel, Server

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
        StoreError: the socket cannot be opened.
    """
    from foretrace.api.event_loop import run_in_event_loop, run_with_model
    from foretrace.core.message_columns import ChatText
    from foretrace.core.plugins import plugin_names
    from foretrace.dataset.prompts import PromptRenderer
    from foretrace.evaluation.checked_settings import check_number, choose_safe_effects
    from foretrace.evaluation.predict_with_model import ModelSettings
    from foretrace.evaluation.prediction_service import PredictionService, ServiceCounts
    from foretrace.registry import make_predictor

    for name, value in (("k", k), ("samples", samples)):
        check_number(name, value, lowest=1)
    folder, counts, safe = make_local_path(dataset), ServiceCounts(), choose_safe_effects(allow)
    renderer = PromptRenderer(folder, tokenizer=tokenizer)

    def render(messages: Any, tools: Any) -> list[ChatText]:
        return [ChatText(**message) for message in renderer.render(messages, tools)]

    async def listen(ask: AskPredictor) -> ServiceCounts:
        make = lambda: PredictionService(ask, render, safe, counts)  # noqa: E731
        with contextlib.suppress(asyncio.CancelledError):  # Ctrl-C: what was served is reported
            await (_serve_stdin(make, report_ready) if socket is None else _serve_socket(make, socket, report_ready))
        return counts

    if isinstance(predictor, str) and predictor.partition(":")[0] in plugin_names("model"):
        how = ModelSettings(samples=samples, temperature=temperature, max_tokens=max_tokens)
        how.check()
        return run_with_model(predictor, server, lambda model: listen(_ask_model(model, how, k, seed)))
    if server is not None:
        raise UsageError(Setting(server.list_settings_except()[0]), " is for a model, and a predictor needs no server")
    made = make_predictor(predictor) if isinstance(predictor, str) else predictor
    ask = _ask_predictor(made, str(predictor), folder, k, progress or ignore_progress)
    return run_in_event_loop(lambda: listen(ask))


def _ask_predictor(predictor: Predictor, name: str, dataset: Path, k: int, progress: ProgressFunc) -> AskPredictor:
    """Let a predictor learn from the train rows of a dataset; returns what asks it."""
    from threadpoolctl import threadpool_limits

    from foretrace.evaluation.dataset_rows import read_rows
    from foretrace.evaluation.predict import check_guesses

    rows = read_rows(dataset, "proposer", "train")
    if not rows:
        raise PredictionError(f"{dataset}: has no proposer rows to learn from; build it with the recipe proposer")
    progress(f"{name} learns from {len(rows):,} rows", 0, None)
    try:
        predictor.fit(rows)
    except Exception as error:  # a user's own class may fail in any way
        raise PredictionError(f"{name}: cannot learn from {len(rows):,} rows: {find_first_line(error)}") from error
    threadpool_limits(1)  # after the fit, which loads the libraries that are to be limited

    async def ask(prompt: Sequence[ChatText]) -> list[Guess]:
        return check_guesses(predictor.predict(prompt, k), k)

    return ask


def _ask_model(model: ChatModel, how: ModelSettings, k: int, seed: int) -> AskPredictor:
    from foretrace.evaluation.predict_with_model import guess_with_model

    async def ask(prompt: Sequence[ChatText]) -> list[Guess]:
        return (await guess_with_model(model, prompt, seed, how))[:k]

    return ask


async def _serve_stdin(make: Callable[[], PredictionService], report_ready: Callable[[str], None]) -> None:
    """Until stdin ends. A thread reads it: the event loop cannot wait for a file, and a thread of its pool would be
    waited for at the end."""
    loop, lines, room = asyncio.get_running_loop(), asyncio.Queue[bytes](), threading.Semaphore(_IN_FLIGHT)

    def read() -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            while line := sys.stdin.buffer.readline(MAX_LINE):
                room.acquire()
                loop.call_soon_threadsafe(lines.put_nowait, line)
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

        # It went away, or sent a line that is too long, or the service ends.
        with contextlib.suppress(ConnectionError, ValueError, asyncio.CancelledError):
            await _answer_lines(make(), reader, write)
        writer.close()

    host, _, port = address.rpartition(":")
    try:
        if host and port.isascii() and port.isdigit():
            opened = await asyncio.start_server(serve_client, host.strip("[]"), int(port), limit=MAX_LINE)
        else:
            opened = await asyncio.start_unix_server(serve_client, address, limit=MAX_LINE)
    except (OSError, OverflowError) as error:
        raise StoreError(f"{address}: cannot be opened: {find_first_line(error)}") from error
    found = opened.sockets[0].getsockname()
    report_ready(found if isinstance(found, str) else f"{found[0]}:{found[1]}")
    async with opened:
        await opened.serve_forever()


async def _answer_lines(
    service: PredictionService,
    lines: AsyncIterator[bytes] | asyncio.StreamReader,
    write: Callable[[bytes], Awaitable[None]],
) -> None:
    """Answer all lines, each as soon as that can be; those of one turn in their order."""
    running: set[asyncio.Task[None]] = set()

    async def answer(line: bytes) -> None:
        await write(await service.answer(line) + b"\n")

    async for line in lines:
        if line.strip():
            running.add(asyncio.create_task(answer(line)))
        if len(running) >= _IN_FLIGHT:
            await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        for task in [each for each in running if each.done()]:
            running.discard(task)
            task.result()
    if running:
        await asyncio.gather(*running)
