"""The settings of a build."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Literal

import msgspec

from foretrace.actions.corrections import Corrections, read_corrections
from foretrace.core.errors import Setting, UsageError
from foretrace.dataset.filters.benchmark_sets import parse_benchmark
from foretrace.dataset.proposer_guesses import check_guess_file

SPLITS = ("train", "validation", "test")
TargetFormat = Literal["type", "call", "message"]
Outcomes = Literal["success", "not_failed", "all"]
OUTCOME_NAMES = {True: "success", False: "failed", None: "unknown"}
Dedup = Literal["keep-best"]
Window = Literal["sliding", "blocks"]


class BuildSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of one build. All of them are recorded in the manifest."""

    target: TargetFormat = "call"
    """What a proposer predicts: the action type, the call (type, tool, arguments), or the whole message."""
    max_context_tokens: int = 8192
    """Longest prompt. System, task and latest turns are kept, and omissions are marked."""
    window: Window = "sliding"
    """How the history is cut: `sliding` shows as much as fits; `blocks` cuts rarely, so that most prompts begin like
    the previous one of their trace."""
    tokenizer: str | None = None
    """`tokenizer.json`, or a folder that contains it; `None` counts UTF-8 bytes / 3.5."""
    split: tuple[float, float, float] = (0.8, 0.1, 0.1)
    """Shares of train, validation and test, by group."""
    seed: int = 0
    eval_size: int = 2000
    """Most rows of the natural slice of `eval`."""
    outcomes: Outcomes = "success"
    """Whose steps are targets: successful attempts, those that did not fail (unknown included), or all."""
    weights: dict[str, float] | None = None
    """Weight of a row by the outcome of its attempt: `success`, `failed`, `unknown`; 1 for unnamed ones."""
    pairs: int = 4
    """Most rows of each pair family from one trace."""
    recipes: tuple[str, ...] = ()
    """Recipes to build; all if empty."""
    statistical_gates: bool = True
    allow_demo: bool = False
    """Accept traces of the demo model: the dataset is then marked as a demonstration, and cannot be pushed."""
    dedup: Dedup | None = None
    """Of trajectories that are copies, keep the successful ones, then the shortest; `None` keeps all."""
    allow_unread: bool = False
    """Accept traces in which more than 2% of the agent's messages contain an unread call."""
    keep_flagged: bool = False
    """Keep successful attempts with a step flagged as a cheat."""
    license_allow: tuple[str, ...] = ()
    """Use only traces with these licenses; `unknown` stands for traces without one."""
    license_deny: tuple[str, ...] = ()
    """Leave out traces with these licenses, and those without one."""
    decontaminate: tuple[str, ...] = ()
    """Benchmarks whose problems are left out: `humaneval`, `mbpp`, `swebench`, or files (`FILE`, `NAME=FILE`)."""
    keep_contaminated: bool = False
    """Only report traces that contain those benchmarks."""

    corrections: str | None = None
    """Table of a person's actions for steps, which override the labels; the manifest holds its digest."""

    mistakes: tuple[str, ...] = ()
    """Files of predictions: a proposer's wrong guesses give pairs. The manifest holds their digests."""
    allow_unchecked: bool = False
    """Accept predictions that do not state that no row's own answer was learned."""

    def check(self) -> None:
        """Refuse unsupported settings before any work is done."""
        self._check_mistakes()
        self.read_corrections()
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

    def read_corrections(self) -> Corrections | None:
        return None if self.corrections is None else read_corrections(Path(self.corrections))

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
