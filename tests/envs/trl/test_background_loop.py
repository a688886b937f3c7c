"""The sandbox of a rollout function: what its arguments make, and which of them do not go together."""

from __future__ import annotations

from typing import Any

import pytest

from foretrace.core.errors import UsageError
from foretrace.envs.trl import rollout_func
from foretrace.envs.trl.background_loop import BackgroundLoop
from foretrace.sandbox import local
from foretrace.sandbox.base import SandboxSettings
from foretrace.sandbox.local import LocalSandbox

BOX = SandboxSettings(workers=1, allow_weak_isolation=True)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"sandbox": LocalSandbox(BOX), "sandbox_settings": BOX}, "sandbox_settings is for a sandbox that is named"),
        ({"max_concurrency": 0}, "max_concurrency=0: choose 1 or more"),
    ],
)
def test_arguments_that_do_not_go_together(given: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        rollout_func("tools", problems="builtin", limit=1, **given)


@pytest.mark.parametrize("settings", [None, BOX, SandboxSettings(max_sessions=3)])
def test_sessions_follow_from_the_episodes_at_one_time(
    monkeypatch: pytest.MonkeyPatch, settings: SandboxSettings | None
) -> None:
    made: list[SandboxSettings] = []

    def make(settings: SandboxSettings) -> LocalSandbox:
        made.append(settings)
        return LocalSandbox(settings)

    monkeypatch.setattr(local, "PLUGIN", make)
    BackgroundLoop("local", settings, 3)
    assert [(one.max_sessions, one.workers) for one in made] == [(3, 1 if settings is BOX else 0)]


def test_a_sandbox_of_your_own_is_taken_as_it_is() -> None:
    own = LocalSandbox(BOX)
    assert BackgroundLoop(own, None).sandbox is own
