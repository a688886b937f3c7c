"""Rows of a built dataset, for what learns from them or is measured on them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from foretrace.actions.taxonomy import ActionType
from foretrace.core.errors import PredictionError
from foretrace.core.message_columns import ChatText, list_text_columns, read_messages
from foretrace.core.predictions import PredictedCall, find_first_object, read_calls

_COLUMNS = ("key", "step", "group", "action", "prompt", "completion")
_ACTIONS = tuple(map(str, ActionType))


class DatasetRow(NamedTuple):
    """One step of a dataset: the prompt, and what the agent did."""

    key: str
    step: int
    group: str
    prompt: tuple[ChatText, ...]
    action: str
    calls: tuple[PredictedCall, ...]
    """Empty where the step calls no tool, and where the dataset's target is the type alone."""


def read_rows(dataset: Path, config: str, split: str) -> list[DatasetRow]:
    """Rows of one config and split, in the order of the files; messages that rows share are one object.

    Raises:
        PredictionError: a file that cannot be read.
    """
    rows: list[DatasetRow] = []
    for path in sorted((dataset / config).glob(f"{split}-*.parquet")):
        rows.extend(_read_file(path))
    return rows


def _read_file(path: Path) -> Iterator[DatasetRow]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path, read_dictionary=list_text_columns(["prompt", "completion"])) as file:
            for index in range(file.num_row_groups):
                yield from _make_rows(file.read_row_group(index, columns=[*_COLUMNS], use_threads=False))
    except (OSError, pa.ArrowException, KeyError) as error:
        raise PredictionError(f"{path}: cannot be read as rows of a dataset: {error}") from None


def _make_rows(table: Any) -> Iterator[DatasetRow]:
    prompts, completions = read_messages(table["prompt"]), read_messages(table["completion"])
    plain = (table[name].to_pylist() for name in ("key", "step", "group", "action"))
    for key, step, group, action, prompt, completion in zip(*plain, prompts, completions, strict=True):
        guess = find_first_object(completion[0].content) if completion else None
        calls = read_calls(guess) if isinstance(guess, dict) else ()
        yield DatasetRow(key, step, group, tuple(prompt), _ACTIONS[action], calls)
