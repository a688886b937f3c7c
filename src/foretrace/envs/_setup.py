"""From the names in an environment's settings, or a command's options, to the objects that episodes take."""

from __future__ import annotations

import inspect

from foretrace.core.errors import UsageError
from foretrace.core.plugins import resolve
from foretrace.protocols.base import Protocol
from foretrace.sandbox._choose import FirstThatStarts
from foretrace.sandbox.base import Sandbox, Settings


def absent(library: str, extra: str, missing: ImportError) -> ImportError:
    """What is raised where an environment's library is not installed."""
    return ImportError(f'{library} is not there ({missing}): pip install "foretrace[{extra}]"', name=missing.name)


def protocol_of(name: str, *, forced: bool = False, option: str = "forced") -> Protocol:
    """The protocol of that name; `option` is what a user calls the forced form.

    Raises:
        UsageError: no such protocol, or it has no forced form.
    """
    kind = resolve("protocol", name)
    if not forced:
        return kind()
    if "forced" not in inspect.signature(kind).parameters:
        raise UsageError(f"{option} is for the protocol interleaved, not for {name}")
    return kind(forced=True)


def sandbox_of(names: str, settings: Settings, *, option: str = "sandbox") -> Sandbox:
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
    kinds = [(name, resolve("sandbox", name)) for name in listed]
    return FirstThatStarts([(name, kind(settings)) for name, kind in kinds])
