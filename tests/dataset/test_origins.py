"""Where traces come from: one table by source that adds up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from dataset.little import build, corpus
from foretrace.core.trace import Trace


def change_origin(trace: Trace, key: str = "", **origin: Any) -> Trace:
    provenance = msgspec.structs.replace(trace.provenance, **origin)
    return msgspec.structs.replace(trace, key=key or trace.key, provenance=provenance)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str]:
    """Manifest and card of a build of two sources and licenses."""
    folder = tmp_path_factory.mktemp("origins")
    other = {"source": "other", "license": "GPL-3.0", "revision": "abcdef0123456789", "split": "train"}
    traces = [change_origin(each, transforms=("tools of little",)) for each in corpus(6)]
    traces += [change_origin(each, key=f"o{each.key}", **other) for each in corpus(6)]
    manifest = build(
        folder, *traces, license_allow=("MIT",), outcomes="all", split=(0.5, 0.25, 0.25), recipes=("trajectories",)
    )
    return manifest, (folder / "d/README.md").read_text()


def test_table_of_sources_adds_up(dataset: tuple[dict[str, Any], str]) -> None:
    manifest, card = dataset
    for found in manifest["by_source"].values():
        assert found["traces_in"] == found["traces"] + sum(found["left_out"].values())
    assert sum(found["traces"] for found in manifest["by_source"].values()) == manifest["counts"]["traces"]
    assert manifest["by_source"]["other:train"]["licenses"] == {"GPL-3.0": 18}
    head = (
        "| source | license | revision | traces in | left out: license | left out: benchmark "
        "| left out: flagged | left out: copies | used | redacted | merged |"
    )
    assert head in card
    assert "| little:train | MIT | - | 18 | 0 | 0 | 0 | 0 | 18 | 0 | 0 |" in card
    assert "| other:train | GPL-3.0 | - | 18 | 18 | 0 | 0 | 0 | 0 | 0 | 0 |" in card
    assert "| all |  |  | 36 | 18 | 0 | 0 | 0 | 18 | 0 | 0 |" in card
    looked = [line for line in card.splitlines() if line.startswith("- benchmarks: Benchmarks that were looked for: ")]
    assert looked and "humaneval by " in looked[0] and "(164 problems)" in looked[0]


def test_what_was_done_before_the_build_is_counted(dataset: tuple[dict[str, Any], str]) -> None:
    manifest, card = dataset
    assert manifest["transforms"] == {"tools of little": 18}
    assert "- done before the build: tools of little, 18 traces\n" in card


def test_what_a_trace_calls_its_source_stays_text(tmp_path: Path) -> None:
    """In the card it is a cell and a quoted word, and no heading."""
    hostile = "a|b`c`$(touch PWN)\n## Free\n```"
    origin = {"source": hostile, "split": hostile, "revision": "r1", "license": f"MIT {hostile}", "raw_file": hostile}
    build(tmp_path, *(change_origin(one, **origin) for one in corpus(8)), outcomes="all")
    card = (tmp_path / "d/README.md").read_text()
    assert "\n## Free" not in card and card.count("\n```") == 4  # two blocks of the card's own
    row = next(line for line in card.splitlines() if line.startswith("| a/b"))
    assert row.count("|") == next(line for line in card.splitlines() if line.startswith("| source")).count("|")
