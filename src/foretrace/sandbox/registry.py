"""From names of sandboxes, `docker,local`, to the first of them that starts."""

from __future__ import annotations

from foretrace.core.errors import UsageError
from foretrace.core.plugins import load_plugin
from foretrace.sandbox.base import Sandbox, Settings
from foretrace.sandbox.fallback import FirstThatStarts


def make_sandbox(names: str, settings: Settings, *, option: str = "sandbox") -> Sandbox:
    """The sandbox that a list of names stands for, the first of them that starts; not started yet.

    Args:
        option: what a user calls the list.

    Raises:
        UsageError: no name, or one that is unknown.
    """
    listed = list(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
    if not listed:
        raise UsageError(f"{option} names nothing: name one or several, e.g. docker,local")
    # All are looked up before any is started: a misspelt name is found at once.
    kinds = [(name, load_plugin("sandbox", name)) for name in listed]
    return FirstThatStarts([(name, kind(settings)) for name, kind in kinds])
