"""Exact gates: read the written files back, and compare them with the traces.

What a row shows is checked for every row, from the columns of the files. That a prompt depends on nothing that follows
it takes rendering it again, which is done for the tasks that `is_rechecked` draws.
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np

from foretrace.core.errors import Parts, Setting
from foretrace.core.trace import Message, Outcome, Trace
from foretrace.dataset.filters.copies import make_copies_gate
from foretrace.dataset.parquet import read_groups
from foretrace.dataset.plan import is_rechecked
from foretrace.dataset.prompt_digests import (
    MAX_TEXTS,
    Digests,
    digest_prompts,
    merge_digests,
    pack_digests,
    unpack_digests,
)
from foretrace.dataset.prompts import Prompts, count_lengths, has_target, make_instruction, make_token_counter
from foretrace.dataset.recipes.base import Config, Gate, RowCheck, RowGroup, load_configs, make_gate
from foretrace.dataset.report import BuildCounts, DataFile
from foretrace.dataset.settings import SPLITS
from foretrace.dataset.shard_job import ShardJob, read_selected
from foretrace.dataset.trace_filters import TraceSelection
from foretrace.engines.processes import release_memory

_COMMON_COLUMNS = ("key", "step", "task", "group", "prompt")
_RowsByPrompt = dict[str, dict[int, dict[bytes, str]]]
"""Rows (`config/split key step`) by key, step and digest of the prompt as read back."""


class ShardCheck(msgspec.Struct, kw_only=True):
    """Results of reading back the files of one shard job. Lists name rows as `config/split key step`."""

    groups: dict[str, set[str]] = {}
    keys: dict[str, set[str]] = {}
    digests: dict[str, Digests] = {}
    rows: Counter[str] = msgspec.field(default_factory=Counter[str])
    prompts: int = 0
    rechecked: int = 0
    """Those of them whose prompt was rendered again."""
    max_prompt_tokens: int = 0
    prompt_tokens: dict[str, Counter[int]] = {}
    """Rows by length of the prompt (`count_lengths`), for each config whose rows are all kept."""
    changed: list[str] = []
    """Rows whose prompt depends on later messages, or differs from the trace."""
    with_target: list[str] = []
    too_long: list[str] = []
    checks: list[RowCheck] = []
    """The checks of the configs, in the order of the configs."""


def check_shards(job: ShardJob, files: Sequence[DataFile]) -> ShardCheck:
    """Read the files of a shard job back and compare them with its traces."""
    release_memory()
    return _ShardChecker(job).check(files)


class _ShardChecker:
    def __init__(self, job: ShardJob) -> None:
        self._job = job
        self._result = ShardCheck(groups={s: set() for s in SPLITS}, keys={s: set() for s in SPLITS})
        self._digests: dict[str, set[bytes]] = {s: set() for s in SPLITS}
        self._rows_by_prompt: _RowsByPrompt = {}
        self._counter = make_token_counter(job.settings.tokenizer)
        instruction = make_instruction(job.settings.target)
        self._count_tokens = functools.lru_cache(MAX_TEXTS)(self._counter.count_message)
        self._has_target = functools.lru_cache(MAX_TEXTS)(lambda text: has_target(text.removeprefix(instruction)))
        self._is_rechecked = functools.cache(lambda task: is_rechecked(task, job.settings.seed, job.rechecked))
        self._configs = load_configs(job.settings.recipes)
        self._checks = {name: [check(job.settings) for check in c.checks] for name, c in self._configs.items()}

    def check(self, files: Sequence[DataFile]) -> ShardCheck:
        for file in files:
            self._read_back(Path(self._job.folder) / file.name, self._configs[file.config], file.split)
        result = self._result
        self._compare_with_traces()
        result.digests = {split: pack_digests(found) for split, found in self._digests.items()}
        result.checks = [check for checks in self._checks.values() for check in checks]
        for check in result.checks:
            check.finish()
        return result

    def _read_back(self, path: Path, config: Config, split: str) -> None:
        result, checks = self._result, self._checks[config.name]
        read = {*_COMMON_COLUMNS, *(column for check in checks for column in check.columns)}
        for group in read_groups(path, config, [name for name in config.columns if name in read]):
            keys = group.read("key")
            result.rows[config.name] += len(keys)
            result.groups[split].update(group.read("group"))
            result.keys[split].update(keys)
            if config.columns.get("prompt") == "messages":
                self._check_prompts(group, config, split)
            for check in checks:
                check.add_rows(split, group)

    def _check_prompts(self, group: RowGroup, config: Config, split: str) -> None:
        """Check what the prompts show, and keep those that will be rendered again."""
        result = self._result
        columns = group.open("prompt")
        digests = digest_prompts(columns)
        tokens = [n for each in columns for n in each.sum_texts([*map(self._count_tokens, each.texts)])]
        targets = [n for each in columns for n in each.sum_texts([*map(self._has_target, each.texts)])]
        result.prompts += len(digests)
        result.max_prompt_tokens = max([result.max_prompt_tokens, *tokens])
        if config.selector is None:
            result.prompt_tokens.setdefault(config.name, Counter()).update(count_lengths(tokens))
        self._digests[split].update(digests)
        rows = zip(*map(group.read, ("key", "step", "task")), digests, tokens, targets, strict=True)
        for key, step, task, digest, size, target in rows:
            row = f"{config.name}/{split} {key} {step}"
            if size > self._job.settings.max_context_tokens:
                result.too_long.append(row)
            if target:
                result.with_target.append(row)
            if self._is_rechecked(task):
                result.rechecked += 1
                self._rows_by_prompt.setdefault(key, {}).setdefault(step, {})[digest] = row

    def _compare_with_traces(self) -> None:
        """Render each prompt again from a trace whose target and ending were replaced. If the new prompt has the same
        digest as the one in the file, then the latter does not depend on what follows it."""
        for trace in read_selected(self._job, tasks=self._is_rechecked):
            if steps := self._rows_by_prompt.pop(trace.key, None):
                self._compare_with_trace(trace, steps)
        for steps in self._rows_by_prompt.values():  # rows without a trace
            self._result.changed += [row for rows in steps.values() for row in rows.values()]

    def _compare_with_trace(self, trace: Trace, steps: dict[int, dict[bytes, str]]) -> None:
        settings = self._job.settings
        trace = self._job.inferred_tools.offer(trace)
        other: Prompts | None = None
        for step, rows in sorted(steps.items()):
            # Steps ascend, so reused text comes from a trace whose messages from that step on were replaced.
            changed = replace_ending(trace, step)
            limit, window = settings.max_context_tokens, settings.window
            other = Prompts(changed, settings.target, limit, self._counter, window, other)
            right = other.find_digest(step)
            self._result.changed += [row for digest, row in rows.items() if digest != right]
            for checks in self._checks.values():
                for check in checks:
                    check.add_prompt(trace, step, other.find_shown(step))


_OTHER_ENDING = Message(role="assistant", author="model", content="(another ending)")


def replace_ending(trace: Trace, step: int) -> Trace:
    """The trace with its target message, everything after it, and its outcome replaced."""
    success = not trace.outcome.success
    return msgspec.structs.replace(
        trace,
        messages=(*trace.messages[:step], _OTHER_ENDING),
        outcome=Outcome(status="error", success=success, exit_reason="another"),
        extra={},
    )


def make_exact_gates(
    checks: Sequence[ShardCheck],
    counts: BuildCounts,
    written: Counter[str],
    configs: Mapping[str, Config],
    selection: TraceSelection,
) -> list[Gate]:
    """The verdicts over all shard jobs. `written` is the number of rows that they wrote by config, with candidates."""
    groups = {split: set[str]().union(*(check.groups[split] for check in checks)) for split in SPLITS}
    keys = {split: set[str]().union(*(check.keys[split] for check in checks)) for split in SPLITS}
    prompts = {split: merge_digests([check.digests[split] for check in checks]) for split in SPLITS}
    shared = [d.hex() for a, b in _TWO_SPLITS for d in unpack_digests(np.intersect1d(prompts[a], prompts[b]))]
    by_config = zip(*(check.checks for check in checks), strict=True)
    return [
        _make_disjoint_gate("groups_disjoint", groups, [x for a, b in _TWO_SPLITS for x in groups[a] & groups[b]]),
        _make_disjoint_gate("traces_disjoint", keys, [x for a, b in _TWO_SPLITS for x in keys[a] & keys[b]]),
        _make_disjoint_gate("prompts_disjoint", prompts, shared),
        make_copies_gate(selection.kept_together, keys),
        *_make_prompt_gates(checks),
        _make_counts_gate(checks, counts, written, configs),
        *(gate for same in by_config for gate in type(same[0]).make_gates(same)),
    ]


_TWO_SPLITS = [*itertools.combinations(SPLITS, 2)]


def _make_disjoint_gate(name: str, splits: Mapping[str, Collection[object]], shared: list[str]) -> Gate:
    return make_gate(name, {split: len(found) for split, found in splits.items()} | {"shared": len(shared)}, shared)


def _make_prompt_gates(checks: Sequence[ShardCheck]) -> list[Gate]:
    prompts, rechecked = sum(check.prompts for check in checks), sum(check.rechecked for check in checks)
    longest = max((check.max_prompt_tokens for check in checks), default=0)

    def make(name: str, checked: int, broken: list[str], detail: str, **more: int) -> Gate:
        return make_gate(name, {"checked": checked, "broken": len(broken), **more}, broken, detail=detail)

    whole, short = "prompts without target text", "prompts within max_context_tokens"
    changed = "prompts that do not depend on what follows, and equal the trace"
    return [
        make("causality", rechecked, [r for c in checks for r in c.changed], changed, rows=prompts),
        make("no_target_in_prompt", prompts, [r for c in checks for r in c.with_target], whole),
        make("context_length", prompts, [r for c in checks for r in c.too_long], short, longest=longest),
    ]


def _make_counts_gate(
    checks: Sequence[ShardCheck], counts: BuildCounts, written: Counter[str], configs: Mapping[str, Config]
) -> Gate:
    """Check that all written rows were read back, and each config has a row or drop for all that it `accounts_for`."""
    read: Counter[str] = Counter()
    for check in checks:
        read.update(check.rows)
    totals = {"assistant_messages": counts.steps, "traces": counts.outcomes.total()}
    wrong = [
        f"{name}: {written[name]} written, {read[name]} read back" for name in written if written[name] != read[name]
    ]
    for name, config in configs.items():
        what, drops = config.accounts_for, sum(counts.drops.get(name, {}).values())
        if what is not None and totals[what] != written[name] + drops:
            wrong.append(f"{name}: {totals[what]} {what}, {written[name]} rows, {drops} drops")
        if config.rows_of is not None:
            other, each = config.rows_of
            if written[name] != each * written[other]:
                wrong.append(f"{name}: {written[name]} rows for {written[other]} {other} rows")
    return make_gate("counts", {**totals, "rows": written.total()}, failed=bool(wrong), detail="; ".join(wrong))


MAX_UNREAD_SHARE = 0.02
"""Largest share of the agent's messages with a call that was not read."""
UNREAD_REMEDY: Parts = (
    "; messages that make no call were answered by the environment: import them again under the name of their format, "
    "or say how their calls are written with ",
    Setting("call_pattern", "REGEX"),
    " (named groups: tool, and one for each argument), or take them as text with ",
    Setting("allow_unread", True),
)


def make_unread_gate(counts: BuildCounts, *, is_allowed: bool) -> Gate:
    unread = counts.unread.total()
    failed = unread > MAX_UNREAD_SHARE * counts.steps and not is_allowed
    sources = ", ".join(f"{source} {count}" for source, count in sorted(counts.unread.items()))
    return make_gate(
        "unread_calls",
        {"unread": unread, "assistant_messages": counts.steps},
        counts.unread_rows,
        failed=failed,
        detail=f"by source: {sources}" if sources else "",
    )
