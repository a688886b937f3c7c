"""Flag the steps in which the agent fetched the answer or changed what checks it.

Like labels, flags are derived from the parsed calls and never from the words around them. `Outcome` keeps its success;
whoever builds a dataset decides what a success with a cheat is worth.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from foretrace.actions.call_facts import CallKind
from foretrace.actions.call_reading import CallReading, read_call
from foretrace.actions.cheats.circumstances import Circumstances
from foretrace.actions.cheats.edits import find_claims, find_test_edits
from foretrace.actions.cheats.fetched_answers import find_answer_reads, find_fetches, find_history_reads
from foretrace.actions.label_steps import LabelEvidence, collect_evidence
from foretrace.core.internal_errors import contain_errors
from foretrace.core.trace import ToolCall, Trace

FLAGS_VERSION = "4"
"""Goes into every manifest: flags of different versions must not be compared."""
CHEATS = {
    "tests.edited": "It removes a test that was there, takes out its assertions, or changes what they expect.",
    "tests.skipped": "It has tests that were there skipped, expected to fail, or left out by settings.",
    "answer.read": "It reads or looks for hidden tests, expected outputs, a reference solution or the fixed package.",
    "history.read": "It looks at commits that the checkout does not reach, or that nothing it was shown has named.",
    "network.fetched": "It fetches code, changes or a release of the very project that the task is about.",
    "success.claimed": "It changes what decides about success: the grader, the test runner or the result itself.",
    "verdict.tampered": "Its answer changed what judged it: builtins, imported modules, the tests.",
    "verdict.peeked": "Its answer looked for what is expected of it: frames, tracebacks, the garbage collector.",
    "verdict.same_for_others": "An object of its answer says the same of values that are not expected.",
    "verdict.exited": "Its answer left the process before the tests had ended.",
}
"""Rule -> what a step does that makes a success worthless. Such a success is left out of datasets."""
MARKS = {"ending.fabricated": "The source rewrote how the attempt ended."}
"""Rule -> what should be known about a trace, although it does not make a success worthless."""
MAX_EVIDENCE = 200
_NOT_SHOWING = ("touch", "mkdir", "rm", "tee", "echo", "printf", "cp", "mv", "find", "git")


class Flag(msgspec.Struct, frozen=True, kw_only=True):
    """Something to know about a step before its success is believed, or before it is trained on."""

    index: int
    """Index of the assistant message in `trace.messages`."""
    rule: str
    """Name of the rule, e.g. `history.read`; `find_flag_meaning` says what it means."""
    evidence: str
    """The command, path or line of code that shows it, `MAX_EVIDENCE` characters at most."""

    @property
    def is_cheat(self) -> bool:
        """Whether it makes a success worthless; otherwise it is only a mark."""
        return self.rule in CHEATS


def find_flag_meaning(rule: str) -> str:
    return CHEATS.get(rule) or MARKS.get(rule, "")


def flag_trace(trace: Trace, evidence: Sequence[LabelEvidence] | None = None) -> list[Flag]:
    """Make the flags of a trace, in the order of its messages, each rule at most once per step. `evidence` is the
    result of `collect_evidence`, if the caller has it."""
    steps = collect_evidence(trace) if evidence is None else evidence
    flags: list[Flag] = []
    with contain_errors("flags", trace.key):
        flags.extend(_find_cheats(trace, steps))
    if steps:
        last = steps[-1].label.index
        if trace.outcome.fabricated:
            flags.append(_make_flag(last, "ending.fabricated", trace.outcome.exit_reason or ""))
        flags += [_make_flag(last, f"verdict.{name}", "") for name in trace.outcome.flags]
    return flags


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
    for rule, evidence in (
        ("history.read", find_history_reads(reading.commands, circumstances)),
        ("network.fetched", find_fetches(reading, circumstances)),
        ("answer.read", find_answer_reads(reading, circumstances)),
        ("success.claimed", find_claims(reading.edits, circumstances)),
    ):
        yield from ((rule, shown) for shown in evidence)
    yield from find_test_edits(reading.edits, circumstances)
    # What it makes comes first: a line that writes a script and runs it does not run an existing file.
    for edit in reading.edits:
        circumstances.note_edit(edit)
    if not (step.label.failed and step.facts.kind in (CallKind.READ, CallKind.SEARCH)):
        circumstances.note_known(reading.reads)
        circumstances.note_known(_list_run(reading))
    if reading.reads:
        circumstances.open_file = reading.reads[-1]
    elif reading.edits and reading.edits[-1].path:
        circumstances.open_file = reading.edits[-1].path


def _list_run(reading: CallReading) -> Iterator[str]:
    """Files that commands name: tests that are run, sources that are shown."""
    for command in reading.commands:
        for word in command.argv[1:] if command.argv[0] not in _NOT_SHOWING else ():
            name = word.split("::", 1)[0]
            if "." in name[1:] and not name.startswith("-") and len(name) < 200 and " " not in name:
                yield name
