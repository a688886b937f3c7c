"""How long each step of a trace took: the model's reply, and the tools that it called.

Here a step is one reply of the model. Consecutive assistant messages are one reply, since a reply with several calls
may be split into several messages. Unknown times stay unknown; they are never guessed or set to zero.

- **Model time.** The sum of the times of the reply's messages if a runner or a span measured them. If they are
  differences of time stamps, the longest, since all of them start at the input that the reply answers.
- **Tool time.** How long the agent waits for its tools once the reply is written. With several results it is the union
  of their intervals if these are known (generated traces have the start of a call, stamps the time of its result), else
  the longest, which is too short if calls ran one after another. It never exceeds the time from the end of the reply to
  the last result, if stamps give both: some agents start a call while the model is still writing.
- **No waiting.** Calls that end the attempt, ask a question or hand over to a person take no tool time.
- **Clocks.** A step has unknown times if its stamps go backwards, or if a duration is negative, not a number or longer
  than a day.

`AssumedTimes` fill in only unknown times, and every report that uses them says so and counts the steps.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

from foretrace.actions.call_facts import CallKind, pick_worst_effect
from foretrace.actions.call_names import name_call
from foretrace.actions.taxonomy import ActionType, Effect, StepLabel
from foretrace.actions.tool_rules import classify_call
from foretrace.core.errors import Setting, UsageError
from foretrace.core.trace import Message, ToolCall, Trace
from foretrace.sources.conversation import read_time

LONGEST_S = 86_400.0
"""Seconds; longer replies or calls must have been measured wrongly."""

UnknownReason = Literal["no_model_time", "no_tool_time", "no_result", "clock_backwards", "absurd_time"]
Overlap = Literal["", "union", "longest"]
"""How the times of several results were combined; empty for at most one."""

_NO_TOOL = frozenset((CallKind.ASK, CallKind.SAY, CallKind.HANDOVER, CallKind.GIVE_UP, CallKind.TERMINAL))
"""Kinds of calls that wait for a person or for nothing."""
_FILLED = ("no_model_time", "no_tool_time")
"""Reasons for unknown times that assumed times can replace; the others stay unknown."""


class CallTimes(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a step."""

    name: str
    """The name by `name_call`: `Read`, `bash: grep`."""
    tool_s: float | None
    """Its own seconds, or an equal part of a result that answers several calls; None if unknown."""
    stamped: bool = False
    """Whether its time is only a difference of stamps, which may include waiting for a person."""


class StepTimes(msgspec.Struct, frozen=True, kw_only=True):
    """The times of one step, in seconds."""

    indexes: tuple[int, ...]
    """Indexes of its assistant messages in `trace.messages`."""
    model_s: float | None
    tool_s: float | None
    """How long the agent waited for its tools; 0 if it called none."""
    calls: tuple[CallTimes, ...] = ()
    unknown: UnknownReason | None = None
    """Why the step's times count as unknown, even if one of `model_s` and `tool_s` is known."""
    overlap: Overlap = ""
    after_person: bool = False
    """Whether a person wrote something between the previous step and this one."""


class _Reply(NamedTuple):
    """Assistant messages with nothing between them."""

    indexes: tuple[int, ...]
    after_person: bool
    input_at: float | None
    """Time stamp of the latest input before it, in seconds since 1970."""


class _BadTimeError(Exception):
    """An impossible duration."""


def find_step_effect(step: StepTimes, labels: Mapping[int, StepLabel]) -> Effect:
    return pick_worst_effect(labels[index].effect for index in step.indexes)


def time_steps(trace: Trace) -> list[StepTimes]:
    """The times of every step of a trace, in order. Replies that are part of an example, or that the agent's program
    wrote without the model, are not steps."""
    observations = {step.index: step.observations for step in trace.steps()}
    timed: list[StepTimes] = []
    clock: float | None = None
    for reply in _list_replies(trace.messages):
        messages = [trace.messages[index] for index in reply.indexes]
        found = [result for index in reply.indexes for result in observations[index]]
        results = list({id(result): result for result in found}.values())
        began = _read_stamp(messages[0])
        runs_back = began is not None and (
            (clock is not None and began < clock)
            or any((at := _read_stamp(result)) is not None and at < began for result in results)
        )
        clock = began if began is not None else clock
        timed.append(_time_step(trace, reply, messages, results, runs_back=runs_back))
    return timed


def _list_replies(messages: Sequence[Message]) -> Iterator[_Reply]:
    indexes: list[int] = []
    after_person = False
    input_at: float | None = None
    for index, message in enumerate(messages):
        if message.role == "assistant" and message.author == "model":
            indexes.append(index)
            continue
        if indexes:
            yield _Reply(tuple(indexes), after_person, input_at)
            indexes, after_person = [], False
        stamp = _read_stamp(message)
        input_at = stamp if stamp is not None else input_at
        after_person = after_person or (message.role == "user" and message.author == "user")
    if indexes:
        yield _Reply(tuple(indexes), after_person, input_at)


def _time_step(
    trace: Trace, reply: _Reply, messages: list[Message], results: list[Message], *, runs_back: bool
) -> StepTimes:
    calls = [call for message in messages for call in message.tool_calls]
    generated = trace.provenance.origin == "generated"
    model_s = tool_s = None
    unknown: UnknownReason | None = None
    overlap: Overlap = ""
    own: Sequence[tuple[float | None, bool]] = [(None, False)] * len(calls)
    try:
        model_s = _find_model_time(messages)
        own = [
            (0.0, False) if _is_for_nobody(call) else times
            for call, times in zip(calls, _share_results(calls, results), strict=True)
        ]
        replied = _find_end(messages, reply.input_at)
        tool_s, unknown, overlap = _find_tool_time(calls, results, replied, generated=generated)
        unknown = "no_model_time" if model_s is None else unknown
    except _BadTimeError:
        unknown = "absurd_time"
    return StepTimes(
        indexes=reply.indexes,
        model_s=model_s,
        tool_s=tool_s,
        calls=tuple(
            CallTimes(name=name_call(call), tool_s=seconds, stamped=stamped)
            for call, (seconds, stamped) in zip(calls, own, strict=True)
        ),
        unknown="clock_backwards" if runs_back else unknown,
        overlap=overlap,
        after_person=reply.after_person,
    )


def _find_end(messages: Sequence[Message], input_at: float | None) -> float | None:
    """When a reply was complete, by stamps; None if there are none."""
    timed = [message for message in messages if message.model_s is not None]
    if any(message.model_s_source != "stamps" for message in timed):
        return None
    ends = [] if input_at is None else [input_at + (message.model_s or 0.0) for message in timed]
    if (last := _read_stamp(messages[-1])) is not None:
        ends.append(last)
    return max(ends, default=None)


def _find_model_time(messages: Sequence[Message]) -> float | None:
    """Seconds of a reply; None if any part of it has no time. 0 counts as unknown, since a reply takes time."""
    times = [_check(message.model_s) or None for message in messages]
    known = [seconds for seconds in times if seconds is not None]
    if any(message.model_s_source == "stamps" for message in messages):
        return max(known) if times[-1] is not None else None
    # In a completion of several messages, the first one has the time of all.
    whole = all(
        seconds is not None or (place > 0 and message.continues)
        for place, (seconds, message) in enumerate(zip(times, messages, strict=True))
    )
    return math.fsum(known) if known and whole else None


def _find_tool_time(
    calls: Sequence[ToolCall], results: Sequence[Message], replied: float | None, *, generated: bool
) -> tuple[float | None, UnknownReason | None, Overlap]:
    """Seconds that the agent waited after its reply, which was complete at `replied` (seconds since 1970)."""
    waiting = [call for call in calls if not _is_for_nobody(call)]
    if not waiting:
        return 0.0, None, ""
    ids = {call.id for call in waiting if call.id}
    results = [result for result in results if not ids or not result.tool_call_ids or ids & {*result.tool_call_ids}]
    answered = {call_id for result in results for call_id in result.tool_call_ids}
    has_ids = len(ids) == len(waiting) and all(result.tool_call_ids for result in results)
    if not results or (has_ids and ids - answered):
        return None, "no_result", ""
    times = [_check(result.tool_s) for result in results]
    known = [seconds for seconds in times if seconds is not None]
    if len(known) < len(times):
        return None, "no_tool_time", ""
    waited = math.inf
    stamps = [stamp for result in results if (stamp := _read_stamp(result)) is not None]
    if replied is not None and len(stamps) == len(results):
        waited = round(max(0.0, max(stamps) - replied), 6)
    if len(known) == 1:
        return min(known[0], waited), None, ""
    intervals = [_find_interval(result, generated=generated) for result in results]
    placed = [interval for interval in intervals if interval is not None]
    if len(placed) < len(intervals):
        return min(max(known), waited), None, "longest"
    return _measure_union(placed, -math.inf if replied is None else replied), None, "union"


def _is_for_nobody(call: ToolCall) -> bool:
    return classify_call(call.name, call.arguments).kind in _NO_TOOL


def _find_interval(result: Message, *, generated: bool) -> tuple[float, float] | None:
    """Start and end of a call, in seconds since 1970, from its result; None if unknown."""
    at, seconds = _read_stamp(result), result.tool_s
    if at is None or seconds is None:
        return None
    if generated:
        return at, at + seconds
    return (at - seconds, at) if result.tool_s_source == "stamps" else None


def _measure_union(intervals: Iterable[tuple[float, float]], since: float) -> float:
    """Seconds after `since` covered by at least one interval."""
    parts: list[float] = []
    covered = since
    for begin, end in sorted(intervals):
        parts.append(max(0.0, end - max(begin, covered)))
        covered = max(covered, end)
    return round(math.fsum(parts), 6)  # stamps since 1970 are exact to a quarter of a microsecond


def _share_results(calls: Sequence[ToolCall], results: Sequence[Message]) -> Sequence[tuple[float | None, bool]]:
    """The seconds of each call on its own, and whether they are a difference of stamps. Calls are matched to results by
    id, else by position if there are as many; a result that answers several calls is divided equally."""
    times: list[tuple[float | None, bool]] = []
    for result in results:
        seconds = _check(result.tool_s)
        share = None if seconds is None else seconds / max(1, len(result.tool_call_ids))
        times.append((share, share is not None and result.tool_s_source == "stamps"))
    own = {call_id: time for result, time in zip(results, times, strict=True) for call_id in result.tool_call_ids}
    if own:
        return [own.get(call.id, (None, False)) for call in calls]
    return times if len(calls) == len(results) else [(None, False)] * len(calls)


def _check(seconds: float | None) -> float | None:
    """Return the duration if it is possible: a number, not negative, and not longer than a day."""
    if seconds is not None and not 0 <= seconds <= LONGEST_S:  # NaN fails this too
        raise _BadTimeError
    return seconds


def _read_stamp(message: Message) -> float | None:
    return None if message.started is None else read_time(message.started)


def split_runs(steps: Sequence[StepTimes]) -> list[list[StepTimes]]:
    """Runs of consecutive steps with known times. A step of unknown time ends a run, and so does a person's message,
    which nothing could predict."""
    runs: list[list[StepTimes]] = [[]]
    for step in steps:
        if runs[-1] and (step.unknown is not None or step.after_person):
            runs.append([])
        if step.unknown is None:
            runs[-1].append(step)
    return runs if runs[-1] else runs[:-1]


class AssumedTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds that are assumed if a trace does not have them."""

    source: str
    model: float
    tool: float
    """Seconds of a call whose action type is not in `actions`."""
    actions: dict[str, float] = {}
    """Seconds of a call by the action type of its step."""


SHIPPED = {
    "tracelab": AssumedTimes(
        source="medians of 357,161 model calls and 432,510 tool calls of Claude Code and Codex (TraceLab, "
        "arXiv:2606.30560)",
        model=5.7,
        tool=0.3,
    )
}
"""Shipped times, by the name that `--assume-times` accepts."""


def read_assumed_times(given: str | Mapping[str, float] | AssumedTimes | None) -> AssumedTimes | None:
    """Read assumed times: a shipped name, `model=6,tool=0.5,verifier=12`, or a mapping with such keys."""
    if given is None or isinstance(given, AssumedTimes):
        return given
    if isinstance(given, str) and given in SHIPPED:
        return SHIPPED[given]
    text = given if isinstance(given, str) else ",".join(f"{name}={value}" for name, value in given.items())
    known = ["model", "tool", *map(str, ActionType)]
    seconds: dict[str, float] = {}
    for name, _, value in (part.partition("=") for part in text.split(",")):
        with contextlib.suppress(ValueError):
            seconds[name.strip()] = float(value)
    problem = ""
    if unknown := seconds.keys() - known:
        problem = f"unknown name {min(unknown)!r}; take {', '.join(known)}"
    elif wrong := [name for name, each in seconds.items() if not 0 <= each <= LONGEST_S]:
        problem = f"{wrong[0]} is not between 0 and {LONGEST_S:,.0f} seconds"
    elif len(seconds) <= text.count(","):
        problem = f"give {', '.join(SHIPPED)}, or seconds such as model=6,tool=0.5"
    elif missing := [name for name in ("model", "tool") if name not in seconds]:
        problem = f"give {' and '.join(missing)} too, in seconds"
    if problem:
        raise UsageError(Setting("assume_times", text), f": {problem}")
    return AssumedTimes(source="given", model=seconds.pop("model"), tool=seconds.pop("tool"), actions=seconds)


def fill_times(
    steps: Sequence[StepTimes], labels: Mapping[int, StepLabel], assumed: AssumedTimes
) -> tuple[list[StepTimes], int]:
    filled = [_fill_step(step, labels, assumed) if step.unknown in _FILLED else step for step in steps]
    return filled, sum(one is not other for one, other in zip(steps, filled, strict=True))


def _fill_step(step: StepTimes, labels: Mapping[int, StepLabel], assumed: AssumedTimes) -> StepTimes:
    action = next((str(labels[index].action) for index in step.indexes if labels[index].action is not None), "")
    seconds = assumed.actions.get(action, assumed.tool)
    calls = tuple(msgspec.structs.replace(call, tool_s=seconds) if call.tool_s is None else call for call in step.calls)
    return msgspec.structs.replace(
        step,
        model_s=assumed.model if step.model_s is None else step.model_s,
        tool_s=max((call.tool_s or 0.0 for call in calls), default=0.0) if step.tool_s is None else step.tool_s,
        calls=calls,
        unknown=None,
        overlap="longest" if step.tool_s is None and len(calls) > 1 else step.overlap,
    )
