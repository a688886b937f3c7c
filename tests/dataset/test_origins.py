"""Where traces come from: one table by source that adds up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from dataset.little import corpus
from foretrace.core.store import write_traces
from foretrace.dataset.build import build
from foretrace.dataset.settings import BuildSettings


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str]:
    """Manifest and card of a build of two sources and licenses."""
    folder = tmp_path_factory.mktemp("origins")
    other = {"source": "other", "license": "GPL-3.0", "revision": "abcdef0123456789", "split": "train"}
    traces = corpus(6)
    others = [msgspec.structs.replace(each, key=f"o{each.key}") for each in traces]
    others = [
        msgspec.structs.replace(each, provenance=msgspec.structs.replace(each.provenance, **other)) for each in others
    ]
    done = ("tools of little",)
    traces = [
        msgspec.structs.replace(each, provenance=msgspec.structs.replace(each.provenance, transforms=done))
        for each in traces
    ]
    write_traces([*traces, *others], folder / "t")
    settings = BuildSettings(
        license_allow=("MIT",),
        statistical_gates=False,
        outcomes="all",
        split=(0.5, 0.25, 0.25),
        recipes=("trajectories",),
    )
    manifest = build([folder / "t"], folder / "d", settings).manifest
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
    provenance = [msgspec.structs.replace(one.provenance, **origin) for one in corpus(8)]
    traces = [msgspec.structs.replace(one, provenance=p) for one, p in zip(corpus(8), provenance, strict=False)]
    write_traces(traces, tmp_path / "t")
    build([tmp_path / "t"], tmp_path / "d", BuildSettings(statistical_gates=False, outcomes="all"))
    card = (tmp_path / "d/README.md").read_text()
    assert "\n## Free" not in card and card.count("\n```") == 4  # two blocks of the card's own
    row = next(line for line in card.splitlines() if line.startswith("| a/b"))
    assert row.count("|") == next(line for line in card.splitlines() if line.startswith("| source")).count("|")
