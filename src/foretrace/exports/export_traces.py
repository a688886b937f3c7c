"""Write a traces folder in an export format: one file of lines, or a folder with a file for each trace."""

from __future__ import annotations

import contextlib
import re
import shutil
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import msgspec

from foretrace.core.digest import digest
from foretrace.core.errors import ForetraceError, Setting, StoreError, UsageError
from foretrace.core.files import atomic_file, describe_write_error, make_partial_name, open_compressed, sync_folder
from foretrace.core.internal_errors import INTERNAL_ERROR, contain_errors
from foretrace.core.progress import ProgressFunc
from foretrace.core.report import Report
from foretrace.core.store import TraceStore
from foretrace.core.trace import Trace, decode_trace, encode_trace
from foretrace.encodings.call_forms import CallForm, choose_form, write_calls
from foretrace.exports.base import Exported, Family, FieldCounts, TraceFormat, count_fields
from foretrace.rows.base import Drop

SUFFIXES = (".jsonl", ".jsonl.gz", ".jsonl.zst")
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_MAX_NAME = 80
"""Most characters of a trace's key in a file name."""
MAX_DEPTH = 8
"""Generations below a trace that are written with it. Those below are written separately, as if without a parent."""


class ExportReport(Report, msgspec.Struct, frozen=True, kw_only=True):
    out: str
    format: str = ""
    """Its name."""
    traces: int
    """Traces that were read; problems for `harbor-tasks`."""
    written: int
    with_tokens: int = 0
    """Rows that contain token ids (format `inline`)."""
    without_solution: int = 0
    """Tasks of problems without a reference (format `harbor-tasks`)."""
    from_demo_model: int = 0
    dropped: dict[str, int]
    """Traces that the format cannot hold, by reason, the most frequent first."""
    lost: dict[str, int] = {}
    """Fields for which the format has no place, by owner and name (`messages.logprobs`), the most frequent first: the
    number of messages, results, calls or traces that had them."""
    kept: dict[str, int] = {}
    """Fields in a free-form place of the format: only foretrace reads them back."""
    bytes: int
    files: int
    replaced: bool = False


def check_calls(format: TraceFormat, calls: CallForm | None) -> None:
    """Raise a `UsageError` if a format does not support the requested form of calls."""
    if calls is None or calls in format.call_forms:
        return
    forms = f"choose one of {', '.join(format.call_forms)}" if format.call_forms else "it says where each call stands"
    raise UsageError(Setting("calls", calls), f": {format.name} does not have that form; {forms}")


def check_out(format: TraceFormat, out: Path) -> None:
    """Raise a `UsageError` if an output does not fit the format; nothing is read yet."""
    if format.suffix is None:
        if not out.name.endswith(SUFFIXES):
            raise UsageError(f"{out}: name it with one of {', '.join(SUFFIXES)}")
    elif out.name.endswith((*SUFFIXES, format.suffix)) or out.is_file():
        raise UsageError(f"{out}: {format.name} is a file for each trace; name a folder")
    elif out.is_dir() and any(out.iterdir()):
        raise UsageError(f"{out}: is a folder that is not empty; name another one")


def export_traces(
    store: TraceStore,
    format: TraceFormat,
    out: Path,
    *,
    calls: CallForm | None = None,
    is_demo_model: Callable[[str | None], bool],
    progress: ProgressFunc | None = None,
) -> ExportReport:
    """Write all traces, or nothing.

    Raises:
        StoreError: the traces cannot be read, or `out` cannot be written.
        ForetraceError: the format cannot represent any of them.
    """
    label = f"exporting {store.folder}"
    counts: Counter[str] = Counter()
    drops: Counter[str] = Counter()
    lost, kept = FieldCounts(), FieldCounts()
    total, replaced = len(store.read_columns("key")), out.is_file()
    families = read_families(store) if format.holds_families else map(Family, store.read())
    with _open_output(format, out) as write:
        for family in families:
            members = sum(1 for _ in family.list_traces())
            done: Exported | Drop = Drop(INTERNAL_ERROR)
            with contain_errors(format.name, family.trace.key):
                written = _write_calls(family, format, calls)
                done = format.write(written)
                if written is not family and isinstance(done, Exported):
                    done = msgspec.structs.replace(done, lost=_find_losses(family, written, done.lost))
            counts["traces"] += members
            counts["demo"] += sum(is_demo_model(trace.provenance.model) for trace in family.list_traces())
            if isinstance(done, Drop):
                drops[done.reason] += members
            else:
                lost.update(done.lost)
                kept.update(done.kept)
                counts["tokens"] += done.has_tokens
                counts["files"] += 1
                counts["bytes"] += write(family.trace.key, done.data)
            if progress is not None:
                progress(label, counts["traces"], total)
        refuse_empty(format.name, counts["traces"], drops)
    is_file = format.suffix is None
    return ExportReport(
        out=str(out),
        traces=counts["traces"],
        written=counts["traces"] - drops.total(),
        with_tokens=counts["tokens"],
        from_demo_model=counts["demo"],
        dropped=dict(drops.most_common()),
        lost=_sort(lost),
        kept=_sort(kept),
        bytes=out.stat().st_size if is_file else counts["bytes"],
        files=1 if is_file else counts["files"],
        replaced=replaced,
    )


def refuse_empty(format: str, read: int, drops: Counter[str]) -> None:
    """Raise a `ForetraceError` if everything that was read was dropped."""
    if read and drops.total() == read:
        reasons = ", ".join(f"{reason} {number:,}" for reason, number in drops.most_common())
        raise ForetraceError(f"{format} can hold none of {read:,} ({reasons}): nothing was written")


_STAYS = frozenset({
    "calls.id", "calls.span", "results.tool_call_ids", "results.prefix", "results.injected", "results.raw_role",
    "messages.continues",
})  # fmt: skip
"""Fields that are redundant if calls are written in the text, or whose text stays."""


def _find_losses(family: Family, written: Family, lost: FieldCounts) -> FieldCounts:
    """The losses of a trace whose calls were converted to another form before the format lost the fields in `lost`.

    Fields of a result that became a user message are counted as the result's.
    """
    before, after = count_fields(family.trace), count_fields(written.trace)
    gone = {name: count for name, count in (before - after).items() if name not in _STAYS}
    return lost - (after - before) + FieldCounts(gone)


def _write_calls(family: Family, format: TraceFormat, calls: CallForm | None) -> Family:
    """The trace with calls in the requested form, or else in its own if the format supports it."""
    trace, own = family.trace, choose_form(family.trace)
    form = calls or (own if own in format.call_forms else None)
    if form is None or form == format.call_forms[0]:
        return family
    messages = tuple(write_calls(trace.messages, form))
    # The agent's instructions describe tools that are called in the text.
    are_described = form == "verbatim" and not any(message.tool_calls for message in messages)
    tools = () if are_described else trace.tools
    return Family(msgspec.structs.replace(trace, messages=messages, tools=tools), family.children)


def _sort(counts: FieldCounts) -> dict[str, int]:
    return dict(sorted((+counts).items(), key=lambda item: (-item[1], item[0])))


@contextlib.contextmanager
def _open_output(format: TraceFormat, out: Path) -> Generator[Callable[[str, bytes], int]]:
    """A function that writes the data for the trace with a key, and returns the number of bytes."""
    if format.suffix is None:
        with atomic_file(out) as file, open_compressed(file, out.name) as stream:
            yield lambda _, data: stream.write(data)
        return
    with open_new_folder(out) as folder:
        suffix = format.suffix
        yield lambda key, data: (folder / f"{make_file_name(key)}{suffix}").write_bytes(data)


@contextlib.contextmanager
def open_new_folder(out: Path) -> Generator[Path]:
    """A folder to write to, which replaces `out` if the block succeeds; a `StoreError` if it cannot be written."""
    partial = make_partial_name(out)
    try:
        shutil.rmtree(partial, ignore_errors=True)  # left by a killed writer
        partial.mkdir(parents=True)
        yield partial
        sync_folder(partial)
        if out.is_dir():
            out.rmdir()  # it is empty
        partial.rename(out)
    except BaseException as error:
        shutil.rmtree(partial, ignore_errors=True)
        if isinstance(error, OSError) and error.errno is not None:
            raise StoreError(describe_write_error(out, error)) from error
        raise


def make_file_name(key: str) -> str:
    """A file name for a trace: its key with safe characters only, and a digest that makes it unique."""
    return f"{_UNSAFE.sub('-', key).strip('-.')[:_MAX_NAME]}-{digest(key)[:12]}"


def read_families(store: TraceStore) -> Iterator[Family]:
    """Each trace that no other in the folder started, with all below it, sorted by key under each parent.

    A trace whose parent is not in the folder, or that is its own ancestor, counts as one of these.
    """
    keys = set(store.read_columns("key")["key"].to_pylist())
    encoded: dict[str, bytes] = {}
    parents: dict[str, str] = {}
    for trace in store.read():
        if trace.parent is not None and trace.parent.key in keys:
            encoded[trace.key], parents[trace.key] = encode_trace(trace), trace.parent.key
    for key in [key for key in parents if key in _list_ancestors(key, parents)]:
        del parents[key]
    depths = {key: len(_list_ancestors(key, parents)) for key in parents}
    children: dict[str, list[str]] = {}
    for key in sorted(parents):
        if depths[key] % (MAX_DEPTH + 1):
            children.setdefault(parents[key], []).append(key)
    with_parent = {key for below in children.values() for key in below}

    def grow(trace: Trace) -> Family:
        return Family(trace, [grow(decode_trace(encoded[key])) for key in children.get(trace.key, ())])

    for trace in store.read():
        if trace.key not in with_parent:
            yield grow(trace)


def _list_ancestors(key: str, parents: dict[str, str]) -> list[str]:
    """The traces above one, each once; in a cycle, including itself."""
    found: list[str] = []
    above = parents.get(key)
    while above is not None and above not in found:
        found.append(above)
        above = parents.get(above)
    return found
