"""Which effects are safe to run early."""

from __future__ import annotations

from collections.abc import Collection

from foretrace.actions.taxonomy import Effect
from foretrace.core.errors import Setting, UsageError

ALLOWED_EFFECTS = (Effect.SANDBOX_EXEC,)
"""Effects that a user may call safe to run early, beside `pure_read`."""


def find_safe_effects(allow: Collection[str]) -> frozenset[Effect]:
    """`pure_read`, and the effects that are allowed.

    Raises:
        UsageError: one of these is never safe.
    """
    for effect in allow:
        if effect not in (Effect.PURE_READ, *ALLOWED_EFFECTS):
            choices = ", ".join(ALLOWED_EFFECTS)
            raise UsageError(
                Setting("allow", str(effect)), f": is not safe to run early; what can be allowed is {choices}"
            )
    return frozenset((Effect.PURE_READ, *(Effect(effect) for effect in allow)))
