"""Exact gates: what was written is read back and held against the traces, which are read again too."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal

import msgspec

from foretrace.core.trace import Message, Outcome, ToolCall, Trace
from foretrace.dataset.parquet import read_groups
from foretrace.dataset.prompts import ChatText, Prompts, digest_prompt, make_instruction, make_token_counter
from foretrace.dataset.recipes import load_recipes
from foretrace.dataset.recipes.base import ActionKey, Config, make_action_key
from foretrace.dataset.recipes.verifier import MIRRORED, REPEAT_BALANCED
from foretrace.dataset.settings import SPLITS
from foretrace.dataset.shard_job import ShardJob, ShardResult, read_traces_once
from foretrace.dataset.target_text import has_target, make_message_text
from foretrace.engines.processes import give_back_memory

Verdict = Literal["pass", "fail", "undecided", "removed"]
"""`removed`: the rows that failed are not in the dataset."""
Expected = dict[str, dict[int, dict[bytes, str]]]
"""Rows by key, step and digest of the prompt that was read back."""
Pairs = dict[tuple[str, int], list[tuple[str, str]]]
"""Family and rejected completion of each pair, by key and step."""
_READ_BACK = frozenset(
    [
        "key",
        "step",
        "group",
        "family",
        "prompt",
        "chosen",
        "rejected",
    ]
)
MAX_NAMED_ROWS = 5
"""Rows that a failed gate names at most."""


class Gate(msgspec.Struct, frozen=True, kw_only=True):
    """One check of a built dataset."""

    name: str
    verdict: Verdict
    figure: dict[str, Any] = {}
    detail: str = ""
    rows: tuple[str, ...] = ()
    """Rows that break it: `config/split key step`."""


class ShardCheck(msgspec.Struct, kw_only=True):
    """What reading one part back showed."""

    groups: dict[str, set[str]] = {}
    keys: dict[str, set[str]] = {}
    prompts: dict[str, set[bytes]] = {}
    rows: Counter[str] = msgspec.field(default_factory=Counter[str])
    """Rows found, by config."""
    prompts_checked: int = 0
    longest: int = 0
    """Tokens of the longest prompt."""
    moved: list[str] = []
    """Rows whose prompt changed with what follows, or differs from the trace."""
    leaks: list[str] = []
    """Rows with target text in the prompt."""
    too_long: list[str] = []
    unbalanced: dict[str, dict[str, int]] = {}
    """Completions that are not chosen as often as rejected, by `split/family`."""
    repeats: dict[str, tuple[float, int]] = {}
    """Pairs that the rule "reject what the prompt shows as done" gets right (a tie counts one half), and all pairs,
    by family."""
    mirrored: Counter[str] = msgspec.field(default_factory=Counter[str])
    """Rows of mirrored families, by `split/family`."""


def check_shards(job: ShardJob, built: ShardResult) -> ShardCheck:
    """Read the part's files back and hold them against its traces."""
    give_back_memory()
    check = ShardCheck(
        groups={s: set() for s in SPLITS}, keys={s: set() for s in SPLITS}, prompts={s: set() for s in SPLITS}
    )
    configs = {c.name: c for recipe in load_recipes(job.settings.recipes) for c in recipe.configs}
    expected: Expected = {}
    pairs: Pairs = {}
    for name, splits in built.files.items():
        for split, files in splits.items():
            for file in files:
                _read_back(check, Path(job.folder) / file, configs[name], split, expected, pairs)
    if expected:
        _against_traces(check, job, expected, pairs)
    return check


def _read_back(
    check: ShardCheck,
    path: Path,
    config: Config,
    split: str,
    expected: Expected,
    pairs: Pairs,
) -> None:
    balance: dict[str, Counter[str]] = {}
    columns = [n for n in config.columns if n in _READ_BACK]
    for group in read_groups(path, config, columns):
        values, messages = group.values, group.messages
        keys, steps = values["key"], values["step"]
        check.rows[config.name] += len(keys)
        check.groups[split].update(values["group"])
        check.keys[split].update(keys)
        for key, step, prompt in zip(keys, steps, messages.get("prompt", ()), strict=False):
            mark = digest_prompt(prompt)
            check.prompts[split].add(mark)
            expected.setdefault(key, {}).setdefault(step, {})[mark] = f"{config.name}/{split} {key} {step}"
        if "chosen" in messages:
            for key, step, family, chosen, rejected in zip(
                keys, steps, values["family"], messages["chosen"], messages["rejected"], strict=True
            ):
                pairs.setdefault((key, step), []).append((family, rejected[0].content))
                if family in MIRRORED:
                    check.mirrored[f"{split}/{family}"] += 1
                    counts = balance.setdefault(family, Counter())
                    counts[chosen[0].content] += 1
                    counts[rejected[0].content] -= 1
    for family, counts in balance.items():
        wrong = {text[:200]: n for text, n in counts.items() if n}
        if wrong:
            check.unbalanced[f"{split}/{family}"] = wrong


def _against_traces(check: ShardCheck, job: ShardJob, expected: Expected, pairs: Pairs) -> None:
    """Make each prompt again from a trace whose target and end are others, and hold it against the trace's messages.

    The digest says that the prompt in the file is the one made here, so what holds for this one holds for that.
    """
    settings = job.settings
    counter = make_token_counter(settings.tokenizer)
    fixed = make_instruction(settings.target)
    for trace in read_traces_once(job):
        other: Prompts | None = None
        originals = [make_message_text(m) for m in trace.messages] if trace.key in expected else []
        facts: dict[str, tuple[int, bool]] = {}
        for step, marks in sorted(expected.pop(trace.key, {}).items()):
            # Steps ascend, so what is taken over was rendered from a trace that held nothing from its own step on.
            other = Prompts(replace_ending(trace, step), settings.target, settings.max_context_tokens, counter, other)
            prompt = other.render(step)
            for _, text in prompt:
                if text not in facts:
                    facts[text] = (other.count_tokens([ChatText("user", text)]), has_target(text.removeprefix(fixed)))
            found = [facts[text] for _, text in prompt]
            length, leaks = sum([size for size, _ in found]), any(marked for _, marked in found)
            moved = not _is_history(prompt, trace.messages, originals, step)
            check.longest = max(check.longest, length)
            if settings.target == "call" and (trace.key, step) in pairs:
                shown = {
                    make_action_key(m)
                    for m in trace.messages[other.find_first_shown(step) : step]
                    if m.role == "assistant"
                }
                _note_repeats(check, shown, make_action_key(trace.messages[step]), pairs[trace.key, step])
            right = digest_prompt(prompt)
            for mark, row in marks.items():
                check.prompts_checked += 1
                if moved or mark != right:
                    check.moved.append(row)
                if length > settings.max_context_tokens:
                    check.too_long.append(row)
                if leaks:
                    check.leaks.append(row)
    check.moved += [row for steps in expected.values() for marks in steps.values() for row in marks.values()]


def _note_repeats(check: ShardCheck, shown: set[ActionKey], chosen: ActionKey, rejected: list[tuple[str, str]]) -> None:
    for family, text in rejected:
        right, pairs = check.repeats.get(family, (0.0, 0))
        told = (_deed_of_target(text) in shown) - (chosen in shown)
        check.repeats[family] = (right + (1 + told) / 2, pairs + 1)


def _deed_of_target(text: str) -> ActionKey:
    value = msgspec.json.decode(text)
    calls = [value, *value.get("more", ())] if value["tool"] else []
    made = (ToolCall(name=c["tool"], arguments=msgspec.json.encode(c["arguments"]).decode()) for c in calls)
    return make_action_key(Message(role="assistant", author="model", tool_calls=tuple(made)))


_ANOTHER = Message(role="assistant", author="model", content="(another ending)")


def replace_ending(trace: Trace, step: int) -> Trace:
    """The trace with its target message, all that follows, and its outcome replaced."""
    success = not trace.outcome.success
    return msgspec.structs.replace(
        trace,
        messages=(*trace.messages[:step], _ANOTHER),
        outcome=Outcome(status="error", success=success, exit_reason="another"),
        extra={},
    )


def _is_history(prompt: list[ChatText], messages: tuple[Message, ...], originals: list[str], step: int) -> bool:
    """Whether the prompt's history is the trace's messages up to the step, each at its place, whole or with its
    middle marked as left out; messages may be missing only behind the task, and a mark there says how many."""
    if not prompt or prompt[0].role != "system" or any(m.role == "system" for m in prompt[1:]):
        return False
    start = _count_until(messages, lambda m: m.role != "system")
    task = _count_until(messages[start:], lambda m: m.role in ("assistant", "tool"))
    texts, wanted = prompt[1:], list(range(start, step))
    gone = len(wanted) - len(texts) + 1
    mark = ChatText("user", f"[{gone} earlier message{'s' if gone > 1 else ''} left out]")
    if gone > 0 and texts[task : task + 1] == [mark]:
        del texts[task], wanted[task : task + gone]
    return len(texts) == len(wanted) and all(
        role == ("assistant" if messages[at].role == "assistant" else "user") and _is_text_of(text, originals[at])
        for (role, text), at in zip(texts, wanted, strict=True)
    )


def _count_until(messages: tuple[Message, ...], found: Callable[[Message], bool]) -> int:
    return next((at for at, message in enumerate(messages) if found(message)), len(messages))


_CLIPPED = re.compile(r"\n\[(\d+) characters left out\](?=\n)")


def _is_text_of(text: str, original: str) -> bool:
    if text == original:
        return True
    for mark in _CLIPPED.finditer(text):
        head, tail = text[: mark.start()], text[mark.end() + 1 :]
        whole = len(head) + int(mark[1]) + len(tail) == len(original)
        if whole and original.startswith(head) and original.endswith(tail):
            return True
    return False


def make_exact_gates(checks: Iterable[ShardCheck], built: Iterable[ShardResult]) -> list[Gate]:
    """The verdicts over all parts."""
    checks, built = list(checks), list(built)
    return [
        _disjoint(checks, "groups", "groups_disjoint"),
        _disjoint(checks, "keys", "traces_disjoint"),
        _disjoint(checks, "prompts", "prompts_disjoint"),
        _rows_gate("causality", checks, "moved", "prompts that do not depend on what follows, and equal the trace"),
        _rows_gate("no_target_in_prompt", checks, "leaks", "prompts without target text"),
        _rows_gate("context_length", checks, "too_long", "prompts within max_context_tokens"),
        _counts(checks, built),
        _balance(checks),
        _repeats(checks),
    ]


def _disjoint(checks: list[ShardCheck], field: str, name: str) -> Gate:
    sets: dict[str, set[Any]] = {s: set() for s in SPLITS}
    for check in checks:
        for split, found in getattr(check, field).items():
            sets[split] |= found
    pairs = [("train", "validation"), ("train", "test"), ("validation", "test")]
    shared = {f"{a}&{b}": sets[a] & sets[b] for a, b in pairs}
    bad = sorted(x.hex() if isinstance(x, bytes) else x for found in shared.values() for x in found)
    figure = {s: len(found) for s, found in sets.items()} | {"shared": len(bad)}
    return Gate(name=name, verdict="fail" if bad else "pass", figure=figure, rows=tuple(bad[:MAX_NAMED_ROWS]))


def _rows_gate(name: str, checks: list[ShardCheck], field: str, what: str) -> Gate:
    bad = sorted(row for check in checks for row in getattr(check, field))
    total = sum(c.prompts_checked for c in checks)
    figure: dict[str, Any] = {"checked": total, "broken": len(bad)}
    if name == "context_length":
        figure["longest"] = max((c.longest for c in checks), default=0)
    return Gate(
        name=name, verdict="fail" if bad else "pass", figure=figure, detail=what, rows=tuple(bad[:MAX_NAMED_ROWS])
    )


def _counts(checks: list[ShardCheck], built: list[ShardResult]) -> Gate:
    """What was read back is what was written; every step is a proposer row or a counted drop, every attempt a
    trajectory or a counted drop, every pair two unpaired rows."""
    found: Counter[str] = Counter()
    written: Counter[str] = Counter()
    drops: dict[str, int] = {}
    for check in checks:
        found.update(check.rows)
    for part in built:
        for config, splits in part.files.items():
            written[config] += sum(sum(files.values()) for files in splits.values())
        for config, reasons in part.drops.items():
            drops[config] = drops.get(config, 0) + reasons.total()
    wrong = [f"{c}: {written[c]} written, {found[c]} read back" for c in written if written[c] != found[c]]
    steps, traces = sum(p.steps for p in built), sum(p.traces.total() for p in built)
    if "proposer" in drops and steps != written["proposer"] + drops["proposer"]:
        wrong.append(f"proposer: {steps} steps, {written['proposer']} rows, {drops['proposer']} drops")
    if "trajectories" in drops and traces != written["trajectories"] + drops["trajectories"]:
        wrong.append(f"trajectories: {traces} traces, {written['trajectories']} rows, {drops['trajectories']} drops")
    if "verifier" in drops and written["verifier_unpaired"] != 2 * written["verifier"]:
        wrong.append(f"verifier_unpaired: {written['verifier_unpaired']} rows for {written['verifier']} pairs")
    figure = {"steps": steps, "traces": traces, "rows": written.total()}
    return Gate(name="counts", verdict="fail" if wrong else "pass", figure=figure, detail="; ".join(wrong))


def _repeats(checks: list[ShardCheck]) -> Gate:
    """How far "reject what the prompt shows as done" gets: nowhere, but in the family that is about repeats."""
    figure: dict[str, Any] = {}
    for family in sorted({family for check in checks for family in check.repeats}):
        found = [check.repeats[family] for check in checks if family in check.repeats]
        figure[family] = round(sum(right for right, _ in found) / sum(pairs for _, pairs in found), 4)
    wrong = [family for family in REPEAT_BALANCED if figure.get(family, 0.5) != 0.5]
    detail = "share that is right by rejecting what the prompt shows as done; argument and type_swap: .5"
    return Gate(name="repeats", verdict="fail" if wrong else "pass", figure=figure, detail=detail)


def _balance(checks: list[ShardCheck]) -> Gate:
    wrong: dict[str, dict[str, int]] = {}
    for check in checks:
        for place, texts in check.unbalanced.items():
            wrong.setdefault(place, {}).update(texts)
    rows: Counter[str] = Counter()
    for check in checks:
        rows.update(check.mirrored)
    detail = "; ".join(f"{place}: {len(texts)} completions" for place, texts in sorted(wrong.items()))
    named = tuple(text for texts in wrong.values() for text in texts)[:MAX_NAMED_ROWS]
    figure = dict(sorted(rows.items()))
    return Gate(name="balance", verdict="fail" if wrong else "pass", figure=figure, detail=detail, rows=named)
