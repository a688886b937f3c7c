"""Build a dataset of traces, and push it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretrace.api.settings import pick_settings
from foretrace.core.errors import Setting, UsageError
from foretrace.core.places import make_local_path

if TYPE_CHECKING:
    from foretrace.api.engines import EngineName
    from foretrace.core.progress import ProgressFunc
    from foretrace.dataset.build import BuildReport
    from foretrace.dataset.push import PushReport
    from foretrace.dataset.row_stream import RowStream
    from foretrace.dataset.settings import Dedup, Outcomes, TargetFormat, Window
    from foretrace.engines.engine import Engine


def build(
    traces: str | Path | Sequence[str | Path],
    *,
    out: str | Path,
    target: TargetFormat = "call",
    outcomes: Outcomes = "success",
    max_context_tokens: int = 8192,
    window: Window = "sliding",
    tokenizer: str | Path | None = None,
    split: Sequence[float] = (0.8, 0.1, 0.1),
    seed: int = 0,
    eval_size: int = 2000,
    pairs: int = 4,
    recipes: Sequence[str] = (),
    statistical_gates: bool = True,
    allow_demo: bool = False,
    allow_unread: bool = False,
    keep_flagged: bool = False,
    dedup: Dedup | None = None,
    license_allow: Sequence[str] = (),
    license_deny: Sequence[str] = (),
    decontaminate: Sequence[str] = (),
    keep_contaminated: bool = False,
    corrections: str | Path | None = None,
    mistakes: str | Path | Sequence[str | Path] = (),
    allow_unchecked: bool = False,
    workers: int | None = None,
    engine: EngineName | Engine = "processes",
    ray_address: str | None = None,
    overwrite: bool = False,
    references: bool = False,
    progress: ProgressFunc | None = None,
) -> BuildReport:
    """Build a dataset from traces folders into the folder `out`, whole or not at all, with a page that shows it.

    Args:
        target: What a proposer predicts: `type`, `call` or `message`.
        outcomes: Whose steps are targets: `success`, `not_failed` (unknown too) or `all`.
        max_context_tokens: Longest prompt, 1024 at least.
        window: How the history of a prompt is cut: `sliding` or `blocks` (docs/data-format.md).
        tokenizer: `tokenizer.json` (or a folder with one) to count with; None counts UTF-8 bytes / 3.5.
        split: Shares of train, validation and test, by group.
        eval_size: Rows of the natural eval slice at most.
        pairs: Pairs of a family that one trace may give: 0, or at least 2.
        recipes: Names of recipes, or `module:Class`; empty builds all.
        allow_demo: Take traces of the demo model: the dataset is a demonstration, and is never pushed.
        allow_unread: Take traces although calls in their text were not read.
        keep_flagged: Take successes although a step of theirs is flagged as a cheat (docs/cleaning.md).
        dedup: `keep-best` keeps of trajectories that are copies the successful, then the shortest (docs/cleaning.md).
        license_allow: Take traces of these licenses alone; `unknown` stands for those that name none.
        license_deny: Leave out traces of these licenses, and those that name none.
        decontaminate: Leave out traces that hold problems of these benchmarks: `humaneval`, `mbpp`, `swebench`, or
            files with problems or ids (`FILE`, `NAME=FILE`; docs/cleaning.md).
        keep_contaminated: Only report such traces.
        corrections: Table of a person's actions for steps (`label_folder`), which win.
        mistakes: Files of predictions for this dataset's rows, whose wrong guesses give pairs of the family `proposer`
            (docs/build.md).
        allow_unchecked: Take predictions that do not say that no row's own answer was learnt.
        workers: Processes that work at once (1), or tasks of the cluster (all its cores); the result is the same.
        engine: Where the work is done: `processes` of this machine, or `ray`, a cluster (docs/scale.md).
        ray_address: Of the cluster; None is that of RAY_ADDRESS, or a Ray of this machine alone.
        overwrite: Replace a dataset that is there.
        references: Write what free predictors reach on the eval rows into dataset and card (docs/speculation.md).

    Raises:
        UsageError: a setting that cannot be served; traces of the demo model without `allow_demo=True`.
        PredictionError: mistakes that cannot be read, or that were made for other rows.
        BuildError: the dataset cannot be built, or is there already.
        GateError: a gate failed; nothing was written.
    """
    given = locals()
    from foretrace.api.engines import make_engine
    from foretrace.core.progress import ignore_progress
    from foretrace.dataset.build import build as run
    from foretrace.dataset.settings import BuildSettings
    from foretrace.objectstores.dataset import open_dataset_for_writing
    from foretrace.objectstores.traces import open_traces_for_reading
    from foretrace.report.view import write_dataset_report

    settings = pick_settings(
        BuildSettings,
        given,
        tokenizer=None if tokenizer is None else str(tokenizer),
        corrections=None if corrections is None else str(corrections),
        mistakes=[str(file) for file in ([mistakes] if isinstance(mistakes, (str, Path)) else mistakes)],
    )
    settings.check()
    where = make_engine(engine, workers, ray_address)
    if references:
        check_references(target)
    with (
        open_dataset_for_writing(out, overwrite=overwrite, progress=progress or ignore_progress) as (folder, publish),
        ExitStack() as stack,
    ):
        places = [traces] if isinstance(traces, (str, Path)) else traces
        folders = [stack.enter_context(open_traces_for_reading(place, progress or ignore_progress)) for place in places]
        report = run(folders, folder, settings, engine=where, overwrite=overwrite, progress=progress)
        if references:
            from foretrace.api.scoring import add_references

            add_references(folder, progress=progress)
        write_dataset_report(folder)
        publish()
    return report


def check_references(target: str) -> None:
    """Refuse references, before any work is done, for a dataset that has no actions to predict.

    Raises:
        UsageError: its target is `message`.
    """
    if target == "message":
        raise UsageError(Setting("references"), " needs actions to predict: build with ", Setting("target", "call"))


def load(
    traces: str | Path | Sequence[str | Path],
    config: str = "proposer",
    split: str = "train",
    *,
    target: TargetFormat = "call",
    outcomes: Outcomes = "success",
    max_context_tokens: int = 8192,
    window: Window = "sliding",
    tokenizer: str | Path | None = None,
    shares: Sequence[float] = (0.8, 0.1, 0.1),
    seed: int = 0,
    recipes: Sequence[str] = (),
    allow_demo: bool = False,
    keep_flagged: bool = False,
    dedup: Dedup | None = None,
    license_allow: Sequence[str] = (),
    license_deny: Sequence[str] = (),
    decontaminate: Sequence[str] = (),
    keep_contaminated: bool = False,
    corrections: str | Path | None = None,
) -> RowStream:
    """Rows of a dataset without building it: rendered from the traces while they are read.

    They are those that `build` writes with the same settings, in the same order, and as `datasets` shows them. Nothing
    is written and little is held, so that is for where the disk is small; but no gate is run. Each iteration reads the
    traces again. The first also reads the train groups, whose calls tell what agents were offered where a source does
    not say so, and the splits that are held out more, whose prompts a row may not have.

    Args:
        config: `proposer` or `trajectories`, or one of a recipe from outside; not one whose rows are chosen among all
            rows, as those of `verifier` and `eval` are.
        split: `train`, `validation` or `test`.
        shares: Shares of the splits, by group: what `build` calls `split`.
        dedup: `keep-best` keeps of trajectories that are copies the successful, then the shortest.
        keep_flagged, dedup, license_allow, license_deny, decontaminate, keep_contaminated: Which traces are left out,
            as in `build`.
        corrections: Table of a person's actions for steps (`label_folder`), which win.

    Raises:
        UsageError: a setting that cannot be served; traces of the demo model without `allow_demo=True`.
        BuildError: there are no traces.
    """
    given = locals()
    from foretrace.dataset.row_stream import RowStream
    from foretrace.dataset.settings import BuildSettings

    folders = [make_local_path(each) for each in ([traces] if isinstance(traces, (str, Path)) else traces)]
    settings = pick_settings(
        BuildSettings,
        given,
        split=shares,
        tokenizer=None if tokenizer is None else str(tokenizer),
        corrections=None if corrections is None else str(corrections),
    )
    return RowStream(folders, config, split, settings)


def push(
    dataset: str | Path,
    *,
    org: str,
    name: str | None = None,
    private: bool = False,
    dry_run: bool = False,
    allow_undecided: bool = False,
    token: str | None = None,
    progress: Callable[[str], None] | None = None,
) -> PushReport:
    """Push a built dataset to up to four dataset repositories of `org` on the Hugging Face Hub.

    Args:
        org: Organisation or user.
        name: What the names of the repositories begin with; two datasets of one organisation need two.
        private: Make new repositories private.
        dry_run: Only say what would be sent; needs no token and no network.
        allow_undecided: Push although a gate had too few rows to decide.
        token: Token of the Hub; None finds it as huggingface_hub does (HF_TOKEN, then the stored login).

    Raises:
        UsageError: `org` or `name` cannot be a name on the Hub.
        PushError: no built dataset, traces of the demo model in it, a gate in the way, no access, or the Hub failed.
    """
    from foretrace.dataset.push import push as run

    options: dict[str, Any] = {} if name is None else {"name": name}
    return run(
        make_local_path(dataset),
        org,
        **options,
        private=private,
        dry_run=dry_run,
        allow_undecided=allow_undecided,
        token=token,
        progress=progress or (lambda line: None),
    )
