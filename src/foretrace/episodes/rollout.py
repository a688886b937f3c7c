"""Run one episode to its end: the loop of start, completion and step, and the names of its failures.

`rollout` returns a trace whatever happens; `run_episode` raises the error itself.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable

import msgspec

from foretrace.core.completion import Completion, Request, Sampling
from foretrace.core.errors import ForetraceError, ModelError, ProblemError, SandboxError, Setting, UsageError
from foretrace.core.trace import Failure, Outcome, Trace, add_trace_id
from foretrace.episodes.episode import Episode
from foretrace.models.base import ChatModel
from foretrace.models.server_errors import public_message

Complete = Callable[[Request], Awaitable[Completion]]
"""Anything that answers a request: `ChatModel.complete`, a trainer's own sampler, a function that replays text."""

CONTEXT = "context"
"""Exit reason of an episode whose messages outgrew the model's context."""
ENCODING_ERRORS = (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError)
"""What encoding a record may raise."""


class EpisodeLimitError(Exception):
    """Raised by a completion function if the surrounding run allows no further completion.

    The episode then ends as at its limit of turns, and the answer so far is judged.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


async def rollout(episode: Episode, model: ChatModel | Complete, sampling: Sampling | None = None) -> Trace:
    """Run `episode` to its end, close it, and return its trace.

    If a model server, sandbox or protocol fails, the trace has `outcome.error`: the attempt is recorded, but counts
    neither as a success nor as a failure of the model. An episode that outgrows the model's context after its first
    turn ends as at its limit of turns, and is judged.

    Args:
        model: A model, or any async function from a request to a completion.
        sampling: Used for each of the episode's requests, including its seed.

    Raises:
        ModelError: the server refuses permanently (a wrong key, an unknown model, a used-up quota), so that no other
            attempt could succeed.
        UsageError: the protocol needs something that the server cannot do.
    """
    complete = model if callable(model) else model.complete
    async with episode:
        try:
            await run_episode(episode, complete, sampling)
        except UsageError:
            raise
        except Exception as error:  # recorded in the trace; other attempts continue
            if isinstance(error, ModelError) and error.final:
                raise
        return finish_trace(episode)


def finish_trace(episode: Episode) -> Trace:
    """The trace of a finished episode, with its id; if it cannot be written, one that says so."""
    trace = episode.trace()
    try:
        return add_trace_id(trace)
    except ENCODING_ERRORS as error:
        return mark_unwritable(trace, error)


def mark_unwritable(trace: Trace, error: Exception) -> Trace:
    """What is stored instead of a trace that cannot be written (lone surrogates, a number out of range)."""
    failure = Failure(kind="unwritable", message=f"the trace cannot be written: {error}"[:500])
    return add_trace_id(msgspec.structs.replace(trace, messages=(), outcome=Outcome(status="error", error=failure)))


def _find_failure_kind(error: Exception) -> str:
    """The name under which a failure is counted: the kind of a `ModelError`, or the part that failed."""
    if isinstance(error, ModelError):
        return error.kind
    parts = {SandboxError: "sandbox", ProblemError: "problem", ForetraceError: "protocol"}
    return next((name for part, name in parts.items() if isinstance(error, part)), "unexpected")


def make_failure_message(error: Exception, style: Callable[[Setting], str] = str) -> str:
    """The message of a failure in a trace: one line, with settings written by `style`, and without the address of a
    model server."""
    if isinstance(error, ModelError):
        return public_message(error, style)
    return error.render(style) if isinstance(error, ForetraceError) else f"{type(error).__name__}: {error}"


async def run_episode(
    episode: Episode,
    complete: Complete,
    sampling: Sampling | None = None,
    *,
    logprobs: bool = True,
    describe: Callable[[Exception], str] = make_failure_message,
) -> None:
    """Start an episode and feed it completions until it is done. The caller closes it.

    It also ends, and is judged, if a completion fails with `EpisodeLimitError`, or with a `ModelError` of kind
    `overflow` after the first turn.

    Args:
        describe: Makes the message of a failure for the trace; an environment may name settings in its users' terms.

    Raises:
        Exception: whatever failed. The episode has then ended as failed.
    """
    sampling = sampling or Sampling()
    async with record_failure(episode, describe):
        await episode.start()
        while not episode.done:
            try:
                async with _guessing(episode):
                    completion = await complete(episode.request(sampling, logprobs=logprobs))
            except EpisodeLimitError as limit:
                await episode.end(limit.reason)
            except ModelError as error:
                if error.kind != "overflow" or not episode.turns:
                    raise
                await episode.end(CONTEXT)
            else:
                await episode.step(completion)


@contextlib.asynccontextmanager
async def record_failure(
    episode: Episode, describe: Callable[[Exception], str] = make_failure_message
) -> AsyncGenerator[None]:
    """End an episode as failed if something in the block raises; the error is raised again."""
    try:
        yield
    except Exception as error:
        await episode.fail(_find_failure_kind(error), describe(error))
        raise


@contextlib.asynccontextmanager
async def _guessing(episode: Episode) -> AsyncGenerator[None]:
    """While waiting for a reply, let the episode start what the reply will probably ask for. Failures of that do not
    affect the attempt."""
    if not episode.speculates:
        yield
        return
    guessing = asyncio.create_task(episode.speculate())
    try:
        yield
    finally:
        guessing.cancel()
        await asyncio.gather(guessing, return_exceptions=True)
