"""What a protocol needs of a model server, held against what the server was found to do."""

from __future__ import annotations

from typing import NamedTuple

from foretrace.core.completion import Capabilities
from foretrace.core.errors import UsageError
from foretrace.models.base import ChatModel, TokenModel
from foretrace.protocols.base import InteractionProtocol


class Unmet(NamedTuple):
    """A need of a protocol that a server does not meet."""

    need: str
    """The field of `Capabilities`."""
    reason: str
    """What was observed instead."""


def unmet(protocol: InteractionProtocol, found: Capabilities) -> Unmet | None:
    """The first need that is not met; null where the protocol can be used."""
    for need in protocol.required_capabilities:
        # Behind a prompt of its own ids any turn goes on, whatever the server's chat interface can do.
        if need == "continuation" and _by_ids(found):
            continue
        if not getattr(found, need, False):
            return Unmet(need, found.reasons.get(need, "it was not found"))
    return None


def refuse(protocol: InteractionProtocol, model: ChatModel, found: Capabilities) -> None:
    """Refuse a protocol that needs what the server does not do.

    Raises:
        UsageError: names the need and what was observed.
    """
    missing = unmet(protocol, found)
    if missing is not None:
        raise UsageError(
            f"the protocol {protocol.name} needs {missing.need}, and {model.spec} does not do it: {missing.reason}; "
            "choose another protocol or server"
        )


def tokens_of(model: ChatModel, found: Capabilities) -> TokenModel | None:
    """What makes ids of text for an episode; null where the server does not give and take ids."""
    return model if _by_ids(found) and isinstance(model, TokenModel) else None


def _by_ids(found: Capabilities) -> bool:
    return found.token_prompts and found.token_ids
