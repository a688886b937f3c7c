"""The card and the manifest: what the Hub reads, every figure of every gate, and nothing that depends on the place."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest
import yaml
from huggingface_hub import DatasetCard

from dataset.little import CONFIGS, build, corpus, files
from foretrace.core.files import compute_sha256
from foretrace.core.trace import Trace
from foretrace.dataset.card import make_card, make_evaluation
from foretrace.dataset.recipes.base import load_configs

ALL_CONFIGS = [*load_configs().values()]


@pytest.fixture(scope="module")
def text(sample_dataset: Path) -> str:
    return (sample_dataset / "README.md").read_text("utf-8")


@pytest.fixture(scope="module")
def manifest(sample_dataset: Path) -> dict[str, Any]:
    return json.loads((sample_dataset / "manifest.json").read_text())


def named(license: str | list[str]) -> list[str]:
    """The Hub takes one license or a list."""
    return [license] if isinstance(license, str) else license


def test_front_matter_lists_the_configs_and_their_files(text: str, sample_dataset: Path) -> None:
    """Exactly one default; each pattern matches the files of its split and no others."""
    front: Any = DatasetCard(text).data.to_dict()
    assert "other" in front["license"]  # some samples name none that the Hub knows
    assert front["size_categories"] in (["n<1K"], ["1K<n<10K"]) and "foretrace" in front["tags"]
    assert [c["config_name"] for c in front["configs"]] == list(CONFIGS)
    assert [c["config_name"] for c in front["configs"] if c.get("default")] == ["proposer"]
    for config in front["configs"]:
        matched = {e["split"]: sorted(sample_dataset.glob(e["path"])) for e in config["data_files"]}
        assert matched == {s: files(sample_dataset, config["config_name"], s) for s in matched}
        assert sum(map(len, matched.values())) == len(files(sample_dataset, config["config_name"])) > 0


def test_the_hub_is_told_how_the_eval_rows_are_scored(manifest: dict[str, Any], sample_dataset: Path) -> None:
    """`eval.yaml` names a split and columns that are there, and its pattern finds the tool of every row with one."""
    told = make_evaluation(manifest, ALL_CONFIGS, "me/eval")
    assert told is not None
    evaluation = yaml.safe_load(told)
    assert evaluation["evaluation_framework"] == "inspect-ai" and "me/eval" in evaluation["name"]
    (task,) = evaluation["tasks"]
    rows = pq.read_table(files(sample_dataset, task["config"], task["split"])[0]).to_pylist()
    spec, pattern = task["field_spec"], re.compile(task["scorers"][0]["args"]["pattern"])
    assert rows and all(row[spec["input"]][-1]["role"] == "user" for row in rows)
    for row in rows:
        found = pattern.search(row["completion"][0]["content"])
        assert (found[1] if found else "") == row[spec["target"]]
    no_eval = [config for config in ALL_CONFIGS if config.name != "eval"]
    assert make_evaluation(manifest, no_eval, "me/sft") is None
    types = manifest | {"settings": manifest["settings"] | {"target": "type"}}
    assert make_evaluation(types, ALL_CONFIGS, "me/eval") is None


def test_the_card_says_how_to_score_a_model(text: str, manifest: dict[str, Any]) -> None:
    assert "$ foretrace score answers.jsonl path/to/this/folder" in text
    hub = make_card(manifest, [load_configs()["eval"]], "me/eval")
    download = "$ hf download me/eval --repo-type dataset --local-dir dataset"
    assert f"{download}\n$ foretrace score answers.jsonl data" in hub
    assert "## Scoring" not in make_card(manifest, [load_configs()["proposer"]])


def test_one_known_license_is_named_and_others_are_told(tmp_path: Path, text: str, manifest: dict[str, Any]) -> None:
    build(tmp_path, *corpus(2))
    own = (tmp_path / "d" / "README.md").read_text().split("---\n")[1]
    assert named(yaml.safe_load(own)["license"]) == ["mit"]
    for license, count in manifest["licenses"].items():
        assert f"- license {license}: {count} traces" in text
    told = make_card({**manifest, "redacted": {"key": 1}}, [])
    assert 0 < told.index("taken out of the traces before they were written") < told.index("- license ")


def test_every_gate_stands_in_the_card_with_its_figures(text: str, manifest: dict[str, Any]) -> None:
    assert len(manifest["gates"]) > 12
    for gate in manifest["gates"]:
        assert gate["figure"]
        line = next(line for line in text.splitlines() if line.startswith(f"| {gate['name']} |"))
        assert f"| {gate['verdict'].upper()} |" in line
        if gate["name"].startswith("shortcut/"):
            assert gate["detail"].partition(": ")[2] in line
        else:
            assert all(f"{name} {value}" in line for name, value in gate["figure"].items())


def test_counts_drops_and_warnings_stand_in_the_card(text: str, manifest: dict[str, Any]) -> None:
    for config, by_split in manifest["configs"].items():
        row = next(line for line in text.splitlines() if line.startswith(f"| `{config}` |"))
        assert all(f"| {about['rows']} |" in row for about in by_split.values())
    for reasons in manifest["drops"].values():
        assert all(f"{reason} {count}" in text for reason, count in reasons.items())
    assert all(f"- {warning}" in text for warning in manifest["warnings"])
    assert all(f"| {action} |" in text for action in manifest["actions"]["train"])


def test_manifest_describes_the_files(manifest: dict[str, Any], sample_dataset: Path) -> None:
    for config, by_split in manifest["configs"].items():
        for split, about in by_split.items():
            assert [sample_dataset / f for f in about["files"]] == files(sample_dataset, config, split)
            assert about["rows"] == sum(pq.read_metadata(sample_dataset / f).num_rows for f in about["files"])
            assert about["sha256"] == {f: compute_sha256(sample_dataset / f) for f in about["files"]}
            assert about["bytes"] == sum((sample_dataset / f).stat().st_size for f in about["files"])


def test_manifest_holds_no_path_time_or_worker_count(sample_dataset: Path, manifest: dict[str, Any]) -> None:
    """Nothing by which two builds of the same traces could differ."""
    text = (sample_dataset / "manifest.json").read_text()
    assert str(sample_dataset.parent) not in text and str(Path.home()) not in text and "/tmp" not in text
    assert not re.search(r"20\d\d-\d\d-\d\d|\d\d:\d\d:\d\d", text)
    names: set[str] = set()
    todo: list[Any] = [manifest]
    for value in todo:
        if isinstance(value, dict):
            names |= value.keys()
            todo += value.values()
        elif isinstance(value, list):
            todo += value
    assert not {n for n in names if re.search(r"worker|time|date|host|path|user|pid", n)}


def test_card_of_no_rows_and_of_strange_names_is_still_yaml(manifest: dict[str, Any]) -> None:
    """A license with a colon, or none at all, breaks no YAML."""
    for licenses, keys in (
        ({"Weird: License #1": 3}, ["other"]),
        ({}, ["other"]),
        ({"unknown": 1, "MIT": 2, "odd": 1}, ["mit", "other"]),
    ):
        text = make_card(manifest | {"licenses": licenses, "configs": {}}, ALL_CONFIGS)
        assert named(yaml.safe_load(text.split("---\n")[1])["license"]) == keys


def test_card_warns_of_traces_that_were_not_looked_through(manifest: dict[str, Any]) -> None:
    counts = {**manifest["counts"], "traces_unredacted": 3}
    warning = f"**Secrets and user names were not looked for in 3 of the {counts['traces']} traces.**"
    card = make_card({**manifest, "counts": counts}, [])
    assert warning in card[: card.index("## Configs")]
    assert "user names were not looked for" not in make_card(manifest, [])


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
