"""Check that a model server has the capabilities that a protocol requires."""

from __future__ import annotations

from typing import NamedTuple

from foretrace.core.completion import Capabilities
from foretrace.core.errors import UsageError
from foretrace.models.base import ChatModel, TokenModel
from foretrace.protocols.base import InteractionProtocol


class MissingCapability(NamedTuple):
    """A capability that a protocol requires but a server does not have."""

    name: str
    """The field of `Capabilities`."""
    reason: str
    """What the probe observed instead."""


def find_missing_capability(protocol: InteractionProtocol, found: Capabilities) -> MissingCapability | None:
    """The first required capability that the server does not have; `None` if the protocol can be used."""
    for name in protocol.required_capabilities:
        # A server that takes token ids continues any turn, whatever its chat interface can do.
        if name == "continuation" and _takes_ids(found):
            continue
        if not getattr(found, name, False):
            return MissingCapability(name, found.reasons.get(name, "it was not found"))
    return None


def require_capabilities(protocol: InteractionProtocol, model: ChatModel, found: Capabilities) -> None:
    """Check that the server has what the protocol requires."""
    missing = find_missing_capability(protocol, found)
    if missing is not None:
        raise UsageError(
            f"the protocol {protocol.name} needs {missing.name}, and {model.spec} does not do it: {missing.reason}; "
            "choose another protocol or server"
        )


def find_token_model(model: ChatModel, found: Capabilities) -> TokenModel | None:
    """The model as an episode's tokenizer; `None` if the server does not give and take token ids."""
    return model if _takes_ids(found) and isinstance(model, TokenModel) else None


def _takes_ids(found: Capabilities) -> bool:
    return found.token_prompts and found.token_ids
