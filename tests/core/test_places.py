"""Places as users name them: paths of this machine, and addresses of object stores."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import foretrace
from foretrace.core.errors import UsageError
from foretrace.core.places import Address, check_place, find_address, make_local_path, write_place


def test_an_address_is_known_in_a_text_and_in_a_path_and_a_folder_is_none() -> None:
    for given in ("s3://b/t/x", Path("s3://b/t/x"), "s3://b/t/x/"):
        assert find_address(given) == Address("s3", "b/t/x") and write_place(given) == "s3://b/t/x"
    for local in ("s3", "./s3:/b", "s3:", "/data/s3://b", "swe_smith:tool", "x://b"):
        assert find_address(local) is None and write_place(local) == local
    for local in ("s3", "./s3:/b", "/data/s3://b", "swe_smith:tool", "C:/x", ""):
        assert make_local_path(local) == Path(local)


def test_an_address_is_refused_where_a_path_is_wanted() -> None:
    check_place("s3://b/t", may_be_in_store=True)
    for place in ("s3://b/t", Path("gs://b/t")):
        with pytest.raises(UsageError, match=f"^{write_place(place)}: must be a path of this machine"):
            make_local_path(place)
    for place in ("s4://b/t", "S3://b/t", "https://b/t", Path("file:///t")):
        with pytest.raises(UsageError, match="is not a path of this machine, and addresses begin with s3://, gs://"):
            check_place(place, may_be_in_store=True)
    with pytest.raises(UsageError, match=r"^s3:b/t: is not an address; write s3://BUCKET/FOLDER$"):
        make_local_path("s3:b/t")
    for place in ("s3://", "s3:", Path("s3://")):
        with pytest.raises(UsageError, match=r"^s3://: names no bucket; write s3://BUCKET/FOLDER$"):
            check_place(place, may_be_in_store=True)


@pytest.mark.parametrize(
    "call",
    [
        lambda place: foretrace.generate("builtin", model="demo", protocol="fenced", out=place),
        lambda place: foretrace.write_traces([], place),
        lambda place: next(foretrace.read_traces(place)),
        lambda place: foretrace.export(place, format="chat", out="o.jsonl"),
        lambda place: foretrace.view(place, out="o"),
        lambda place: foretrace.view([], out=place),
        lambda place: foretrace.load(place),
        lambda place: foretrace.push(place, org="o"),
        lambda place: foretrace.effects([], place),
        lambda place: foretrace.predict(place, out="o", predictor="markov"),
        lambda place: foretrace.score("p", place),
        lambda place: foretrace.verify("p", place, out="o", scores="s"),
    ],
)
def test_no_function_takes_a_store_for_a_folder(
    call: Callable[[str], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"^s3://b/t: must be a path of this machine"):
        call("s3://b/t")
    assert not list(tmp_path.iterdir())


def test_errors_show_addresses_with_both_slashes(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^s3://b/l: name it \.parquet"):
        foretrace.label_folder("s3://b/t", out="s3://b/l")
    with pytest.raises(UsageError, match=r"^s3://b/t/l\.csv: lies inside .* outside of s3://b/t$"):
        foretrace.label_folder("s3://b/t", out="s3://b/t/l.csv")
    for source in ("swe_smith", "auto"):
        with pytest.raises(UsageError, match=r"^s3://b/r\.jsonl: rows are read from files of this machine"):
            foretrace.import_source(source, "s3://b/r.jsonl", out=tmp_path / "t")
