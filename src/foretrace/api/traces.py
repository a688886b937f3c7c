"""Work on traces folders: import into them, scrub, label and export them, and show them in a browser."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from foretrace.api.settings import make_engine
from foretrace.core.errors import Setting, StoreError, UsageError
from foretrace.core.files import refuse_inside_folder
from foretrace.core.journal import count_unsealed, find_journals
from foretrace.core.places import make_local_path, write_place
from foretrace.core.progress import ProgressFunc, ignore_progress
from foretrace.core.report import Report
from foretrace.core.store import TraceStore
from foretrace.core.trace import Trace

if TYPE_CHECKING:
    from foretrace.actions.corrections import CorrectionCounts, LeastSure
    from foretrace.actions.taxonomy import StepLabel
    from foretrace.clean.scrub import ScrubReport
    from foretrace.engines.engine import Engine
    from foretrace.exports.base import TraceFormat
    from foretrace.exports.export_traces import ExportReport
    from foretrace.report.view import ViewReport
    from foretrace.rows.base import Rows
    from foretrace.sources.base import FileSource, Source
    from foretrace.sources.report import ImportReport


class LabelReport(Report, msgspec.Struct, frozen=True, kw_only=True):
    """Counts of what `label_folder` wrote."""

    traces: int
    steps: int
    nonsteps: int
    """Assistant messages that are not steps."""
    actions: dict[str, int]
    """Steps of each action, in the order of `ActionType`."""
    flags: dict[str, int]
    out: str | None
    """The file of labels; `None` if none was requested."""
    replaced: bool
    review: str | None = None
    """The file of unsure steps."""
    review_steps: int = 0
    corrections: CorrectionCounts | None = None


def import_source(
    source: str | Path | Source | FileSource = "auto",
    inputs: str | Path | Rows | Sequence[str | Path | Rows] = (),
    *,
    out: str | Path,
    split: str | None = None,
    revision: str | None = None,
    repo: str | None = None,
    limit: int | None = None,
    since: str | None = None,
    columns: Mapping[str, str] | None = None,
    license: str | None = None,
    call_pattern: str | None = None,
    replace: bool = False,
    shards: int | None = None,
    workers: int | None = None,
    engine: Literal["processes", "ray"] | Engine = "processes",
    ray_address: str | None = None,
    redact: bool = True,
    redact_emails: bool = False,
    redact_addresses: bool = False,
    progress: ProgressFunc | None = None,
) -> ImportReport:
    """Import raw rows or session files into the traces folder `out`, which is made if absent; an interrupted import
    goes on. It may lie in an object store, `s3://BUCKET/FOLDER` (docs/scale.md).

    Args:
        source: A source (`foretrace sources` lists them), source:split, module:Class, or auto. May be left out: auto.
        inputs: Files, folders or `Rows` objects; none reads the source's place on the Hub.
        out: Traces folder, made if absent.
        split: Split on the Hub.
        revision: Commit or branch on the Hub.
        repo: Another repository on the Hub, or a local dataset folder.
        limit: Read at most N rows of each input, or conversations of each source of session files.
        since: Leave out sessions that ended before this date, e.g. 2026-01-31.
        columns: Column, or path into objects, that holds a field, for the source chat: messages=turns.
        license: License of the rows, for chat.
        call_pattern: Regular expression of a call in the text, for chat: group `tool`, and one for each argument.
        replace: Replace stored traces of the same key whose content differs.
        shards: Number of files that a new traces folder is split into.
        workers: Processes that convert (1), or tasks of the cluster (all its cores); with more than one, call it under
            `if __name__ == "__main__":`.
        engine: Work in processes of this machine, or on a Ray cluster.
        ray_address: Ray cluster: auto or HOST:PORT (default: RAY_ADDRESS, else a Ray of this machine).
        redact: Take secrets and user names out before anything is written.
        redact_emails: Take e-mail addresses out too.
        redact_addresses: Take IP addresses out too.

    Returns:
        Counts: `rows == traces + replaced + grown + sum(drops) + before_since + already_done`. Files that no source
        knows are in `found`.

    Raises:
        UsageError: an option does not apply to the source.
        SourceError: the input cannot be read, or no source recognizes it.
        StoreError: `out` cannot be written.
    """
    return run_import(locals())[0]


def run_import(given: Mapping[str, Any]) -> tuple[ImportReport, str]:
    """`import_source` with its arguments as a mapping; also returns the name of the input."""
    from foretrace.clean.redact import make_redactor
    from foretrace.registry import open_inputs
    from foretrace.sources.importing import import_inputs

    def pick(names: str) -> dict[str, Any]:
        return {name: given[name] for name in names.split()}

    progress: ProgressFunc = given["progress"] or ignore_progress
    where = make_engine(given["engine"], given["workers"], given["ray_address"])
    hub, options = pick("split revision repo"), pick("columns license call_pattern")
    opened = open_inputs(**pick("source inputs since"), hub=hub, options=options, progress=progress)
    cleaner = make_redactor(given["redact"], emails=given["redact_emails"], addresses=given["redact_addresses"])
    progress(f"importing {opened.label}", 0, None)
    settings = pick("limit since replace shards")
    report = import_inputs(opened.groups, given["out"], **settings, engine=where, cleaner=cleaner, progress=progress)
    report.found = opened.found
    return report, opened.label


def scrub(
    traces: str | Path,
    *,
    out: str | Path,
    redact_emails: bool = False,
    redact_addresses: bool = False,
    progress: ProgressFunc | None = None,
) -> ScrubReport:
    """Copy a traces folder without the secrets and user names in its traces; the same call again goes on.

    Args:
        traces: Traces folder.
        out: Traces folder for the clean traces, made if absent.
        redact_emails: Take e-mail addresses out too.
        redact_addresses: Take IP addresses out too.

    Raises:
        UsageError: `out` is the folder itself.
        StoreError: one of the folders cannot be read or written.
    """
    from foretrace.clean.redact import Redactor, RedactSettings
    from foretrace.clean.scrub import scrub as run

    redactor = Redactor(RedactSettings(emails=redact_emails, addresses=redact_addresses))
    return run(make_local_path(traces), make_local_path(out), redactor, progress or ignore_progress)


def label(trace: Trace) -> list[StepLabel]:
    """One label for each assistant message of the trace: its action (None if it is not a step), rule, effect.

    Raises:
        UsageError: the argument is not a `Trace`.
    """
    from foretrace.actions.label_steps import label_trace

    if not isinstance(trace, Trace):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(f"label takes a Trace, not a {type(trace).__name__}; for a traces folder call label_folder")
    return label_trace(trace)


def label_folder(
    traces: str | Path,
    *,
    out: str | Path | None = None,
    review: str | Path | None = None,
    lowest: int = 200,
    corrections: str | Path | None = None,
    workers: int | None = None,
    engine: Literal["processes", "ray"] | Engine = "processes",
    ray_address: str | None = None,
    progress: ProgressFunc | None = None,
) -> LabelReport:
    """Label all traces of a folder, one row a step. Folder and files may lie in an object store (docs/scale.md).

    Args:
        traces: Traces folder.
        out: Labels: .parquet, .jsonl or .csv.
        review: Least sure steps, to edit: .csv or .jsonl.
        lowest: Steps of the review at most.
        corrections: Corrected actions, which take precedence: an edited review.
        workers: Processes that work at once (1), or tasks of the cluster (all its cores).
        engine: Work in processes of this machine, or on a Ray cluster.
        ray_address: Ray cluster: auto or HOST:PORT (default: RAY_ADDRESS, else a Ray of this machine).

    Raises:
        UsageError: a file has another extension or is in the traces folder, or there is none to write.
        SourceError, StoreError: the corrections or traces cannot be read, or a file cannot be written.
    """
    from foretrace.actions.corrections import LeastSure, read_corrections, write_review
    from foretrace.actions.label_table import make_label_tables, write_labels
    from foretrace.actions.taxonomy import ActionType
    from foretrace.objectstores.folders import open_file_for_writing, open_traces_for_reading

    where = make_engine(engine, workers, ray_address)
    _check_label_files(Path(traces), out, review)
    given = None if corrections is None else read_corrections(make_local_path(corrections))
    watch = progress or ignore_progress
    counts, done = _LabelCounts(LeastSure(0 if review is None else lowest)), 0
    with (
        open_file_for_writing(out) as labels,
        open_file_for_writing(review) as reviewed,
        open_traces_for_reading(traces, watch) as folder,
    ):
        store = TraceStore(folder)
        _check_sealed(store, out or review or "")
        total = len(store.read_columns("key"))

        def note_traces(number: int) -> None:
            nonlocal done
            done = number
            watch(f"labeling {write_place(traces)}", number, total)

        tables = map(counts.add, make_label_tables(folder, corrections=given, engine=where, report_traces=note_traces))
        if labels.path is not None:
            write_labels(tables, labels.path)
        else:
            deque(tables, maxlen=0)
        unsure = counts.least_sure.take()
        if reviewed.path is not None:
            write_review(unsure, store, reviewed.path)
        counted = None if given is None else given.count([store], counts.corrected)
        labels.publish()
        reviewed.publish()
    return LabelReport(
        traces=done,
        steps=counts.actions.total() - counts.actions[None],
        nonsteps=counts.actions[None],
        actions={str(action): counts.actions[str(action)] for action in ActionType},
        flags=dict(sorted(counts.flags.items())),
        out=None if out is None else write_place(out),
        replaced=labels.replaces,
        review=None if review is None else write_place(review),
        review_steps=len(unsure),
        corrections=counted,
    )


class _LabelCounts:
    """Counts the labels of tables that pass through."""

    def __init__(self, least_sure: LeastSure) -> None:
        self.actions, self.flags = Counter[str | None](), Counter[str]()
        self.corrected, self.least_sure = 0, least_sure

    def add(self, table: Any) -> Any:
        self.actions.update(table["action"].to_pylist())
        self.flags.update(rule for rules in table["flags"].to_pylist() for rule in rules)
        self.corrected += sum(table["corrected"].to_pylist())
        self.least_sure.add(table)
        return table


def _check_label_files(traces: Path, out: str | Path | None, review: str | Path | None) -> None:
    """Refuse files that labeling cannot write: none, wrong names, two that are one, or one in the traces folder."""
    from foretrace.actions.corrections import check_review_file
    from foretrace.actions.label_table import find_label_format

    files = [Path(file) for file in (out, review) if file is not None]
    if not files:
        raise UsageError("name a file to write: ", Setting("out", "labels.parquet"), " or ", Setting("review", "r.csv"))
    if len({file.absolute() for file in files}) < len(files):
        raise UsageError(f"{out}: all labels and the review cannot be one file")
    for file in files:
        refuse_inside_folder(file, traces)
    if out is not None:
        find_label_format(Path(out))
    if review is not None:
        check_review_file(Path(review))


def export(
    traces: str | Path,
    *,
    format: str | TraceFormat,
    out: str | Path,
    calls: Literal["verbatim", "native", "xml"] | None = None,
    progress: ProgressFunc | None = None,
) -> ExportReport:
    """Write the traces of a folder to `out` in a format that others read.

    Args:
        traces: Traces folder; for harbor-tasks a problem set: a name or NAME:FILE.
        format: One of: jsonl (whole traces), chat (OpenAI messages and tools, with the outcome), inline (one assistant
            message an attempt), openai (fine-tuning), sharegpt, verifiers_sft, otlp (OpenTelemetry spans); atif
            (Harbor's trajectories) and pi (Pi's sessions, which the Hub's viewer and the datasets library read) write
            a folder, a file for each trace; harbor-tasks writes problems as Harbor's task folders; or module:Class.
        out: File: .jsonl, or with .gz or .zst; a folder for atif, pi and harbor-tasks.
        calls: How chat, openai, sharegpt, verifiers_sft and pi write calls: verbatim (as the agent did in its text),
            native (apart from the text) or xml (<tool_call> blocks in the text). By default verbatim for generated
            traces, else native; sharegpt has no native calls.

    Raises:
        UsageError: there is no such format, or `out` or `calls` does not fit it.
        StoreError: the traces cannot be read, or `out` cannot be written.
        ProblemError: the problems cannot be read.
        ForetraceError: the format can represent none of the traces.
    """
    if format == "harbor-tasks":
        from foretrace.exports.harbor_tasks import write_tasks
        from foretrace.registry import load_usable_problems

        if calls is not None:
            raise UsageError(Setting("calls", calls), ": problems have no calls; leave it out")
        return write_tasks(load_usable_problems(str(traces), None, None), make_local_path(out))

    from foretrace.dataset.demonstration import is_demo_model
    from foretrace.exports.export_traces import check_calls, check_out, export_traces
    from foretrace.registry import make_format

    traces, out = make_local_path(traces), make_local_path(out)
    made = make_format(format) if isinstance(format, str) else format
    store = TraceStore(traces)
    refuse_inside_folder(out, traces, may_be_folder=made.suffix is not None)
    check_out(made, out)
    check_calls(made, calls)
    _check_sealed(store, out)
    report = export_traces(store, made, out, calls=calls, is_demo_model=is_demo_model, progress=progress)
    return msgspec.structs.replace(report, format=format if isinstance(format, str) else type(format).__name__)


def _check_sealed(store: TraceStore, out: str | Path) -> None:
    """Refuse to export a folder that an interrupted `generate` left without sealed traces."""

    if store.manifest.segments:
        return
    try:
        waiting = count_unsealed(store.folder) > 0
    except (StoreError, OSError):
        waiting = True
    if waiting or find_journals(store.folder):
        why = "none of its traces is sealed" if waiting else "holds no finished trace of its interrupted generate"
        raise StoreError(f"{store.folder}: {why}; {out} was not written")


def view(
    inputs: str | Path | Sequence[str | Path],
    *,
    out: str | Path | None = None,
    single: str | Path | None = None,
    tokenizer: str | Path | Any | None = None,
    progress: ProgressFunc | None = None,
) -> ViewReport:
    """Write a page that shows traces or a dataset in a browser, without server and network (docs/cli.md).

    Args:
        inputs: Traces folder, or two; or a dataset, its predictions, and results of score and replay.
        out: Folder for the page; what an earlier `view` wrote there is replaced.
        single: One file that can be mailed, in place of a folder; up to 20 MB of texts.
        tokenizer: Folder of a tokenizer, or the tokenizer itself: rows of a dataset are also shown as its chat template
            renders them, and what bears the loss is marked.

    Raises:
        BuildError: the folder has no tokenizer, or its chat template cannot show the rows.
        UsageError: both or neither of `out` and `single`, or inputs that do not belong together.
        StoreError: the inputs cannot be read, or the page cannot be written.
        PredictionError: a file of predictions cannot be read.
    """
    from foretrace.report.page import FolderPage, SinglePage
    from foretrace.report.view import write_view

    if (out is None) == (single is None):
        raise UsageError("name either ", Setting("out"), ", a folder, or ", Setting("single"), ", a file")
    folders = [make_local_path(each) for each in ([inputs] if isinstance(inputs, (str, Path)) else inputs)]
    place = make_local_path(out or single or "")
    tokenizer = make_local_path(tokenizer) if isinstance(tokenizer, (str, Path)) else tokenizer
    make_page = FolderPage if single is None else SinglePage
    return write_view(folders, lambda: make_page(place), progress or ignore_progress, tokenizer)
