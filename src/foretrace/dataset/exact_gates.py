"""Exact gates: read the written files back, and compare them with the traces."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np

from foretrace.core.errors import Parts, Setting
from foretrace.core.message_columns import ChatText
from foretrace.core.trace import Message, Outcome, Trace
from foretrace.dataset.filters.copies import make_copies_gate
from foretrace.dataset.parquet import read_groups
from foretrace.dataset.prompt_digests import Digests, digest_prompt, merge_digests, pack_digests, unpack_digests
from foretrace.dataset.prompt_texts import has_target
from foretrace.dataset.prompts import Prompts, make_instruction, make_token_counter
from foretrace.dataset.recipes.base import MAX_NAMED_ROWS, Config, Gate, RowCheck, load_configs
from foretrace.dataset.report import BuildCounts, DatasetFiles
from foretrace.dataset.settings import SPLITS
from foretrace.dataset.shard_job import ShardJob, read_selected
from foretrace.engines.processes import release_memory

_COMMON_COLUMNS = ("key", "step", "group", "prompt")
_RowsByPrompt = dict[str, dict[int, dict[bytes, str]]]
"""Rows (`config/split key step`) by key, step and digest of the prompt as read back."""


class ShardCheck(msgspec.Struct, kw_only=True):
    """Results of reading back the files of one shard job."""

    groups: dict[str, set[str]] = {}
    """Groups by split."""
    keys: dict[str, set[str]] = {}
    """Keys of traces by split."""
    prompts: dict[str, Digests] = {}
    """Digests of prompts by split."""
    rows: Counter[str] = msgspec.field(default_factory=Counter[str])
    """Rows found, by config."""
    prompts_checked: int = 0
    max_prompt_tokens: int = 0
    """Tokens of the longest prompt."""
    changed: list[str] = []
    """Rows whose prompt depends on later messages, or differs from the trace."""
    with_target: list[str] = []
    """Rows with target text in the prompt."""
    too_long: list[str] = []
    checks: list[RowCheck] = []
    """The checks of the configs, in the order of the configs."""


def check_shards(job: ShardJob, files: DatasetFiles, candidates: DatasetFiles) -> ShardCheck:
    """Read the files of a shard job back and compare them with its traces."""
    release_memory()
    return _ShardChecker(job).check(files, candidates)


class _ShardChecker:
    def __init__(self, job: ShardJob) -> None:
        self._job = job
        self._result = ShardCheck(groups={s: set() for s in SPLITS}, keys={s: set() for s in SPLITS})
        self._prompts: dict[str, set[bytes]] = {s: set() for s in SPLITS}
        self._rows_by_prompt: _RowsByPrompt = {}
        self._configs = load_configs(job.settings.recipes)
        self._checks = {name: [check(job.settings) for check in c.checks] for name, c in self._configs.items()}

    def check(self, files: DatasetFiles, candidates: DatasetFiles) -> ShardCheck:
        for folder, listed in ((self._job.folder, files), (self._job.candidates_folder, candidates)):
            for name, splits in listed.items():
                for split, names in splits.items():
                    for file in names:
                        self._read_back(Path(folder) / file, self._configs[name], split)
        result = self._result
        self._compare_with_traces()
        result.prompts = {split: pack_digests(prompts) for split, prompts in self._prompts.items()}
        result.checks = [check for checks in self._checks.values() for check in checks]
        for check in result.checks:
            check.finish()
        return result

    def _read_back(self, path: Path, config: Config, split: str) -> None:
        result, checks = self._result, self._checks[config.name]
        read = {*_COMMON_COLUMNS, *(column for check in checks for column in check.columns)}
        for group in read_groups(path, config, [name for name in config.columns if name in read]):
            keys, steps = group.values["key"], group.values["step"]
            result.rows[config.name] += len(keys)
            result.groups[split].update(group.values["group"])
            result.keys[split].update(keys)
            digests = group.digest_prompts("prompt") if "prompt" in group.messages else ()
            for key, step, digest in zip(keys, steps, digests, strict=False):
                self._prompts[split].add(digest)
                rows = self._rows_by_prompt.setdefault(key, {}).setdefault(step, {})
                rows[digest] = f"{config.name}/{split} {key} {step}"
            for check in checks:
                check.add_rows(split, group)

    def _compare_with_traces(self) -> None:
        """Render each prompt again from a trace whose target and ending were replaced, and check the result.

        The digest of the new prompt is compared with that of the prompt in the file. If they are equal, the file's
        prompt does not depend on what follows it, and every check of the new prompt also holds for it.
        """
        for trace in read_selected(self._job):
            if steps := self._rows_by_prompt.pop(trace.key, None):
                self._compare_with_trace(trace, steps)
        for steps in self._rows_by_prompt.values():  # rows without a trace
            self._result.changed += [row for rows in steps.values() for row in rows.values()]

    def _compare_with_trace(self, trace: Trace, steps: dict[int, dict[bytes, str]]) -> None:
        result, settings = self._result, self._job.settings
        trace = self._job.inferred_tools.offer(trace)
        counter = make_token_counter(settings.tokenizer)
        instruction = make_instruction(settings.target)
        facts: dict[str, tuple[int, bool]] = {}
        """For each text of a prompt: its tokens, and whether it contains a target."""
        other: Prompts | None = None
        for step, rows in sorted(steps.items()):
            # Steps ascend, so reused text comes from a trace whose messages from that step on were replaced.
            changed = replace_ending(trace, step)
            limit, window = settings.max_context_tokens, settings.window
            other = Prompts(changed, settings.target, limit, counter, window, other)
            prompt = other.render(step)
            tokens, with_target = 0, False
            for _, text in prompt:
                fact = facts.get(text)
                if fact is None:
                    has_other_target = has_target(text.removeprefix(instruction))
                    fact = facts[text] = (other.count_tokens([ChatText("user", text)]), has_other_target)
                tokens += fact[0]
                with_target = with_target or fact[1]
            result.max_prompt_tokens = max(result.max_prompt_tokens, tokens)
            for checks in self._checks.values():
                for check in checks:
                    check.add_prompt(trace, step, other.find_first_shown(step))
            right = digest_prompt(prompt)
            for digest, row in rows.items():
                result.prompts_checked += 1
                if digest != right:
                    result.changed.append(row)
                if tokens > settings.max_context_tokens:
                    result.too_long.append(row)
                if with_target:
                    result.with_target.append(row)


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
    kept_together: Sequence[Sequence[str]],
) -> list[Gate]:
    """The verdicts over all shard jobs.

    Args:
        checks: The result of each shard job.
        counts: The counts of the jobs.
        written: Rows they wrote by config, including candidates.
        configs: By name.
        kept_together: Keys of traces that are copies, by cluster.
    """
    groups = {split: set[str]().union(*(check.groups[split] for check in checks)) for split in SPLITS}
    keys = {split: set[str]().union(*(check.keys[split] for check in checks)) for split in SPLITS}
    prompts = {split: merge_digests([check.prompts[split] for check in checks]) for split in SPLITS}
    shared_prompts = [d.hex() for a, b in _TWO_SPLITS for d in unpack_digests(np.intersect1d(prompts[a], prompts[b]))]
    by_config = zip(*(check.checks for check in checks), strict=True)
    return [
        _make_disjoint_gate("groups_disjoint", groups, [x for a, b in _TWO_SPLITS for x in groups[a] & groups[b]]),
        _make_disjoint_gate("traces_disjoint", keys, [x for a, b in _TWO_SPLITS for x in keys[a] & keys[b]]),
        _make_disjoint_gate("prompts_disjoint", prompts, shared_prompts),
        make_copies_gate(kept_together, keys),
        *_make_prompt_gates(checks),
        _make_counts_gate(checks, counts, written, configs),
        *(gate for same in by_config for gate in type(same[0]).make_gates(same)),
    ]


_TWO_SPLITS = [("train", "validation"), ("train", "test"), ("validation", "test")]


def _make_disjoint_gate(name: str, splits: Mapping[str, Collection[object]], shared: list[str]) -> Gate:
    figure = {split: len(found) for split, found in splits.items()} | {"shared": len(shared)}
    rows = tuple(sorted(shared)[:MAX_NAMED_ROWS])
    return Gate(name=name, verdict="fail" if shared else "pass", figure=figure, rows=rows)


def _make_prompt_gates(checks: Sequence[ShardCheck]) -> list[Gate]:
    changed = "prompts that do not depend on what follows, and equal the trace"
    max_tokens = {"longest": max((check.max_prompt_tokens for check in checks), default=0)}
    found = [
        ("causality", [row for check in checks for row in check.changed], {}, changed),
        ("no_target_in_prompt", [row for c in checks for row in c.with_target], {}, "prompts without target text"),
        (
            "context_length",
            [row for check in checks for row in check.too_long],
            max_tokens,
            "prompts within max_context_tokens",
        ),
    ]
    checked = sum(check.prompts_checked for check in checks)
    return [
        Gate(
            name=name,
            verdict="fail" if rows else "pass",
            figure={"checked": checked, "broken": len(rows), **more},
            detail=detail,
            rows=tuple(sorted(rows)[:MAX_NAMED_ROWS]),
        )
        for name, rows, more, detail in found
    ]


def _make_counts_gate(
    checks: Sequence[ShardCheck], counts: BuildCounts, written: Counter[str], configs: Mapping[str, Config]
) -> Gate:
    """Check that all written rows were read back, and each config has a row or drop for all that it `accounts_for`."""
    read: Counter[str] = Counter()
    for check in checks:
        read.update(check.rows)
    totals = {"steps": counts.steps, "traces": counts.outcomes.total()}
    wrong = [
        f"{name}: {written[name]} written, {read[name]} read back" for name in written if written[name] != read[name]
    ]
    for name, config in configs.items():
        if config.accounts_for is not None:
            what, total, drops = config.accounts_for, totals[config.accounts_for], counts.count_drops(name)
            if total != written[name] + drops:
                wrong.append(f"{name}: {total} {what}, {written[name]} rows, {drops} drops")
        if config.rows_of is not None:
            other, each = config.rows_of
            if written[name] != each * written[other]:
                wrong.append(f"{name}: {written[name]} rows for {written[other]} {other} rows")
    figure = {**totals, "rows": written.total()}
    return Gate(name="counts", verdict="fail" if wrong else "pass", figure=figure, detail="; ".join(wrong))


UNREAD_GATE = "unread_calls"
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
    """The verdict over all shard jobs."""
    unread = counts.unread.total()
    failed = unread > MAX_UNREAD_SHARE * counts.steps and not is_allowed
    sources = ", ".join(f"{source} {count}" for source, count in sorted(counts.unread.items()))
    return Gate(
        name=UNREAD_GATE,
        verdict="fail" if failed else "pass",
        figure={"unread": unread, "steps": counts.steps},
        detail=f"by source: {sources}" if sources else "",
        rows=tuple(sorted(counts.unread_rows)[:MAX_NAMED_ROWS]) if unread else (),
    )
