"""`--sandbox docker,local`: from names to a sandbox, the first of them that starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foretrace.sandbox.base import Sandbox, Settings


def sandbox_of(names: str, settings: Settings) -> Sandbox:
    """The sandbox that a list of names stands for, not started yet.

    Raises:
        UsageError: no name, or one that is unknown.
    """
    from foretrace.core.errors import UsageError
    from foretrace.core.plugins import resolve
    from foretrace.sandbox._choose import FirstThatStarts

    listed = list(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
    if not listed:
        raise UsageError("--sandbox names nothing: name one or several, e.g. docker,local")
    # All are looked up before any is started: a misspelt name is found at once.
    kinds: list[tuple[str, Any]] = [(name, resolve("sandbox", name)) for name in listed]
    return FirstThatStarts([(name, kind(settings)) for name, kind in kinds])
