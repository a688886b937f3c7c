"""The settings and the budget of a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from foretrace.core.completion import Sampling
from foretrace.core.errors import Setting, UsageError
from foretrace.episodes.settings import EpisodeSettings
from foretrace.models.token_meter import TokenMeter

Keep = Literal["all", "success", "ideal"]
"""Which attempts are stored. Attempts that ended in an error are stored only with `all`."""


class Budget(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits of a run. No attempt is started that would probably exceed one; those in flight are finished."""

    tokens: int | None = None
    """Prompt and completion tokens together."""
    seconds: float | None = None
    cost: float | None = None
    price_in: float = 0.0
    """Price per million prompt tokens, in the unit of `cost`."""
    price_out: float = 0.0
    """Price per million completion tokens."""

    def compute_cost(self, meter: TokenMeter) -> float:
        return (meter.prompt_tokens * self.price_in + meter.completion_tokens * self.price_out) / 1e6

    def check_time(self, seconds: float) -> str | None:
        """Why no more attempts may begin this many seconds after the start of the run; `None` if they may."""
        if self.seconds is not None and seconds >= self.seconds:
            return f"the time of {self.seconds:g} s is over"
        return None

    def check_tokens_and_cost(
        self, total: TokenMeter, in_flight: Sequence[TokenMeter], finished: int, *, guess: int
    ) -> str | None:
        """Why no more attempts may begin besides those in flight; `None` if they may. The first one always may.

        Args:
            total: Tokens of all attempts.
            in_flight: Tokens of each attempt in flight.
            finished: Number of the others.
            guess: Most tokens that an attempt may use, which is the estimate for each until one has finished.
        """
        if not in_flight and not finished:
            return None

        def would_exceed(limit: float, measure: Callable[[TokenMeter], float], guess: float) -> bool:
            """Whether one more attempt would probably exceed the limit. Each attempt in flight is expected to use as
            much as the average finished one, or what it has already used if that is more."""
            used = [measure(meter) for meter in in_flight]
            spent = measure(total) - sum(used)
            each = spent / finished if finished else guess
            return spent + sum(max(each, amount) for amount in used) + each > limit

        if self.tokens is not None and would_exceed(self.tokens, _count_tokens, guess):
            return f"the budget of {self.tokens:,} tokens has no room for another attempt"
        price = max(self.price_in, self.price_out)
        if self.cost is not None and would_exceed(self.cost, self.compute_cost, guess * price / 1e6):
            return f"the budget of {self.cost:g} has no room for another attempt"
        return None


class GenerateSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to generate."""

    samples: int = 1
    """Attempts at each problem."""
    sampling: Sampling = Sampling()
    """The seed in it is not used, since each attempt has its own."""
    seed: int = 0
    """Seed of the run, from which each attempt's seed is derived with its problem and sample number."""
    episode: EpisodeSettings = EpisodeSettings()
    keep: Keep = "all"
    concurrency: int | None = None
    """Most attempts in flight; `None` finds out how many the server can take."""
    budget: Budget = Budget()
    redact: bool = True
    """Redact secrets and user names in traces before anything is written."""
    redact_emails: bool = False
    redact_addresses: bool = False
    """Redact IP addresses."""


def check_settings(settings: GenerateSettings) -> None:
    """Refuse settings that are out of range."""
    sampling, budget = settings.sampling, settings.budget
    counts = {"samples": settings.samples, "concurrency": settings.concurrency}
    for name, count in {**counts, "max_tokens": sampling.max_tokens, "top_k": sampling.top_k}.items():
        if count is not None and count < 1:
            raise UsageError(Setting(name, count), ": choose 1 or more")
    if not 0 <= sampling.temperature < float("inf"):
        advice = ": choose a number that is not negative, e.g. 0.7"
        raise UsageError(Setting("temperature", sampling.temperature), advice)
    if not 0 < sampling.top_p <= 1:
        raise UsageError(Setting("top_p", sampling.top_p), ": choose a number above 0, 1 at most")
    limits = {"max_tokens_total": budget.tokens, "max_time": budget.seconds, "max_cost": budget.cost}
    for name, value in {**limits, "price_in": budget.price_in, "price_out": budget.price_out}.items():
        if value is not None and not 0 <= value < float("inf"):
            raise UsageError("a budget of ", Setting(name, value), ": choose a number that is not negative")
    if budget.cost is not None and not (budget.price_in or budget.price_out):
        prices = (Setting("price_in"), " or ", Setting("price_out"))
        raise UsageError("a budget of ", Setting("max_cost"), " needs a price, for a million tokens: give ", *prices)


def _count_tokens(meter: TokenMeter) -> float:
    return meter.total_tokens
