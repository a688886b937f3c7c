"""Dataset files: write rows as Parquet, with each text stored once per window of rows.

Prompts of one attempt share their messages, so message texts are dictionary-encoded: a prompt is a list of indices into
the window's table of texts. Every reader sees plain strings.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
from array import array
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import msgspec

from foretrace.actions.taxonomy import ActionType
from foretrace.core.errors import BuildError
from foretrace.core.files import describe_write_error, make_own_name
from foretrace.core.message_columns import MessageColumn, list_text_columns, open_column
from foretrace.dataset.prompt_digests import Digests, digest_prompt, pack_digests
from foretrace.dataset.prompts import count_lengths, make_token_counter
from foretrace.dataset.recipes.base import ColumnType, Config, Row, RowGroup, load_configs
from foretrace.dataset.settings import BuildSettings

ACTIONS = [str(action) for action in ActionType]
_ACTION_INDEX = {action: index for index, action in enumerate(ACTIONS)}
WINDOW_BYTES = 2 << 20
"""Characters of distinct text after which a window is shuffled and written as a row group."""
WINDOW_ROWS = 4096
_COMPRESSION_LEVEL = 3
"""For zstd: level 6 makes files 8% smaller, and takes twice as long."""


def find_rank(seed: int, row: Row) -> str:
    """The position of a row in the shuffle."""
    state = hashlib.blake2b(f"{seed}\0{row.key}\0{row.step}\0{row.salt}".encode(), digest_size=8)
    return state.hexdigest()


class RowWindow:
    """Rows of one config that are shuffled and written together."""

    def __init__(self, config: Config, seed: int) -> None:
        self._config = config
        self._seed = seed
        self._rows: list[tuple[str, dict[str, Any]]] = []
        self._texts: set[str] = set()
        self._size = 0

    @property
    def is_full(self) -> bool:
        """Whether the rows should be taken before adding another one."""
        return self._size >= WINDOW_BYTES or len(self._rows) >= WINDOW_ROWS

    def add(self, row: Row) -> None:
        """Add a row, in any order."""
        values = dict(row.values)
        for name, kind in self._config.columns.items():
            if kind == "messages":
                new = {text for _, text in values[name]} - self._texts
                self._texts |= new
                self._size += sum(map(len, new))
            elif kind == "json_list":
                values[name] = [msgspec.json.encode(value).decode() for value in values[name]]
                self._size += sum(map(len, values[name]))  # each row has its own copy
        self._rows.append((find_rank(self._seed, row), values))

    def take(self) -> list[dict[str, Any]]:
        """Take the values of the rows in order of rank, with JSON values as text. The window is then empty."""
        self._rows.sort(key=lambda item: item[0])
        values = [values for _, values in self._rows]
        self._rows, self._texts, self._size = [], set(), 0
        return values


class TableWriter:
    """Writes one file of one config and split. The file is created by the first row.

    As a context manager it discards the file if the body raises. Otherwise the body must call `close`.
    """

    def __init__(self, path: Path, config: Config, seed: int) -> None:
        self.path = path
        self.rows = 0
        self._config = config
        self._window = RowWindow(config, seed)
        self._partial = path
        self._writer: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.discard()

    def add(self, row: Row) -> None:
        """Add a row, in any order within a window."""
        self._window.add(row)
        if self._window.is_full:
            self._flush()

    def _flush(self) -> None:
        import pyarrow.parquet as pq

        rows = self._window.take()
        if not rows:
            return
        table = make_table(self._config, rows)
        try:
            if self._writer is None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                options: dict[str, Any] = {
                    "compression": "zstd",
                    "compression_level": _COMPRESSION_LEVEL,
                    "store_schema": False,
                    "write_page_index": True,
                    "dictionary_pagesize_limit": 256 << 20,
                }
                self._partial = make_own_name(self.path)
                self._writer = pq.ParquetWriter(self._partial, table.schema, **options)
            self._writer.write_table(table)
        except OSError as error:
            self.discard()
            raise BuildError(describe_write_error(self.path, error)) from error
        self.rows += len(rows)

    def close(self) -> int:
        """Write the remaining rows, and return the number of rows in the file."""
        self._flush()
        if self._writer is not None:
            features = {name: _FEATURES[kind] for name, kind in self._config.columns.items()}
            try:
                self._writer.add_key_value_metadata({"huggingface": json.dumps({"info": {"features": features}})})
                self._writer.close()
                self._partial.replace(self.path)
            except OSError as error:
                self.discard()
                raise BuildError(describe_write_error(self.path, error)) from error
        return self.rows

    def discard(self) -> None:
        """Leave the file unfinished; nothing is raised or printed, now or when the object is collected."""
        writer, self._writer = self._writer, None
        if writer is None:
            return
        writer.is_open = False  # otherwise its destructor writes the footer, and prints a traceback if it cannot
        with contextlib.suppress(OSError):
            if writer.file_handle is not None:
                writer.file_handle.close()
        with contextlib.suppress(OSError):
            self._partial.unlink(missing_ok=True)


def make_table(config: Config, rows: list[dict[str, Any]]) -> Any:
    """An Arrow table of the rows' values, in the config's columns."""
    import pyarrow as pa

    arrays = [_make_array(kind, [values[name] for values in rows]) for name, kind in config.columns.items()]
    return pa.table(arrays, names=list(config.columns))


_ACTION = {"names": ACTIONS, "_type": "ClassLabel"}
_TEXT = {"dtype": "string", "_type": "Value"}
_FEATURES: dict[ColumnType, dict[str, Any]] = {
    "string": _TEXT,
    "strings": {"feature": _TEXT, "_type": "List"},
    "int": {"dtype": "int32", "_type": "Value"},
    "float": {"dtype": "float64", "_type": "Value"},
    "bool": {"dtype": "bool", "_type": "Value"},
    "action": _ACTION,
    "actions": {"feature": _ACTION, "_type": "List"},
    "messages": {"feature": {"role": _TEXT, "content": _TEXT}, "_type": "List"},
    "json_list": {"feature": {"_type": "Json"}, "_type": "List"},
}
"""The features of columns, as the `datasets` library stores them in a Parquet file."""


def _make_array(kind: ColumnType, values: list[Any]) -> Any:
    import pyarrow as pa

    if kind == "messages":
        return _make_message_array(values)
    if kind == "json_list":
        # Not `cast`, which imports pyarrow.compute (0.1 s).
        lists: Any = pa.array(values, pa.list_(pa.string()))
        return pa.ListArray.from_arrays(lists.offsets, pa.ExtensionArray.from_storage(pa.json_(), lists.values))
    if kind == "action":
        values = [_ACTION_INDEX[v] for v in values]
    elif kind == "actions":
        values = [[_ACTION_INDEX[v] for v in items] for items in values]
    feature = _FEATURES[kind]
    item = pa.type_for_alias(feature.get("feature", feature).get("dtype", "int64"))
    return pa.array(values, pa.list_(item) if "feature" in feature else item)


class _Numbers(dict[str, int]):
    """Numbers texts in the order of first use."""

    def __missing__(self, text: str) -> int:
        number = self[text] = len(self)
        return number


def _make_message_array(values: list[Sequence[tuple[str, str]]]) -> Any:
    import numpy as np
    import pyarrow as pa

    texts, roles = _Numbers(), _Numbers()
    text_at, role_at = array("i"), array("i")
    for messages in values:
        if messages:
            own_roles, own_texts = zip(*messages, strict=True)
            role_at.extend(map(roles.__getitem__, own_roles))
            text_at.extend(map(texts.__getitem__, own_texts))
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum([len(messages) for messages in values], out=offsets[1:])
    struct = pa.StructArray.from_arrays(
        [
            pa.DictionaryArray.from_arrays(np.frombuffer(at, np.int32), pa.array(list(numbers), pa.string()))
            for at, numbers in ((role_at, roles), (text_at, texts))
        ],
        names=["role", "content"],
    )
    return pa.ListArray.from_arrays(pa.array(offsets), struct)


def read_groups(path: Path, config: Config, names: Sequence[str] | None = None) -> Iterator[RowGroup]:
    """Read a file of `TableWriter` by row group, with these columns or all of them."""
    import pyarrow.parquet as pq

    names = list(config.columns) if names is None else names
    nested = [name for name in names if config.columns[name] == "messages"]
    with pq.ParquetFile(path, read_dictionary=list_text_columns(nested)) as file:
        for index in range(file.num_row_groups):
            yield _make_group(file.read_row_group(index, columns=[*names], use_threads=False), config)


def _make_group(table: Any, config: Config) -> RowGroup:
    @functools.cache
    def open_messages(name: str) -> list[MessageColumn]:
        return open_column(table[name])

    @functools.cache
    def read(name: str) -> list[Any]:
        if config.columns[name] == "messages":
            return [row for chunk in open_messages(name) for row in chunk.read()]
        return read_values(config.columns[name], table[name].to_pylist())

    return RowGroup(read, open_messages)


def read_rows(path: Path, config: Config) -> Iterator[dict[str, Any]]:
    for group in read_groups(path, config):
        for values in zip(*map(group.read, config.columns), strict=True):
            yield dict(zip(config.columns, values, strict=True))


def read_values(kind: ColumnType, values: list[Any]) -> list[Any]:
    """The values of a plain column as the recipe gave them."""
    if kind == "action":
        return [ACTIONS[v] for v in values]
    if kind == "actions":
        return [[ACTIONS[v] for v in items] for items in values]
    if kind == "json_list":
        return [[msgspec.json.decode(text) for text in items] for items in values]
    return values


class SelectionResult(msgspec.Struct, frozen=True):
    rows: int
    prompts: Digests
    prompt_tokens: Counter[int]
    """Rows by length of the prompt (`count_lengths`)."""


def write_selected(name: str, candidates: Sequence[Path], path: Path, settings: BuildSettings) -> SelectionResult:
    """Write the rows chosen by the selector of the config `name` to the file `path`, unless there are none."""
    config = load_configs(settings.recipes)[name]
    assert config.selector is not None
    selector = config.selector(settings)
    for file in candidates:
        for values in read_rows(file, config):
            selector.add(config.make_row(values))
    chosen = list(selector.select(final=True))
    with TableWriter(path, config, settings.seed) as writer:
        for row in chosen:
            writer.add(row)
        writer.close()
    count = functools.cache(make_token_counter(settings.tokenizer).count_message)
    lengths = count_lengths(sum(count(text) for _, text in row.values["prompt"]) for row in chosen)
    return SelectionResult(len(chosen), pack_digests({digest_prompt(row.values["prompt"]) for row in chosen}), lengths)


def remove_families(path: Path, config: Config, families: Collection[str], seed: int) -> int:
    """Rewrite a file of pairs without some families, or remove it if no rows remain; returns the number of rows."""
    with TableWriter(path, config, seed) as writer:
        for values in read_rows(path, config):
            if values["family"] not in families:
                writer.add(config.make_row(values))
        rows = writer.close()
    if not rows:
        path.unlink()
    return rows
