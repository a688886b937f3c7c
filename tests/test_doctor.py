"""What `foretrace.doctor` finds of a model and of a sandbox."""

from __future__ import annotations

import asyncio

import pytest

from foretrace.core.completion import CAPABILITY_NAMES, Capabilities, Sampling
from foretrace.core.errors import SandboxError
from foretrace.doctor import ModelReport, examine_model, examine_sandbox
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


def test_a_sandbox_that_serves() -> None:
    facts, error = examine_sandbox("local", SandboxSettings(workers=1, allow_weak_isolation=True))
    assert error is None and facts is not None
    assert facts["name"] == "local" and facts["runs_per_s"] > 10


@pytest.mark.usefixtures("short_measuring")
def test_where_none_serves_what_is_there_is_found_all_the_same() -> None:
    facts, error = examine_sandbox("local", SandboxSettings(workers=1, min_level=4))
    assert isinstance(error, SandboxError) and "reaches level" in str(error)
    assert facts is not None and facts["level"] < facts["min_level"] == 4
