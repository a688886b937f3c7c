"""Flag the steps in which the agent fetched the answer or changed what checks it, and steps that are broken.

Like labels, flags are derived from the parsed calls and never from the words around them. `Outcome` keeps its success;
whoever builds a dataset decides what a success with a cheat is worth.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import msgspec

from foretrace.actions.call_facts import CallKind, changes_state
from foretrace.actions.call_reading import CallReading, read_call
from foretrace.actions.cheats.circumstances import Circumstances
from foretrace.actions.cheats.claimed_success import find_claims
from foretrace.actions.cheats.edited_tests import find_test_edits
from foretrace.actions.cheats.git_history import find_history_reads
from foretrace.actions.cheats.hidden_answers import find_answer_reads
from foretrace.actions.cheats.network import find_fetches
from foretrace.actions.flag_meanings import CHEATS
from foretrace.actions.label_steps import LabelEvidence, collect_evidence
from foretrace.actions.same_action import normalise_arguments
from foretrace.core.internal_errors import contain_errors
from foretrace.core.trace import Message, ToolCall, Trace

MAX_EVIDENCE = 200
"""Most characters of the evidence of a flag."""
LOOP = 3
"""Repetitions of the same call with the same observation that make a loop."""
_WAITING = (
    "shell.input",
    "tool.wait",
    "tool.sleep",
    "tool.bash_output",
    "tool.task_output",
    "tool.await",
    "tool.monitor",
)


class Flag(msgspec.Struct, frozen=True, kw_only=True):
    """Something to know about a step before its success is believed, or before it is trained on."""

    index: int
    """Index of the assistant message in `trace.messages`."""
    rule: str
    """Name of the rule, e.g. `history.read`; `flag_meanings` says what it means."""
    evidence: str
    """The command, path or line of code that shows it, `MAX_EVIDENCE` characters at most."""

    @property
    def is_cheat(self) -> bool:
        """Whether it makes a success worthless; otherwise it is only a mark."""
        return self.rule in CHEATS


def flag_trace(trace: Trace, evidence: Sequence[LabelEvidence] | None = None) -> list[Flag]:
    """Make the flags of a trace, in the order of its messages, each rule at most once per step.

    Args:
        trace: the trace.
        evidence: the result of `collect_evidence` for it, if the caller has it.
    """
    steps = collect_evidence(trace) if evidence is None else evidence
    flags: list[Flag] = []
    for find in (_find_cheats, _find_loops, _find_lost):
        with contain_errors("flags", trace.key):
            flags.extend(find(trace, steps))
    if trace.outcome.fabricated and steps:
        flags.append(_make_flag(steps[-1].label.index, "ending.fabricated", trace.outcome.exit_reason or ""))
    flags += [_make_flag(steps[-1].label.index, f"verdict.{name}", "") for name in trace.outcome.flags if steps]
    return sorted(flags, key=lambda flag: flag.index)


def _make_flag(index: int, rule: str, evidence: str) -> Flag:
    return Flag(index=index, rule=rule, evidence=" ".join(evidence.split())[:MAX_EVIDENCE])


def _find_cheats(trace: Trace, steps: Sequence[LabelEvidence]) -> Iterator[Flag]:
    circumstances = Circumstances(trace)
    for step in steps:
        index = step.label.index
        message = trace.messages[index]
        found: dict[str, str] = {}
        for call in message.tool_calls if message.author != "demo" else ():
            with contain_errors("flags", trace.key):
                for rule, shown in _check_call(call, step, circumstances) if call.name or not call.error else ():
                    if not circumstances.asks_for(rule):
                        found.setdefault(rule, shown)
        yield from (_make_flag(index, rule, shown) for rule, shown in found.items())
        for at in step.observations:
            # What a cheat has shown is not thereby allowed.
            text = trace.messages[at].content
            circumstances.note_observation(text, names_commits="history.read" not in found)
        circumstances.looking_at.clear()


def _check_call(call: ToolCall, step: LabelEvidence, circumstances: Circumstances) -> Iterator[tuple[str, str]]:
    reading = read_call(call)
    commands = [command for command in reading.commands if command.argv]
    reading = CallReading(commands, reading.edits, reading.reads, reading.strings, reading.addresses)
    found = {
        "history.read": find_history_reads(commands, circumstances),
        "network.fetched": find_fetches(reading, circumstances),
        "answer.read": find_answer_reads(reading, circumstances),
        "success.claimed": find_claims(reading, circumstances),
    }
    for rule, evidence in found.items():
        yield from ((rule, shown) for shown in evidence)
    yield from find_test_edits(reading.edits, circumstances)
    _note(reading, step, circumstances)


def _note(reading: CallReading, step: LabelEvidence, circumstances: Circumstances) -> None:
    """Keep what the rules need to know about this call for later steps."""
    # What it makes comes first: a line that writes a script and runs it does not run an existing file.
    for edit in reading.edits:
        circumstances.note_edit(edit)
    refused = step.label.failed and step.facts.kind in (CallKind.READ, CallKind.SEARCH)
    if not refused:
        circumstances.note_known(reading.reads)
        circumstances.note_known(_list_run(reading))
    if reading.reads:
        circumstances.open_file = reading.reads[-1]
    elif reading.edits and reading.edits[-1].path:
        circumstances.open_file = reading.edits[-1].path


def _list_run(reading: CallReading) -> Iterable[str]:
    """Files that commands name: tests that are run, sources that are shown."""
    for command in reading.commands:
        if command.argv[0] in ("touch", "mkdir", "rm", "tee", "echo", "printf", "cp", "mv", "find", "git"):
            continue
        for word in command.argv[1:]:
            name = word.split("::", 1)[0]
            if "." in name[1:] and not name.startswith("-") and len(name) < 200 and " " not in name:
                yield name


class _Repeated(NamedTuple):
    """The latest of several identical calls, each with the same observation."""

    times: int
    state_version: int
    """After the call: what it changes itself is not a change in between."""
    observation: str


def _find_loops(trace: Trace, steps: Sequence[LabelEvidence]) -> Iterator[Flag]:
    seen: dict[tuple[tuple[str, str], ...], _Repeated] = {}
    for step in steps:
        message = trace.messages[step.label.index]
        if not message.tool_calls or step.label.action is None or step.facts.rule in _WAITING:
            continue
        key = tuple((call.name, normalise_arguments(call.name, call.arguments)) for call in message.tool_calls)
        observation = "\0".join(trace.messages[at].content for at in step.observations)
        before = seen.get(key)
        times = 1
        if before is not None and step.observations and before.observation == observation:
            times += before.times if before.state_version == step.label.state_version else 0
        seen[key] = _Repeated(times, step.label.state_version + changes_state(step.facts), observation)
        if times >= LOOP:
            names = ", ".join(f"{call.name} {call.arguments}" for call in message.tool_calls)
            yield _make_flag(step.label.index, "loop.same_call", f"{times} times: {names}")


def _find_lost(trace: Trace, steps: Sequence[LabelEvidence]) -> Iterator[Flag]:
    """Calls without an observation, though the agent went on."""
    last = steps[-1].label.index if steps else -1
    for step in steps:
        index = step.label.index
        message = trace.messages[index]
        if step.label.rule == "nonstep.lost":
            yield _make_flag(index, "observation.lost", "the call itself was lost")
        if not message.tool_calls or message.author == "demo" or index == last or step.facts.kind >= CallKind.ASK:
            continue
        if not step.observations and _goes_on(trace.messages, index):
            names = ", ".join(call.name or "(no name)" for call in message.tool_calls)
            yield _make_flag(index, "observation.lost", names)


def _goes_on(messages: tuple[Message, ...], index: int) -> bool:
    """Whether the agent speaks again in another turn: messages of the same turn may be read together."""
    turn = messages[index].turn
    following = islice(messages, index + 1, None)
    return any(m.role == "assistant" and (m.turn != turn or not m.turn) for m in following)
