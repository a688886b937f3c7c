"""The settings of a build."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Literal

import msgspec

from foretrace.actions.corrections import read_corrections
from foretrace.core.errors import Setting, UsageError
from foretrace.dataset.filters.benchmark_sets import parse_benchmark
from foretrace.dataset.proposer_guesses import check_guess_file

SPLITS = ("train", "validation", "test")
TargetFormat = Literal["type", "call", "message"]
Outcomes = Literal["success", "not_failed", "all"]
OUTCOME_NAMES = {True: "success", False: "failed", None: "unknown"}
"""Names of outcomes, by whether the attempt succeeded."""
Dedup = Literal["keep-best"]
Window = Literal["sliding", "blocks"]


class BuildSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of one build; all of them go into the manifest."""

    target: TargetFormat = "call"
    """What a proposer predicts: the action type, the call (type, tool, arguments), or the whole message."""
    max_context_tokens: int = 8192
    """Longest prompt. System, task and latest turns stay; what is left out is marked."""
    window: Window = "sliding"
    """How the history of a prompt is cut: `sliding` shows as much as there is room for; `blocks` cuts rarely, so that a
    prompt begins as the one before it in its trace."""
    tokenizer: str | None = None
    """`tokenizer.json`, or a folder that holds one; `None` counts UTF-8 bytes / 3.5."""
    split: tuple[float, float, float] = (0.8, 0.1, 0.1)
    """Shares of train, validation and test, by group."""
    seed: int = 0
    eval_size: int = 2000
    """Rows of the natural slice of `eval` at most."""
    outcomes: Outcomes = "success"
    """Whose steps are targets: successful attempts, those that did not fail (unknown included), or all."""
    weights: dict[str, float] | None = None
    """Weight of a row by how its attempt ended: `success`, `failed`, `unknown`; 1 for what is not named."""
    pairs: int = 4
    """Rows of each pair family that one trace may give at most."""
    recipes: tuple[str, ...] = ()
    """Recipes to build; empty is all."""
    statistical_gates: bool = True
    allow_demo: bool = False
    """Take traces of the demo model too: the dataset is then marked as a demonstration, and cannot be pushed."""
    dedup: Dedup | None = None
    """Of trajectories that are copies of one another, keep the successful, then the shortest; `None` keeps all."""
    allow_unread: bool = False
    """Take traces of which more than 2 % of the agent's messages make a call that was not read."""
    keep_flagged: bool = False
    """Take successes although a step of theirs is flagged as a cheat."""
    license_allow: tuple[str, ...] = ()
    """Take only traces of these licenses; a trace that names none is of the license `unknown`."""
    license_deny: tuple[str, ...] = ()
    """Licenses whose traces are left out, and so are those that name none."""
    decontaminate: tuple[str, ...] = ()
    """Benchmarks whose problems are left out: `humaneval`, `mbpp`, `swebench`, or files (`FILE`, `NAME=FILE`)."""
    keep_contaminated: bool = False
    """Only report the traces in which those benchmarks stand."""

    corrections: str | None = None
    """Table of a person's actions for steps, which win over the labels; the manifest holds its digest."""

    mistakes: tuple[str, ...] = ()
    """Files of predictions: what a proposer wrongly guessed gives pairs. The manifest holds their digests."""
    allow_unchecked: bool = False
    """Take predictions that do not say that no row's own answer was learnt."""

    def check(self) -> None:
        """Refuse what cannot be served, before any work is done.

        Raises:
            UsageError: naming the setting.
            SourceError: the corrections cannot be read.
            PredictionError: predictions that cannot be used.
        """
        self._check_mistakes()
        if self.corrections is not None:
            read_corrections(Path(self.corrections))
        self._check_filters()
        if self.max_context_tokens < 1024:
            raise UsageError(Setting("max_context_tokens", self.max_context_tokens), ": the smallest is 1024")
        if any(s < 0 for s in self.split) or not abs(sum(self.split) - 1) <= 1e-6 or self.split[0] == 0:
            shares = "/".join(f"{s:g}" for s in self.split)
            raise UsageError(
                Setting("split"), f" is {shares}: three shares that add up to 1, with a train share, e.g. 0.8/0.1/0.1"
            )
        for name, weight in (self.weights or {}).items():
            given = Setting("weights", f"{name}={weight:g}")
            if name not in OUTCOME_NAMES.values() or not 0 <= weight < math.inf:
                names = ", ".join(OUTCOME_NAMES.values())
                raise UsageError(given, f": give {names} a number that is not negative")
            if (self.outcomes, name) in (("success", "failed"), ("success", "unknown"), ("not_failed", "failed")):
                raise UsageError(given, ": no row has that outcome with ", Setting("outcomes", self.outcomes))
        if len({*self.recipes}) < len(self.recipes):
            raise UsageError(Setting("recipes"), f" names one recipe twice: {', '.join(self.recipes)}")
        if self.eval_size < 0 or self.pairs < 0:
            raise UsageError(Setting("eval_size"), " and ", Setting("pairs"), " cannot be negative")
        if self.pairs == 1:
            raise UsageError(Setting("pairs", 1), ": mirrored pairs come in twos; give 0, 2 or more")

    def _check_filters(self) -> None:
        names = [parse_benchmark(text).name for text in self.decontaminate]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise UsageError(Setting("decontaminate"), f" names {twice[0]} twice; another name is NAME=FILE")
        for setting in ("license_allow", "license_deny"):
            if not all(name.strip() for name in getattr(self, setting)):
                raise UsageError(Setting(setting), " holds an empty name")
        both = {name.lower() for name in self.license_allow} & {name.lower() for name in self.license_deny}
        if both:
            raise UsageError(
                Setting("license_allow"), " and ", Setting("license_deny"), f" both name {', '.join(sorted(both))}"
            )
        if self.keep_contaminated and not self.decontaminate:
            raise UsageError(Setting("keep_contaminated"), " is for ", Setting("decontaminate", "humaneval"))

    def _check_mistakes(self) -> None:
        if self.mistakes and self.target != "call":
            raise UsageError(Setting("mistakes"), " needs whole calls: build with ", Setting("target", "call"))
        if self.mistakes and not self.pairs:
            raise UsageError(Setting("mistakes"), " is for pairs, and ", Setting("pairs", 0), " allows none")
        if self.allow_unchecked and not self.mistakes:
            raise UsageError(Setting("allow_unchecked"), " is for ", Setting("mistakes"))
        for file in self.mistakes:
            check_guess_file(Path(file), allow_unchecked=self.allow_unchecked)
