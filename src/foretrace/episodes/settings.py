"""The settings of an episode."""

from __future__ import annotations

from typing import Literal

import msgspec


class EpisodeSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How an episode is run."""

    max_turns: int | None = None
    """Number of completions after which it ends; `None` means the protocol's own limit."""
    feedback: Literal["public", "counts"] = "public"
    """`public`: the model sees the public tests. `counts`: also how many hidden ones pass, but never their values."""
    hints: bool = False
    """Add a hint after an error or a partial pass."""
    structure_bonus: bool = False
    """Add 0.1 to the reward for two thoughts or more, and 0.1 for a verification."""
    flagged: Literal["zero", "report"] = "zero"
    """The reward of code that tried to pass without solving the task. `zero`: as if no test had passed. `report`: like
    any other code. The trace has the flags either way."""
