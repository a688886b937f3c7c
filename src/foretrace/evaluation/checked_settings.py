"""Checks of settings that the measurements share."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

from foretrace.actions.taxonomy import Effect
from foretrace.core.errors import Setting, UsageError

ALLOWED_EFFECTS = (Effect.SANDBOX_EXEC,)
"""Effects that a user may allow to run early, besides `pure_read`."""


def choose_safe_effects(allow: Collection[str]) -> frozenset[Effect]:
    """The effects whose calls are safe to run early: `pure_read` and the allowed ones.

    Raises:
        UsageError: an effect cannot be allowed.
    """
    for effect in allow:
        if effect not in (Effect.PURE_READ, *ALLOWED_EFFECTS):
            choices = ", ".join(ALLOWED_EFFECTS)
            raise UsageError(
                Setting("allow", str(effect)), f": is not safe to run early; what can be allowed is {choices}"
            )
    return frozenset((Effect.PURE_READ, *(Effect(effect) for effect in allow)))


def check_number(name: str, value: Any, unit: str = "", *, lowest: int = 0) -> None:
    """Refuse a setting that is neither None nor a finite number of at least `lowest`.

    Raises:
        UsageError: the setting is refused.
    """
    if value is None:
        return
    if not isinstance(value, (int, float)) or not math.isfinite(value) or value < lowest:
        raise UsageError(Setting(name, value), f": give {unit}{lowest} or more")
