"""Feed one episode from one model until it is done, whatever happens on the way."""

from __future__ import annotations

from foretrace.core.completion import Sampling
from foretrace.core.errors import ModelError, SandboxError
from foretrace.core.trace import Trace, with_id
from foretrace.episodes.episode import Episode
from foretrace.models.base import ChatModel

_SEEDS = 1 << 31


async def rollout(episode: Episode, model: ChatModel, sampling: Sampling) -> Trace:
    """Run `episode` to its end and return its trace.

    A model server or a sandbox that fails ends in a trace with `outcome.error`: the attempt is recorded, and is
    neither a success nor a failure of the model.

    Args:
        sampling: with a seed, each turn gets one of its own from it.

    Raises:
        ModelError: the server refuses for good (a wrong key, an unknown model, a used-up quota): no other attempt
            would fare better.
    """
    async with episode:
        try:
            await episode.start()
            while not episode.done:
                await episode.step(await model.complete(episode.request(_of_turn(sampling, episode.turns))))
        except ModelError as error:
            if error.final:
                raise
            await episode.fail(error.kind, str(error))
        except SandboxError as error:
            await episode.fail("sandbox", str(error))
        return with_id(episode.trace())


def _of_turn(sampling: Sampling, turn: int) -> Sampling:
    if sampling.seed is None:
        return sampling
    import msgspec

    return msgspec.structs.replace(sampling, seed=(sampling.seed + turn) % _SEEDS)
