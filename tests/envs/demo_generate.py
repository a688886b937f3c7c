"""The demo model as a function that generates for a whole batch, as users of TRL write one."""

from __future__ import annotations

import asyncio

from foretrace.core.completion import Request, Sampling
from foretrace.envs.trl import Generation
from foretrace.models.servers.demo import Demo


def generate(prompts: list[list[int]], sampling: list[Sampling], stop: tuple[str, ...]) -> list[Generation]:
    async def complete_all() -> list[Generation]:
        async with Demo() as model:
            requests = [
                Request(prompt_ids=tuple(prompt), sampling=own, stop=stop)
                for prompt, own in zip(prompts, sampling, strict=True)
            ]
            completions = [await model.complete(request) for request in requests]
            return [Generation(list(one.token_ids), list(one.logprobs)) for one in completions]

    return asyncio.run(complete_all())
