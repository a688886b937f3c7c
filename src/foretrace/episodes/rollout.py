"""Feed one episode from one model until it is done, whatever happens on the way."""

from __future__ import annotations

import msgspec

from foretrace.core.completion import Sampling
from foretrace.core.errors import ForetraceError, ModelError, ProblemError, SandboxError, UsageError
from foretrace.core.trace import Failure, Outcome, Trace, with_id
from foretrace.episodes.episode import Episode
from foretrace.models.base import ChatModel
from foretrace.models.server_errors import public_message

CONTEXT = "context"
"""Exit reason of an episode whose messages outgrew the model's context."""
UNWRITABLE = (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError)
"""What encoding a record may raise."""


async def rollout(episode: Episode, model: ChatModel, sampling: Sampling) -> Trace:
    """Run `episode` to its end and return its trace.

    A model server, a sandbox or a protocol that fails ends in a trace with `outcome.error`: the attempt is recorded,
    and is neither a success nor a failure of the model. One that outgrows the model's context after its first turn
    ends at that limit, as at that of turns, and is judged.

    Args:
        sampling: goes with each of the episode's requests, its seed too.

    Raises:
        ModelError: the server refuses for good (a wrong key, an unknown model, a used-up quota): no other attempt
            would fare better.
        UsageError: the protocol needs what the server cannot do.
    """
    async with episode:
        try:
            await episode.start()
            while not episode.done:
                try:
                    completion = await model.complete(episode.request(sampling))
                except ModelError as error:
                    if error.kind != "overflow" or not episode.turns:
                        raise
                    await episode.end(CONTEXT)
                else:
                    await episode.step(completion)
        except UsageError:
            raise
        except ModelError as error:
            if error.final:
                raise
            await episode.fail(error.kind, public_message(error))
        except ForetraceError as error:
            await episode.fail(_kind(error), str(error))
        except Exception as error:  # a plugin of somebody else's: the other attempts shall not suffer
            await episode.fail("unexpected", f"{type(error).__name__}: {error}")
        trace = episode.trace()
        try:
            return with_id(trace)
        except UNWRITABLE as error:
            return unwritable(trace, error)


def unwritable(trace: Trace, error: Exception) -> Trace:
    """In place of a trace that cannot be written (text that is no Unicode, a number beyond all bounds): one that says
    so."""
    failure = Failure(kind="unwritable", message=f"the trace cannot be written: {error}"[:500])
    return with_id(msgspec.structs.replace(trace, messages=(), outcome=Outcome(status="error", error=failure)))


def _kind(error: ForetraceError) -> str:
    if isinstance(error, SandboxError):
        return "sandbox"
    return "problem" if isinstance(error, ProblemError) else "protocol"
