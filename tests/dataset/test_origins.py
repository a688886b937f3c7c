"""Where traces come from: one table by source that adds up, and commands without places."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dataset.little import corpus, says, trace, user
from foretrace.core.store import write_traces
from foretrace.core.trace import Provenance, Trace
from foretrace.dataset.build import build
from foretrace.dataset.report import BuildCounts, count_origin, make_commands
from foretrace.dataset.settings import BuildSettings


def make_trace(key: str, **origin: Any) -> Trace:
    made = trace(key, user("Go."), says("Done."))
    return msgspec.structs.replace(made, provenance=Provenance(**{"origin": "imported", "source": "chat", **origin}))


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


def test_card_has_the_command_of_the_build(dataset: tuple[dict[str, Any], str]) -> None:
    manifest, card = dataset
    options = "--split 0.5/0.25/0.25 --outcomes all --no-statistical-gates --license-allow MIT"
    assert manifest["commands"][-1] == f"foretrace build traces --out dataset --recipes trajectories {options}"
    assert f"$ {manifest['commands'][-1]}\n" in card


def test_commands_name_files_without_their_folders(tmp_path: Path) -> None:
    (tmp_path / "my ids.txt").write_text("o__r-1\n")
    counts = BuildCounts()
    sampling = {"temperature": 0.7, "max_tokens": 64}
    generated = {"origin": "generated", "source": "humaneval", "protocol": "tools", "model": "m", "sampling": sampling}
    for each in (
        *(make_trace(f"a{n}", raw_file=f"rows{n}.jsonl", transforms=("redact@1",)) for n in range(5)),
        make_trace("b", source="swe_smith", revision="abc", split="tool", transforms=("redact@1",)),
        make_trace("c", raw_file="x y.jsonl"),
        *(make_trace(f"g{n}", seed=0, sample=n, **generated) for n in range(3)),
    ):
        count_origin(each, counts)
    settings = BuildSettings(decontaminate=(f"mine={tmp_path}/my ids.txt",), tokenizer=f"{tmp_path}/tokenizer.json")
    assert make_commands(counts, settings) == [
        "foretrace import chat rows0.jsonl rows1.jsonl rows2.jsonl ... --out traces",
        "foretrace import chat --no-redact 'x y.jsonl' --out traces",
        "foretrace import swe_smith:tool --out traces",
        "foretrace generate --problems humaneval --protocol tools --model KIND:m --temperature 0.7 --max-tokens 64"
        " --seed 0 --samples 3 --out traces",
        "foretrace build traces --out dataset --tokenizer tokenizer.json --decontaminate 'mine=my ids.txt'",
    ]


def test_what_a_trace_calls_its_source_stays_text(tmp_path: Path) -> None:
    """In the card it is a cell and a quoted word, and neither a heading nor a command."""
    hostile = "a|b`c`$(touch PWN)\n## Free\n```"
    origin = {"source": hostile, "split": hostile, "revision": "r1", "license": f"MIT {hostile}", "raw_file": hostile}
    provenance = [msgspec.structs.replace(one.provenance, **origin) for one in corpus(8)]
    traces = [msgspec.structs.replace(one, provenance=p) for one, p in zip(corpus(8), provenance, strict=False)]
    write_traces(traces, tmp_path / "t")
    build([tmp_path / "t"], tmp_path / "d", BuildSettings(statistical_gates=False, outcomes="all"))
    card = (tmp_path / "d/README.md").read_text()
    assert "\n## Free" not in card and card.count("\n```") == 4  # two blocks of the card's own
    (command,) = [line for line in card.splitlines() if line.startswith("$ foretrace import")]
    words = shlex.split(command)
    assert (
        words[:3] == ["$", "foretrace", "import"]
        and "$(touch PWN)" in words[3]
        and words[-2:] == ["--out", "traces"]
        and len(words) == 8
    )
    row = next(line for line in card.splitlines() if line.startswith("| a/b"))
    assert row.count("|") == next(line for line in card.splitlines() if line.startswith("| source")).count("|")
