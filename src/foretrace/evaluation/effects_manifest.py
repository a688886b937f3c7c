"""A manifest of effects: what a runtime may run early, by tool and argument pattern, with counts as evidence.

It uses the terms of MCP's tool annotations. Calls of which even one wrote something are never called read-only.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Set
from pathlib import Path
from typing import Any, Literal

import msgspec

from foretrace.actions.call_facts import CallFacts, CallKind
from foretrace.actions.call_names import find_call_pattern
from foretrace.actions.label_steps import classify_calls, classify_lone_call
from foretrace.actions.taxonomy import TAXONOMY_VERSION, Effect
from foretrace.actions.tool_rules import find_tool_group
from foretrace.core.errors import PredictionError, find_first_line
from foretrace.core.report import Report
from foretrace.core.trace import ToolCall, Trace

FORMAT = 1

EffectClass = Literal["read_only", "idempotent", "unsafe", "unknown"]


class ToolAnnotations(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """MCP's hints about a tool."""

    read_only_hint: bool
    idempotent_hint: bool
    """Whether repeating the same call changes nothing more."""
    destructive_hint: bool
    """Whether it may overwrite or remove something; also true if nothing is known."""


class EffectEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """What calls of one kind did."""

    effect_class: EffectClass = msgspec.field(name="class")
    annotations: ToolAnnotations
    calls: int
    traces: int
    effects: dict[str, int]
    whole_file_writes: int
    """Number of calls with the effect `local_write` that give the whole content of a file."""


class PatternEffects(EffectEvidence, frozen=True, kw_only=True):
    """The calls of one tool with the same argument pattern."""

    pattern: dict[str, str]
    """By argument name (`find_call_pattern`); empty if one pattern covers all calls of the tool."""


class ToolEffects(EffectEvidence, frozen=True, kw_only=True):
    """All calls of one tool."""

    tool: str
    patterns: list[PatternEffects]
    """The most frequent first."""


class EffectsManifest(Report, msgspec.Struct, frozen=True, kw_only=True):
    """The effects of calls, by tool and pattern."""

    effects: int = FORMAT
    taxonomy: str = TAXONOMY_VERSION
    """Version of the rules that determine the effects."""
    traces: int
    calls: int
    unread_calls: int
    """Calls without a name, or that could not be parsed and so were never run; not counted for any tool."""
    tools: list[ToolEffects]
    """The most frequent first."""


class CheckedCall(Report, msgspec.Struct, frozen=True, kw_only=True):
    """Whether a runtime may run a call before the model has asked for it."""

    name: str
    pattern: dict[str, str]
    """Pattern of its arguments (`find_call_pattern`)."""
    effect: str
    """Effect according to the rules that label steps."""
    may_run_ahead: bool
    evidence: EffectClass | None
    """What the manifest says about calls like this; None without a manifest, or if it has no such calls."""
    calls: int
    """Number of such calls in the manifest."""


class _Seen:
    def __init__(self) -> None:
        self.effects: Counter[Effect] = Counter()
        self.whole_file_writes = 0
        self.traces: set[str] = set()

    def add(self, facts: CallFacts, key: str) -> None:
        self.effects[facts.effect] += 1
        self.whole_file_writes += _writes_whole_file(facts)
        self.traces.add(key)

    def describe(self, *, open_ended: bool = False) -> dict[str, Any]:
        """The fields of `EffectEvidence`; `open_ended` if other calls of the tool may do anything."""
        effect_class = classify_evidence(self.effects, self.whole_file_writes)
        if open_ended and effect_class != "unsafe":
            effect_class = "unknown"
        return {
            "effect_class": effect_class,
            "annotations": ToolAnnotations(  # `unknown` has those of a tool without hints
                read_only_hint=effect_class == "read_only",
                idempotent_hint=effect_class in ("read_only", "idempotent"),
                destructive_hint=effect_class != "read_only",
            ),
            "calls": self.effects.total(),
            "traces": len(self.traces),
            "effects": {effect.value: self.effects[effect] for effect in Effect if self.effects[effect]},
            "whole_file_writes": self.whole_file_writes,
        }


def _writes_whole_file(facts: CallFacts) -> bool:
    """Whether a call gives the whole content of a file, as some tools do; never a shell command or a patch."""
    return (
        facts.effect is Effect.LOCAL_WRITE
        and facts.kind is CallKind.WRITE
        and facts.creates
        and facts.rule.startswith("tool.")
        and facts.rule != "tool.patch"
    )


def classify_evidence(effects: Mapping[Effect, int], whole_file_writes: int) -> EffectClass:
    """The class of calls with these effects; the worst decides. To write a whole file again changes nothing more."""
    found = {effect for effect, count in effects.items() if count}
    if found - {Effect.PURE_READ, Effect.UNKNOWN, Effect.LOCAL_WRITE}:
        return "unsafe"
    if effects.get(Effect.LOCAL_WRITE, 0) > whole_file_writes:
        return "unsafe"
    if not found or Effect.UNKNOWN in found:
        return "unknown"
    return "idempotent" if Effect.LOCAL_WRITE in found else "read_only"


def collect_effects(traces: Iterable[Trace]) -> EffectsManifest:
    """Make the manifest of the calls that agents made in these traces."""
    seen: defaultdict[str, defaultdict[tuple[tuple[str, str], ...] | None, _Seen]] = defaultdict(
        lambda: defaultdict(_Seen)
    )
    """By tool and pattern; None has all calls of the tool."""
    count = calls = unread = 0
    for trace in traces:
        count += 1
        for call in (call for m in trace.messages if m.author == "model" for call in m.tool_calls):
            calls += 1
            facts = None if call.error or not call.name else classify_calls(trace, [call])
            if facts is None:
                unread += 1
                continue
            for pattern in (None, tuple(sorted(find_call_pattern(call).items()))):
                seen[call.name][pattern].add(facts, trace.key)
    tools: list[ToolEffects] = []
    for name, by_pattern in seen.items():
        whole = by_pattern.pop(None).describe(open_ended=find_tool_group(name) is not None)
        patterns = [PatternEffects(pattern=dict(each or ()), **of.describe()) for each, of in by_pattern.items()]
        patterns.sort(key=lambda each: (-each.calls, sorted(each.pattern.items())))
        tools.append(ToolEffects(tool=name, patterns=patterns, **whole))
    tools.sort(key=lambda tool: (-tool.calls, tool.tool))
    return EffectsManifest(traces=count, calls=calls, unread_calls=unread, tools=tools)


def read_manifest(path: Path) -> EffectsManifest:
    """Read a manifest from a file; raises a PredictionError if it is not one."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=EffectsManifest)
    except (OSError, msgspec.MsgspecError, UnicodeError) as error:
        reason = find_first_line(error)
        raise PredictionError(f"{path}: is not a manifest of effects: {reason}") from None


def check_call(call: ToolCall, safe: Set[Effect], manifest: EffectsManifest | None = None) -> CheckedCall:
    """Check whether a call may run ahead: only if all effects of it, and of calls like it in the manifest of the
    agent's own traces, are safe."""
    facts, pattern = classify_lone_call(call), find_call_pattern(call)
    tools = [] if manifest is None else manifest.tools
    alike = (each for tool in tools if tool.tool == call.name for each in tool.patterns if each.pattern == pattern)
    found = next(alike, None)
    effects = {facts.effect, *map(Effect, found.effects)} if found else {facts.effect}
    return CheckedCall(
        name=call.name,
        pattern=pattern,
        effect=facts.effect.value,
        may_run_ahead=effects <= safe,
        evidence=None if found is None else found.effect_class,
        calls=0 if found is None else found.calls,
    )
