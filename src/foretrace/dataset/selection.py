"""The finishing pass of a config with a selector: the rows that stay, out of the candidates of all shard jobs.

It is in three steps, so that no more than one window of rows is in memory: choose by the plain columns, copy what was
chosen into a file, and read that in the order of the ranks.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from foretrace.dataset.parquet import WINDOW_ROWS, TableWriter, read_rows
from foretrace.dataset.prompt_digests import Digests, digest_prompt, pack_digests
from foretrace.dataset.recipes.base import Config, Row
from foretrace.dataset.recipes.load import load_configs
from foretrace.dataset.settings import BuildSettings


class SelectionResult(msgspec.Struct, frozen=True):
    """What was written."""

    rows: int
    prompts: Digests
    """Digests of the prompts of the rows."""


def write_selected(name: str, candidates: Sequence[Path], path: Path, settings: BuildSettings) -> SelectionResult:
    """Write the rows that the selector of the config `name` chooses to the file `path`; without such rows, no file is
    made."""
    config = load_configs(settings.recipes)[name]
    assert config.selector is not None
    selector = config.selector(settings)
    plain = [name for name, kind in config.columns.items() if kind not in ("messages", "trajectory")]
    for file in candidates:
        for values in read_rows(file, config, plain):
            selector.add(config.make_row(values))
    chosen = {row[:4]: row for row in selector.select(final=True)}
    prompts: set[bytes] = set()
    with TableWriter(path, config, settings.seed) as writer:
        for values in _sort_on_disk(config, candidates, chosen, path):
            prompts.add(digest_prompt(values["prompt"]))
            writer.add(config.make_row(values))
        return SelectionResult(writer.close(), pack_digests(prompts))


def _sort_on_disk(
    config: Config, candidates: Sequence[Path], chosen: dict[tuple[str, str, int, str], Row], path: Path
) -> Iterator[dict[str, Any]]:
    """The values of the chosen rows, in the order of `chosen`."""
    encode, decode = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder().decode
    places: dict[tuple[str, str, int, str], tuple[int, int]] = {}
    with tempfile.TemporaryFile(dir=path.parent.parent) as file:
        for candidate in candidates:
            for values in read_rows(candidate, config):
                identity = config.make_row(values)[:4]
                if identity in chosen:
                    data = encode(values | chosen[identity].values)
                    places[identity] = (file.tell(), len(data))
                    file.write(data)
        texts: dict[str, str] = {}
        for identity in chosen:
            begin, size = places[identity]
            file.seek(begin)
            yield _share_texts(decode(file.read(size)), config, texts)


def _share_texts(values: dict[str, Any], config: Config, texts: dict[str, str]) -> dict[str, Any]:
    """The values with one object for equal texts of messages: rows of one task share most of them."""
    if len(texts) > WINDOW_ROWS:
        texts.clear()
    for name, kind in config.columns.items():
        if kind == "messages":
            values[name] = [(role, texts.setdefault(text, text)) for role, text in values[name]]
    return values
