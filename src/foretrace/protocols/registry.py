"""From the name of a protocol to the protocol."""

from __future__ import annotations

from foretrace.core.plugins import make_plugin
from foretrace.protocols.base import InteractionProtocol


def make_protocol(name: str) -> InteractionProtocol:
    """The protocol of that name, e.g. `tools`, or `module:Class`.

    Raises:
        UsageError: no such protocol, or an object that is none.
    """
    return make_plugin("protocol", name, InteractionProtocol)
