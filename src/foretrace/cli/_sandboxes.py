"""`--sandbox docker,local`: from names to a sandbox, the first of them that starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from foretrace.sandbox.base import Sandbox, Settings


def sandbox_of(names: str, settings: Settings) -> Sandbox:
    """The sandbox that a list of names stands for, not started yet.

    Raises:
        UsageError: no name, or one that is unknown.
    """
    from foretrace.envs._setup import sandbox_of as of

    return of(names, settings, option="--sandbox")
