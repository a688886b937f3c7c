"""From the name of a protocol to the protocol."""

from __future__ import annotations

import inspect

from foretrace.core.errors import UsageError
from foretrace.core.plugins import load_plugin
from foretrace.protocols.base import Protocol


def make_protocol(name: str, *, forced: bool = False, option: str = "forced") -> Protocol:
    """The protocol of that name; `option` is what a user calls the forced form.

    Raises:
        UsageError: no such protocol, or it has no forced form.
    """
    kind = load_plugin("protocol", name)
    if not forced:
        return kind()
    if "forced" not in inspect.signature(kind).parameters:
        raise UsageError(f"{option} is for the protocol interleaved, not for {name}")
    return kind(forced=True)
