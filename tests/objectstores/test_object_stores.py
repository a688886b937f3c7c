"""Folders in a store, here in fsspec's memory; a real S3 server, with faults: tests/integrations."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import foretrace
from foretrace.core import segments
from foretrace.core.errors import BuildError, StoreError, UsageError
from foretrace.core.places import Address
from foretrace.objectstores.folders import (
    make_scratch,
    open_dataset_for_writing,
    open_traces_for_reading,
    open_traces_for_writing,
)
from foretrace.objectstores.objects import open_objects
from foretrace.rows.files import FileRows
from foretrace.sources import taking
from foretrace.sources.importing import import_rows
from foretrace.sources.swe_smith import SweSmith
from integrations.stores import read_files, read_objects
from sources.raw_rows import swe_rows, write_jsonl


@pytest.fixture
def place() -> Iterator[str]:
    fsspec: Any = pytest.importorskip("fsspec")
    yield "memory://bucket/t"
    fsspec.filesystem("memory").rm("/", recursive=True)


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> FileRows:
    return FileRows(write_jsonl(tmp_path_factory.mktemp("rows") / "r.jsonl", swe_rows(24)))


def test_a_name_that_would_lead_out_of_the_local_folder_is_refused() -> None:
    with (
        pytest.raises(UsageError, match=re.escape("s3://b/../x: has an empty part")),
        make_scratch(Address("s3", "b/../x")),
    ):
        pass


def test_errors_name_the_address_and_not_the_local_copy(place: str) -> None:
    open_objects(Address("memory", "bucket/t")).put("manifest.json", b"{", instead_of=None)
    with pytest.raises(StoreError, match=re.escape(f"{place}/manifest.json: is damaged")):
        foretrace.label_folder(place, out=f"{place}.csv")


def test_import_label_and_build_give_the_files_of_a_local_folder(
    place: str, rows: FileRows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(taking, "CHECKPOINT_ROWS", 8)
    monkeypatch.setattr(segments, "MAX_UNMERGED", 0)
    settings: dict[str, Any] = {"outcomes": "all", "statistical_gates": False}
    for out in (tmp_path / "t", place):
        import_rows(SweSmith(), [rows], out)
        labeled = foretrace.label_folder(out, out=f"{out}-labels.jsonl")
        assert labeled.out == f"{out}-labels.jsonl"
        foretrace.build(out, out=f"{out}-dataset", **settings)
    for name in ("t", "t-dataset"):
        assert read_objects(open_objects(Address("memory", "bucket")), name) == read_files(tmp_path / name)
    labels = open_objects(Address("memory", "bucket")).get("t-labels.jsonl")
    assert labels is not None and labels.data == (tmp_path / "t-labels.jsonl").read_bytes()
    with pytest.raises(BuildError, match="in a store a dataset is not overwritten"):
        foretrace.build(place, out=f"{place}-dataset", overwrite=True, **settings)


def test_of_two_that_build_into_one_folder_the_later_one_wins(place: str) -> None:
    objects = open_objects(Address("memory", "bucket/t"))
    with (
        open_dataset_for_writing(place) as (first, publish_first),
        open_dataset_for_writing(place) as (second, publish),
    ):
        for folder in (first, second):
            folder.mkdir(parents=True)
            (folder / "README.md").write_text("card")
            (folder / "manifest.json").write_text(f'{{"of": "{folder == second}"}}')
        with pytest.raises(StoreError, match="another process has written it, so this one stops; build into another"):
            publish_first()
        publish()
    assert objects.get("manifest.json").data == b'{"of": "True"}'  # type: ignore[union-attr]


@pytest.mark.parametrize("limit", [3, None])
def test_what_a_killed_writer_left_is_removed_and_it_cannot_list_it_any_more(
    place: str, rows: FileRows, tmp_path: Path, limit: int | None
) -> None:
    objects = open_objects(Address("memory", "bucket/t"))
    import_rows(SweSmith(), [rows], tmp_path / "t")
    (tmp_path / "left").write_bytes(b"of a killed one")
    objects.upload(tmp_path, ["left"])
    objects.put("shard-00/000009.parquet", b"of a killed one", instead_of=None)
    with pytest.raises(StoreError, match=r"is not a traces folder \(it contains 'left'\)"):
        import_rows(SweSmith(), [rows], place)
    objects.remove(["left"])
    with open_traces_for_writing(place) as (folder, publish):
        assert publish is not None and objects.get("manifest.json").data == b"\n"  # type: ignore[union-attr]
        import_rows(SweSmith(), [rows], place)
        import_rows(SweSmith(), [rows], folder, limit=limit)
        with pytest.raises(StoreError, match="another process has written it, so this one stops; what it published"):
            publish()
    with open_traces_for_reading(place) as copy:
        assert read_files(copy) == read_files(tmp_path / "t")


def test_a_dataset_that_was_not_published_is_not_there(place: str) -> None:
    objects = open_objects(Address("memory", "bucket/t"))
    with open_dataset_for_writing(place) as (folder, _):
        folder.mkdir()
        (folder / "manifest.json").write_text("{}")
    assert not objects.list_names()
    with pytest.raises(StoreError, match=f"{place}: is not a traces folder"), open_traces_for_reading(place):
        pass


def test_without_the_library_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, rows: FileRows) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(UsageError, match=r"s3://b/t: needs the library s3fs: pip install s3fs"):
        import_rows(SweSmith(), [rows], "s3://b/t")
