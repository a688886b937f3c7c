"""Rows of a built dataset: what predictors learn from, and what the agent did where predictions are measured."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from foretrace.actions.taxonomy import ActionType
from foretrace.core.errors import PredictionError, Setting, find_first_line
from foretrace.core.message_columns import ChatText, list_text_columns, read_messages
from foretrace.core.predictions import PredictedCall, digest_dataset, find_first_object, read_predicted_calls

ACTIONS = [str(action) for action in ActionType]
"""Action types in the order of the datasets' `ClassLabel`."""
RowKind = Literal["eval", "proposer", "validation"]
"""Rows that are predicted: eval rows; train rows of `proposer`; validation rows of `proposer`."""
PLACES: dict[RowKind, tuple[str, str]] = {
    "eval": ("eval", "test"),
    "proposer": ("proposer", "train"),
    "validation": ("proposer", "validation"),
}
"""Config and split of the rows."""
NO_ROWS: dict[RowKind, str] = {
    "eval": "eval rows; build it with an eval config and test groups",
    "proposer": "proposer rows to learn from; build it with the recipe proposer",
    "validation": "validation rows of `proposer`; build it with validation groups",
}
"""What the error says if there are none."""
_LEARNED_COLUMNS = ["key", "step", "group", "action", "prompt", "completion"]
_GOLD_COLUMNS = ("key", "step", "task", "group", "source", "action", "tool", "effect", "completion")
_BATCH = 256
"""Rows in memory at a time; prompts are long."""


class DatasetRow(NamedTuple):
    """One step of a dataset: the prompt, and what the agent did."""

    key: str
    step: int
    group: str
    prompt: tuple[ChatText, ...]
    action: str
    calls: tuple[PredictedCall, ...]
    """Empty if the step calls no tool or if the dataset's target is only the type."""


class GoldStep(NamedTuple):
    """What the agent did at a step, without the prompt."""

    key: str
    step: int
    task: str
    group: str
    source: str
    action: str
    tool: str
    """Name of the first tool called; empty without a call."""
    calls: tuple[PredictedCall, ...]
    """The calls to predict; empty in a dataset of types."""
    effect: str
    next_actions: tuple[str, ...]
    """Actions of this step and the next few; empty if the rows do not say."""
    slices: tuple[str, ...]


def read_target(dataset: Path) -> str:
    """What the dataset's completions contain, according to its manifest: `type` or `call`.

    Raises:
        PredictionError: it is not a dataset, or its completions are messages.
    """
    if dataset.is_file():
        raise PredictionError(f"{dataset}: is a file; the predictions come first, then the folder that `build` wrote")
    try:
        manifest = msgspec.json.decode((dataset / "manifest.json").read_bytes())
        target = str(manifest["settings"]["target"])
    except (OSError, msgspec.DecodeError, KeyError, TypeError):
        raise PredictionError(f"{dataset}: is not a foretrace dataset; name the folder that `build` wrote") from None
    if target == "message":
        message, call = Setting("target", "message"), Setting("target", "call")
        raise PredictionError(f"{dataset}: was built with ", message, "; build with ", call, " to predict actions")
    return target


def check_fit(
    path: str,
    made_for: str,
    dataset: Path,
    given: Collection[tuple[Any, ...]],
    known: Collection[tuple[Any, ...]],
    rows: str,
    *,
    allow_partial: bool | None = None,
    allow_other_version: bool = False,
) -> int:
    """Refuse a file that was made for another version of a dataset (`made_for`: the digest in its header), or of which
    most is for rows that it does not have. Returns the number of `given` rows (key and step first) that are not
    `known`.

    Args:
        rows: The kind of these rows: `eval rows`.
        allow_partial: Accept it even if most is for other rows; None where no setting allows that.
        allow_other_version: Accept it whatever it was made for.

    Raises:
        PredictionError: the file is refused.
    """
    if made_for and made_for != digest_dataset(dataset) and not allow_other_version:
        raise PredictionError(
            f"{path}: was made for another dataset, or another version of {dataset}: make it again, or ",
            Setting("allow_other_version", True),
            " takes what fits",
        )
    unknown = [place for place in given if place not in known]
    if 2 * len(unknown) > len(given) and not allow_partial:
        key, step = unknown[0][:2]
        others = () if allow_partial is None else (", or ", Setting("allow_partial", True), " scores the others")
        raise PredictionError(
            f"{path}: {len(unknown):,} of {len(given):,} steps are not among the {rows} of {dataset}, e.g. key "
            f"{key!r} step {step}: copy key and step from the rows, or name the dataset that it is for",
            *others,
        )
    return len(unknown)


def read_rows(dataset: Path, config: str, split: str) -> list[DatasetRow]:
    """Rows of one config and split, in file order; rows share equal messages as one object."""
    rows: list[DatasetRow] = []
    for path in _list_files(dataset, config, split):
        with _open(path, _LEARNED_COLUMNS, read_dictionary=list_text_columns(["prompt", "completion"])) as file:
            for index in range(file.num_row_groups):
                rows += _make_rows(file.read_row_group(index, columns=_LEARNED_COLUMNS, use_threads=False))
    return rows


def read_rows_of_kind(dataset: Path, kind: RowKind) -> list[DatasetRow]:
    """All rows of a kind, in file order; raises a PredictionError if there are none."""
    rows = read_rows(dataset, *PLACES[kind])
    if not rows:
        raise PredictionError(f"{dataset}: has no {NO_ROWS[kind]}")
    return rows


def _make_rows(table: Any) -> Iterator[DatasetRow]:
    prompts, completions = read_messages(table["prompt"]), read_messages(table["completion"])
    plain = (table[name].to_pylist() for name in ("key", "step", "group", "action"))
    for key, step, group, action, prompt, completion in zip(*plain, prompts, completions, strict=True):
        calls = read_target_calls(completion[0].content) if completion else ()
        yield DatasetRow(key, step, group, tuple(prompt), ACTIONS[action], calls)


def read_gold_steps(dataset: Path, target: str, kind: Literal["eval", "validation"]) -> list[GoldStep]:
    """What the agents did at the eval rows, or at the `proposer` rows of the split `validation`, by key and step;
    raises a PredictionError if there are none."""
    more = ("next_actions", "natural", "balanced") if kind == "eval" else ()
    config, split = PLACES[kind]
    steps: list[GoldStep] = []
    for row in read_columns(dataset, config, split, (*_GOLD_COLUMNS, *more)):
        plain = {name: row[name] for name in ("key", "step", "task", "group", "source", "tool", "effect")}
        step = GoldStep(
            **plain,
            action=ACTIONS[row["action"]],
            calls=read_target_calls(row["completion"][0]["content"]) if target == "call" else (),
            next_actions=tuple(ACTIONS[action] for action in row.get("next_actions", ())),
            slices=tuple(name for name in ("natural", "balanced") if row.get(name)),
        )
        steps.append(step)
    if not steps:
        raise PredictionError(f"{dataset}: has no {NO_ROWS[kind]}")
    return sorted(steps, key=lambda step: step[:2])


def read_target_calls(text: str) -> tuple[PredictedCall, ...]:
    target = find_first_object(text)
    return read_predicted_calls(target) if isinstance(target, dict) else ()


def read_columns(dataset: Path, config: str, split: str, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Rows of a config and split (`*` for all) with these columns; actions are indexes into `ACTIONS`."""
    for path in _list_files(dataset, config, split):
        with _open(path, columns) as file:
            for batch in file.iter_batches(_BATCH, columns=[*columns], use_threads=False):
                yield from batch.to_pylist()


def _list_files(dataset: Path, config: str, split: str) -> list[Path]:
    return sorted((dataset / config).glob(f"{split}-*.parquet"))


@contextlib.contextmanager
def _open(path: Path, columns: Sequence[str], **options: Any) -> Generator[Any]:
    """Open a Parquet file that has these columns; failures to read it become a `PredictionError`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path, **options) as file:
            if missing := {*columns} - {*file.schema_arrow.names}:
                raise PredictionError(f"{path}: has no column {', '.join(sorted(missing))}; build the dataset again")
            yield file
    except (OSError, pa.ArrowException) as error:
        raise PredictionError(f"{path}: cannot be read: {find_first_line(error)}") from None
