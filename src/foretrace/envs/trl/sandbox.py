"""The sandbox of a reward or rollout function, from its arguments."""

from __future__ import annotations

import msgspec

from foretrace.core.errors import Setting, UsageError
from foretrace.registry import make_sandbox
from foretrace.sandbox.base import Sandbox, SandboxSettings

_DEFAULTS = SandboxSettings()


def resolve_sandbox(sandbox: str | Sandbox, settings: SandboxSettings | None, max_concurrency: int) -> Sandbox:
    """The sandbox of a name, with a session for each of the episodes at one time; or as it is given.

    Raises:
        UsageError: settings beside a sandbox that has its own, a number of sessions beside that of the episodes, or no
            episode at all.
    """
    if max_concurrency < 1:
        raise UsageError(Setting("max_concurrency", max_concurrency), ": choose 1 or more")
    if not isinstance(sandbox, str):
        if settings is not None:
            raise UsageError(
                Setting("sandbox_settings"),
                " is for a sandbox that is named: leave it out, and make the Sandbox object with it",
            )
        return sandbox
    settings = settings or _DEFAULTS
    if settings.max_sessions not in (max_concurrency, _DEFAULTS.max_sessions):
        raise UsageError(
            Setting("max_sessions", settings.max_sessions),
            " is not read here: give ",
            Setting("max_concurrency", settings.max_sessions),
            ", the number of episodes at one time, each of which may have a session",
        )
    return make_sandbox(sandbox, msgspec.structs.replace(settings, max_sessions=max_concurrency))
