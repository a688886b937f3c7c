"""A model and a sandbox examined from Python: the report says all that a server can do, and how an episode went."""

from __future__ import annotations

import asyncio

from foretrace.core.completion import CAPABILITY_NAMES, Capabilities, Sampling
from foretrace.doctor import ModelReport, examine_model
from foretrace.models.servers.demo import Demo
from foretrace.sandbox.base import SandboxSettings
from foretrace.sandbox.local import LocalSandbox

ANY_LEVEL = SandboxSettings(workers=1, allow_weak_isolation=True)


def test_the_report_of_the_demo_model() -> None:
    said: list[tuple[str, int, int | None]] = []
    report = ModelReport(model="demo-model", endpoint="")
    work = examine_model(
        report, Demo(), LocalSandbox(ANY_LEVEL), Sampling(max_tokens=512), lambda *now: said.append(now)
    )
    asyncio.run(work)
    assert report.capabilities is not None and report.episode is not None
    assert list(report.capabilities) == [*CAPABILITY_NAMES, "context_length"]
    assert report.capabilities["token_prompts"]["yes"] and not report.capabilities["reasoning_apart"]["yes"]
    assert report.episode["runs"] > 0
    assert said == [("starting the sandbox", 0, None), ("an episode: builtin/two_sum, interleaved_tools", 0, None)]


def test_every_capability_is_named() -> None:
    assert {*CAPABILITY_NAMES} == {*Capabilities.__struct_fields__} - {"context_length", "reasons"}
