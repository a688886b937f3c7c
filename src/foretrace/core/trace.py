"""The record that every part of foretrace reads or writes: one frozen `Trace` for each attempt at a `Task`.

A generated trace and an imported one look the same to everything that reads them. Labels are not stored here. They are
derived (`foretrace.actions`), so a better taxonomy does not require rewriting the data.
"""

from __future__ import annotations

import bisect
import hashlib
import itertools
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

SCHEMA_VERSION = 1

DEMO_MODEL = "demo-model"
"""`Provenance.model` of the demo model that ships with foretrace. What it writes is never training data."""

Role = Literal["system", "user", "assistant", "tool"]
Author = Literal["model", "environment", "user", "demo"]
Status = Literal["done", "error", "limit", "cancelled"]
TimeSource = Literal["runner", "span", "stamps"]
"""Who measured a duration: the runner, or a span of a tracer. `stamps` is the difference of two time stamps."""


class Record(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """Base of all records: immutable, defaults left out of the JSON."""


class Part(Record, frozen=True, kw_only=True):
    """One non-text part of a message's content (an image, a file), kept by reference."""

    type: str
    """What it is: `image`, `audio`, `file`, ..."""
    media_type: str = ""
    """MIME type, empty when the source does not say."""
    ref: str | None = None
    """Where it is: a URL or a path as the source gave it."""
    sha256: str | None = None
    """Digest of inline bytes, which are not kept."""
    at: int = 0
    """Character offset of the part in `Message.content`."""


class ToolSpec(Record, frozen=True, kw_only=True):
    """One tool that the agent was offered."""

    name: str
    description: str = ""
    parameters: str = "{}"
    """JSON Schema of the arguments, as JSON text."""


class ToolCall(Record, frozen=True, kw_only=True):
    """One call of a tool by the agent."""

    id: str = ""
    """The source's id; empty if it has none."""
    name: str = ""
    arguments: str = "{}"
    """JSON text of the arguments, verbatim if the source had JSON."""
    span: tuple[int, int] | None = None
    """Start and end character offsets into `Message.content` of a call written as text, else `None`."""
    repairs: tuple[str, ...] = ()
    """The kinds of repair that were needed to read the call; empty if it was well-formed."""
    error: str | None = None
    """Why the call could not be read. Such a call was never executed."""
    extra: dict[str, Any] = {}


class Usage(Record, frozen=True, kw_only=True):
    """Token counts of one completion, `None` when the server did not report them."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class Sampled(Record, frozen=True, kw_only=True):
    """What the model server said about the tokens of one assistant message."""

    token_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    """Natural-log probabilities, aligned with `token_ids`. There are fewer of them if the last ids are not the model's
    own (a closing tag that was put back, the rest of a token that was cut)."""
    prompt_token_ids: tuple[int, ...] | None = None
    """Ids of the context: on the first span, or where the context changed."""
    finish_reason: str | None = None
    usage: Usage | None = None
    exact: Literal["token", "text", "none"] = "none"
    """Whether the ids are the sampled ones (`token`), from tokenizing the text again (`text`), or absent (`none`)."""


class Message(Record, frozen=True, kw_only=True):
    """One contiguous span by one author; an inline turn is several messages that share `turn`."""

    role: Role
    author: Author
    content: str = ""
    """The text, verbatim, without `prefix`."""
    parts: tuple[Part, ...] = ()
    reasoning: str | None = None
    """Thinking, if the source keeps it apart from the content."""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_ids: tuple[str, ...] = ()
    """Ids of the calls that this result answers; it may answer several."""
    is_error: bool | None = None
    """Whether the environment reported that the call failed; `None` if it did not say."""
    turn: int = 0
    """Index of the turn. Spans of one turn share it."""
    continues: bool = False
    """True if this span continues the assistant turn that an injected result interrupted."""
    injected: bool = False
    """True for environment text inside an assistant turn, which is never trained on."""
    train: bool | None = None
    """Whether to train on this message; `None` leaves it to the recipe."""
    train_weight: float | None = None
    prefix: str = ""
    """An observation marker that was cut off the content: `prefix + content` is the original text."""
    raw_role: str | None = None
    """The source's own role name, when it differs from `role`."""
    raw_index: int | None = None
    """0-based index in the row's own list of turns."""
    sampled: Sampled | None = None
    model_s: float | None = None
    """Seconds that the model took; `None` means unknown, not zero."""
    tool_s: float | None = None
    """On a tool's result: seconds that the tool took; `None` means unknown. Waiting for a person does not count."""
    started: str | None = None
    """ISO 8601 time at which the span began."""
    model_s_source: TimeSource | None = None
    tool_s_source: TimeSource | None = None
    extra: dict[str, Any] = {}


class Task(Record, frozen=True, kw_only=True):
    """What was attempted."""

    id: str
    """The instance, query or problem. Attempts with the same id are siblings."""
    group: str
    """All rows of a group go into the same split. The repository for SWE data, else the id."""
    kind: str = ""
    statement: str | None = None
    extra: dict[str, Any] = {}


class TestCounts(Record, frozen=True, kw_only=True):
    """How many tests passed."""

    __test__ = False  # not a pytest class

    passed: int
    total: int
    public: int | None = None
    hidden: int | None = None


class Failure(Record, frozen=True, kw_only=True):
    """What went wrong in an attempt that ended in an error."""

    kind: str
    message: str = ""


class Isolation(Record, frozen=True, kw_only=True):
    """How well the code of this attempt was isolated."""

    level: int
    """3: jail and namespaces; 2: Landlock and system call filter; 1: system call filter; 0: limits only; 4: elsewhere
    (a container or another machine)."""
    missing: tuple[str, ...] = ()
    """Protections that are not in force."""
    sandbox: str = ""
    """Name of the sandbox that was used."""
    refused: dict[str, str] = {}
    """Sandboxes that were tried first, and why they could not be used."""


class Outcome(Record, frozen=True, kw_only=True):
    """How the attempt ended."""

    status: Status = "done"
    success: bool | None = None
    """Whether the task was solved; `None` means unknown, not failure."""
    reward: float | None = None
    tests: TestCounts | None = None
    exit_reason: str | None = None
    fabricated: bool = False
    """True if the source rewrote how the attempt ended."""
    error: Failure | None = None
    isolation: Isolation | None = None
    integrity: str | None = None
    """The form in which tests were judged."""
    flags: tuple[str, ...] = ()
    """How the answer tried to pass without solving the task (see `core.problem.Verdict.flags`)."""
    metrics: dict[str, float] = {}


class Provenance(Record, frozen=True, kw_only=True):
    """Where the trace comes from."""

    origin: Literal["imported", "generated"]
    source: str
    revision: str | None = None
    split: str | None = None
    raw_file: str | None = None
    """Base name of the input file."""
    raw_row: int | None = None
    """0-based row of the input; bad lines count too."""
    raw_id: str | None = None
    """The row's own id, if it has one."""
    license: str | None = None
    agent: str | None = None
    model: str | None = None
    protocol: str | None = None
    sampling: dict[str, Any] = {}
    seed: int | None = None
    sample: int | None = None
    run: str | None = None
    capabilities: dict[str, Any] = {}
    transforms: tuple[str, ...] = ()
    tool_versions: dict[str, str] = {}
    created_at: str | None = None


class Parent(Record, frozen=True, kw_only=True):
    """The trace and call that started this one (an agent that called another)."""

    key: str
    call_id: str | None = None


class Trace(Record, frozen=True, kw_only=True):
    """One frozen record of one attempt by one agent at one Task."""

    schema_version: int = SCHEMA_VERSION
    key: str
    """Identity of the attempt. A resumed run skips keys that are already stored, and no folder holds a key twice."""
    id: str = ""
    """blake2b over key and content (see `compute_trace_id`), 32 hex digits."""
    task: Task
    tools: tuple[ToolSpec, ...] = ()
    messages: tuple[Message, ...]
    outcome: Outcome = Outcome()
    provenance: Provenance
    parent: Parent | None = None
    extra: dict[str, Any] = {}

    def steps(self) -> Iterator[Step]:
        """Yield a `Step` for each assistant message, in order."""
        messages = self.messages
        uses = _index_calls(messages)
        index, count = 0, len(messages)
        while index < count:
            end = index + 1
            if messages[index].role == "assistant":
                while end < count and messages[end].role != "assistant":
                    end += 1
                yield Step(self, index, _find_answers(messages, index, end, uses))
            index = end


class Step:
    """A view, never stored, of one assistant message of a trace, its calls and the observations that answered it."""

    __slots__ = ("index", "observations", "trace")

    def __init__(self, trace: Trace, index: int, observations: tuple[Message, ...]) -> None:
        self.trace = trace
        self.index = index
        """Index of the assistant message in `trace.messages`."""
        self.observations = observations
        """Messages with role `tool` that answered it, up to the agent's next message. They are matched by call id if
        the calls have ids, so that batched calls find their results."""

    @property
    def message(self) -> Message:
        return self.trace.messages[self.index]

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return self.message.tool_calls

    def __repr__(self) -> str:
        return f"Step({self.trace.key!r}, {self.index})"


def _find_answers(
    messages: tuple[Message, ...], index: int, end: int, uses: dict[str, list[int]]
) -> tuple[Message, ...]:
    """The observations that answer the assistant message at `index`; the next assistant message is at `end`."""
    ids = {call.id for call in messages[index].tool_calls if call.id}
    near = messages[index + 1 : end]
    if not ids:
        return tuple(m for m in near if m.role == "tool")
    found = tuple(m for m in near if m.role == "tool" and (not m.tool_call_ids or ids & {*m.tool_call_ids}))
    if found:
        return found
    # Calls of one turn may be batched before their outputs (OpenAI Responses): look further ahead, by id.
    late = {i for call_id in ids for i in _find_late_results(messages, uses[call_id], end)}
    return tuple(messages[i] for i in sorted(late))


def _index_calls(messages: tuple[Message, ...]) -> dict[str, list[int]]:
    """The indexes of the messages that make or answer each call, by call id."""
    uses: dict[str, list[int]] = {}
    for index, message in enumerate(messages):
        for call_id in (*(c.id for c in message.tool_calls), *message.tool_call_ids):
            uses.setdefault(call_id, []).append(index)
    return uses


def _find_late_results(messages: tuple[Message, ...], uses: list[int], end: int) -> Iterator[int]:
    """Results at or after `end`, up to where the id is called again: some servers reuse the same ids in every turn."""
    for index in itertools.islice(uses, bisect.bisect_left(uses, end), None):
        if messages[index].role != "tool":
            return
        yield index


_encoder = msgspec.json.Encoder(order="deterministic")
_decoder = msgspec.json.Decoder(Trace)


def encode_trace(trace: Trace) -> bytes:
    """Canonical JSON of a trace (UTF-8): fields in declaration order, mappings sorted, defaults left out."""
    return _encoder.encode(trace)


def decode_trace(data: bytes | str) -> Trace:
    """Read what `encode_trace` wrote; msgspec.ValidationError if it is not a Trace, DecodeError if it is not JSON."""
    try:
        return _decoder.decode(data)
    except msgspec.ValidationError:
        record: Any = msgspec.json.decode(data)
        upgraded = upgrade_record(record) if isinstance(record, dict) else record
        if upgraded is record:
            raise
        return msgspec.convert(upgraded, Trace)


def upgrade_record(record: dict[str, Any]) -> dict[str, Any]:
    """A decoded record with today's field names: foretrace 0.1 wrote `provenance.licence` for `provenance.license`."""
    provenance = record.get("provenance")
    if not isinstance(provenance, dict) or "licence" not in provenance or "license" in provenance:
        return record
    fields = {("license" if name == "licence" else name): value for name, value in provenance.items()}
    return {**record, "provenance": fields}


def compute_trace_id(trace: Trace) -> str:
    """blake2b (32 hex digits) over key and content, without what may differ in another run of the same attempt: clocks,
    durations, logprobs, where the row was read, tool versions, what the model server was found to support."""
    provenance = msgspec.structs.replace(
        trace.provenance, created_at=None, tool_versions={}, capabilities={}, raw_file=None, raw_row=None, run=None
    )
    messages = trace.messages
    if any(_has_run_details(m) for m in messages):
        messages = tuple(remove_run_details(m) for m in messages)
    outcome = trace.outcome
    timed = [name for name in outcome.metrics if name.endswith("_s")]
    if timed:
        metrics = {k: v for k, v in outcome.metrics.items() if k not in timed}
        outcome = msgspec.structs.replace(outcome, metrics=metrics)
    origin = _encoder.encode(provenance)
    if provenance.license is not None:  # hashed under the field's first name, so that renaming it does not change ids
        origin = origin.replace(b'"license":', b'"licence":', 1)
    raw: Any = msgspec.Raw(origin)
    bare = msgspec.structs.replace(trace, id="", provenance=raw, messages=messages, outcome=outcome)
    return hashlib.blake2b(_encoder.encode(bare), digest_size=16).hexdigest()


def add_trace_id(trace: Trace) -> Trace:
    return msgspec.structs.replace(trace, id=compute_trace_id(trace))


def _has_run_details(message: Message) -> bool:
    return (
        message.sampled is not None
        or message.model_s is not None
        or message.tool_s is not None
        or message.started is not None
    )


def remove_run_details(message: Message) -> Message:
    """The message without what may differ in another run, or another reading, of the same attempt."""
    sampled = message.sampled
    if sampled is not None:
        sampled = msgspec.structs.replace(sampled, logprobs=())
    return msgspec.structs.replace(
        message, sampled=sampled, model_s=None, tool_s=None, started=None, model_s_source=None, tool_s_source=None
    )
