"""Build a dataset of traces, or stream its rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from foretrace.api.settings import make_engine, pick_settings
from foretrace.core.errors import Setting, UsageError
from foretrace.core.places import make_local_path
from foretrace.core.progress import ProgressFunc, ignore_progress

if TYPE_CHECKING:
    from foretrace.dataset.build import BuildReport
    from foretrace.dataset.row_stream import RowStream
    from foretrace.dataset.settings import BuildSettings
    from foretrace.engines.engine import Engine


def build(
    traces: str | Path | Sequence[str | Path] | Callable[[], Sequence[str | Path]],
    *,
    out: str | Path,
    target: Literal["type", "call", "message"] = "call",
    outcomes: Literal["success", "not_failed", "all"] = "success",
    max_context_tokens: int = 8192,
    window: Literal["sliding", "blocks"] = "sliding",
    tokenizer: str | Path | None = None,
    split: Sequence[float] = (0.8, 0.1, 0.1),
    seed: int = 0,
    eval_size: int = 2000,
    weights: Mapping[str, float] | None = None,
    pairs: int = 4,
    recipes: Sequence[str] = (),
    statistical_gates: bool = True,
    allow_demo: bool = False,
    allow_unread: bool = False,
    keep_flagged: bool = False,
    dedup: Literal["keep-best"] | None = None,
    license_allow: Sequence[str] = (),
    license_deny: Sequence[str] = (),
    decontaminate: Sequence[str] = (),
    keep_contaminated: bool = False,
    corrections: str | Path | None = None,
    mistakes: str | Path | Sequence[str | Path] = (),
    allow_unchecked: bool = False,
    workers: int | None = None,
    engine: Literal["processes", "ray"] | Engine = "processes",
    ray_address: str | None = None,
    overwrite: bool = False,
    references: bool = False,
    progress: ProgressFunc | None = None,
) -> BuildReport:
    """Build a dataset from traces folders into the folder `out`, whole or not at all, with a page that shows it.

    Args:
        traces: Traces folders, or a function that makes them once the settings are found to be good.
        out: Dataset folder to write.
        target: What is predicted of the next action.
        outcomes: Whose steps are predicted, by how the attempt ended; `not_failed` takes unknown ones too.
        max_context_tokens: Longest prompt, in tokens; 1024 at least.
        window: How the history is cut: `blocks` lets a server reuse most of the prompt before.
        tokenizer: tokenizer.json, or a folder with one, to count tokens with; else UTF-8 bytes / 3.5.
        split: Shares of train, validation and test, by group.
        seed: Seed of all random choices.
        eval_size: Eval rows drawn as they occur (slice `natural`), at most.
        weights: Weight of a row by how its attempt ended (success, failed, unknown), for the column `weight`; else 1.
        pairs: Preference pairs of one kind that a trace may give: 0, or at least 2.
        recipes: Names of recipes, or `module:Class`; none builds all.
        statistical_gates: Measure the pair families.
        allow_demo: Take traces of the demo model: the dataset is a demonstration, and is never pushed.
        allow_unread: Take traces although calls in their text were not read.
        keep_flagged: Take successes although a step of theirs is flagged as a cheat.
        dedup: Of trajectories that are copies, keep the successful, then the shortest.
        license_allow: Take only traces of these licenses; `unknown` stands for those that name none.
        license_deny: Leave out traces of these licenses, and those that name none.
        decontaminate: Leave out problems of benchmarks: humaneval, mbpp, swebench, FILE or NAME=FILE.
        keep_contaminated: Only report such traces.
        corrections: Table of corrected actions, which take precedence: an edited review of `label`.
        mistakes: Files of predictions for this dataset's rows, whose wrong guesses give pairs too.
        allow_unchecked: Take predictions that do not say that no row's own answer was learned.
        workers: Processes that work at once (1), or tasks of the cluster (all its cores); the result is the same.
        engine: Work in processes of this machine, or on a Ray cluster.
        ray_address: Ray cluster: auto or HOST:PORT (default: RAY_ADDRESS, else a Ray of this machine).
        overwrite: Replace a dataset that is there.
        references: Add what free predictors reach on the eval rows, for `score`.

    Raises:
        UsageError: a setting is invalid; traces of the demo model without `allow_demo=True`.
        PredictionError: the mistakes cannot be read, or were made for other rows.
        BuildError: the dataset cannot be built, or already exists.
        GateError: a gate failed; nothing was written.
    """
    given = locals()
    from foretrace.dataset.build import build as run
    from foretrace.dataset.build import check_output
    from foretrace.objectstores.folders import open_dataset_for_writing, open_traces_for_reading
    from foretrace.report.view import write_dataset_report

    settings, report_to = make_build_settings(given), progress or ignore_progress
    if references and settings.target == "message":
        raise UsageError(Setting("references"), " needs actions to predict: build with ", Setting("target", "call"))
    where = make_engine(engine, workers, ray_address)
    with (
        open_dataset_for_writing(out, overwrite=overwrite, progress=report_to) as (folder, publish),
        ExitStack() as stack,
    ):
        check_output(folder, overwrite=overwrite)
        if engine == "ray":
            from foretrace.engines.ray_tasks import connect

            stack.enter_context(connect(ray_address))  # fails now if there is no cluster
        found = traces() if callable(traces) else traces
        places = [found] if isinstance(found, (str, Path)) else found
        folders = [stack.enter_context(open_traces_for_reading(place, report_to)) for place in places]
        report = run(folders, folder, settings, engine=where, overwrite=overwrite, progress=report_to)
        if references:
            from foretrace.api.evaluation import add_references

            add_references(folder, progress=report_to)
        write_dataset_report(folder)
        if publish is not None:
            publish()
    return report


def make_build_settings(given: Mapping[str, Any]) -> BuildSettings:
    """The checked settings of `build` from its arguments."""
    from foretrace.dataset.settings import BuildSettings

    mistakes = given.get("mistakes", ())
    paths = {name: str(given[name]) for name in ("tokenizer", "corrections") if given.get(name) is not None}
    files = [str(file) for file in ([mistakes] if isinstance(mistakes, (str, Path)) else mistakes)]
    settings = pick_settings(BuildSettings, given, **paths, mistakes=files)
    settings.check()
    return settings


_OF_LOAD = (
    *("target", "outcomes", "max_context_tokens", "window", "tokenizer", "seed", "recipes", "allow_demo"),
    *("keep_flagged", "dedup", "license_allow", "license_deny", "decontaminate", "keep_contaminated", "corrections"),
)


def load(
    traces: str | Path | Sequence[str | Path],
    config: str = "proposer",
    split: str = "train",
    *,
    shares: Sequence[float] = (0.8, 0.1, 0.1),
    **settings: Any,
) -> RowStream:
    """Rows of a dataset without building it: rendered from the traces while they are read.

    These are the rows that `build` writes with the same settings, in the same order, and as `datasets` shows them.
    Nothing is written and memory use is low, which helps if the disk is small, but no gates are run. Each iteration
    reads the traces again. The first one also reads the train groups, whose calls show which tools agents had if a
    source does not say so, and the splits that are held out further, whose prompts must not occur in a row.

    Args:
        config: `proposer` or `trajectories`, or a config of an external recipe; not one whose rows are chosen among
            all rows, such as `verifier` and `eval`.
        split: `train`, `validation` or `test`.
        shares: Shares of the splits, by group (`split` in `build`).
        settings: As in `build`: target, outcomes, max_context_tokens, window, tokenizer, seed, recipes, allow_demo,
            keep_flagged, dedup, license_allow, license_deny, decontaminate, keep_contaminated, corrections.

    Raises:
        UsageError: a setting is invalid; traces of the demo model without `allow_demo=True`.
        BuildError: there are no traces.
    """
    if unknown := [name for name in settings if name not in _OF_LOAD]:
        raise TypeError(f"load() got an unexpected keyword argument {unknown[0]!r}")
    checked = make_build_settings({**settings, "split": shares})
    from foretrace.dataset.row_stream import RowStream

    folders = [make_local_path(each) for each in ([traces] if isinstance(traces, (str, Path)) else traces)]
    return RowStream(folders, config, split, checked)
