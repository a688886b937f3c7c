"""Pages of datasets: rows, and predictions beside the eval rows."""

from __future__ import annotations

import json
import math
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

import foretrace
from dataset.little import rows
from foretrace.core.errors import BuildError, ForetraceError, ForetraceWarning, PredictionError, StoreError, UsageError
from foretrace.core.store import write_traces
from foretrace.report.page import SinglePage
from foretrace.report.view import REPORT, write_dataset_report, write_view
from report.hostile_dataset import build_hostile_dataset, write_guesses, write_results
from report.hostile_traces import make_trace
from report.test_view import read_block, read_data


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_hostile_dataset(tmp_path_factory.mktemp("dataset"))


def test_every_row_is_there_with_its_texts(dataset: Path, tmp_path: Path) -> None:
    report = foretrace.view(dataset, out=tmp_path / "v")
    meta = read_data(tmp_path / "v", "meta")
    assert report.kind == "dataset" and report.listed == sum(len(lines) for lines in meta["rows"].values())
    gold = {(row["key"], row["step"]): row for row in rows(dataset, "eval")}
    assert len(gold) == len(meta["rows"]["eval"])
    for line in meta["rows"]["eval"]:
        texts = read_data(tmp_path / "v", f"eval-{line['piece']}")[line["place"]]
        row = gold[line["key"], line["step"]]
        assert texts["prompt"] == [[m["role"], m["content"]] for m in row["prompt"]]
        assert texts["completion"][0][1] == row["completion"][0]["content"]


def test_lengths_and_strengths_are_of_all_rows(dataset: Path) -> None:
    manifest = json.loads((dataset / "manifest.json").read_bytes())
    for name in ("proposer", "verifier", "verifier_unpaired", "eval"):
        found = Counter(dict(enumerate(manifest["prompt_tokens"][name])))
        sizes = [
            sum(math.ceil(len(m["content"].encode()) / 3.5) + 4 for m in row["prompt"]) for row in rows(dataset, name)
        ]
        assert +found == Counter(size // 256 for size in sizes) != {}
    assert manifest["strengths"] == Counter(f"{row['family']} {row['strength']}" for row in rows(dataset, "verifier"))


class Template:
    """A tokenizer of which only the chat template is asked."""

    chat_template = "a function"
    keeps_prompt = True

    def apply_chat_template(self, messages: Any, *, tokenize: bool, add_generation_prompt: bool = False) -> str:
        assert not tokenize
        text = "".join(f"<{m['role']}>{m['content']}</>" for m in messages)
        return f"{text}<assistant>{'' if self.keeps_prompt else '<think>'}" if add_generation_prompt else text


def test_rows_are_shown_as_a_chat_template_renders_them(dataset: Path, tmp_path: Path) -> None:
    foretrace.view(dataset, out=tmp_path / "v", tokenizer=Template())
    for config in ("proposer", "verifier"):
        (line, *_) = read_data(tmp_path / "v", "meta")["rows"][config]
        texts = read_data(tmp_path / "v", f"{config}-{line['piece']}")[line["place"]]
        before = "".join(f"<{role}>{content}</>" for role, content in texts["prompt"])
        answer = (texts.get("completion") or texts["chosen"])[0][1]
        assert texts["rendered"] == [f"{before}<assistant>", f"{answer}</>"]
    thinking = Template()
    thinking.keeps_prompt = False
    with pytest.raises(BuildError, match="in another way once it is answered"):
        foretrace.view(dataset, out=tmp_path / "w", tokenizer=thinking)
    write_traces([make_trace((), "k")], tmp_path / "t")
    with pytest.raises(UsageError, match="is for the rows of a dataset"):
        foretrace.view(tmp_path / "t", out=tmp_path / "w", tokenizer=Template())


def test_a_single_file_keeps_to_its_limit(dataset: Path, tmp_path: Path) -> None:
    path = tmp_path / "r.html"
    report = write_view([dataset], lambda: SinglePage(path, limit=250_000), lambda *_: None)
    assert 0 < report.left_out < report.listed
    data = re.findall(r'data-name="[^"]*">(.*?)</script>', path.read_text())
    assert sum(map(len, data)) <= 250_000 and read_block(path, "meta"), "there is room left for the lists"


def test_predictions_stand_beside_the_gold(dataset: Path, tmp_path: Path) -> None:
    path = tmp_path / "guesses.jsonl"
    gold = write_guesses(dataset, path, wrong=4)
    foretrace.view([dataset, path], out=tmp_path / "v")
    meta = read_data(tmp_path / "v", "meta")
    (facts,) = meta["predictions"]
    wrong = len(range(0, len(gold) - 1, 4))
    score = foretrace.score(path, dataset)
    natural = next(s for s in score.scores if (s.slice, s.metric) == ("natural", "type_accuracy"))
    assert facts["found"] == len(gold) - 1 and facts["right"] == len(gold) - 1 - wrong
    assert natural.n == len(gold) and facts["right"] / len(gold) == pytest.approx(natural.value, abs=1e-4)
    assert sum(count for _, _, count in facts["confusion"]) == len(gold)
    assert sum(count for _, guess, count in facts["confusion"] if guess == "BLOCKED") >= wrong
    assert [line["guesses"] for line in meta["rows"]["eval"]].count([None]) == 1


def test_what_score_and_replay_found_stands_in_the_page(dataset: Path, tmp_path: Path) -> None:
    write_guesses(dataset, tmp_path / "g.jsonl", wrong=4)
    results = write_results(dataset, tmp_path / "g.jsonl", tmp_path)
    foretrace.view([dataset, *results], out=tmp_path / "v")
    score, replay = read_data(tmp_path / "v", "meta")["results"]
    assert (score["kind"], score["name"], replay["kind"]) == ("score", "score.json", "replay")
    assert score["found"]["scores"] == msgspec.to_builtins(foretrace.score(tmp_path / "g.jsonl", dataset).scores)
    assert replay["found"]["launched"] == 40 and len(replay["found"]["frontier"]) > 5
    for text, why in (("{}", "is not a result of `score` or `replay`"), ("{", "is not JSON"), ("[" * 99_999, "is no")):
        (tmp_path / "other.json").write_text(text)
        with pytest.raises(StoreError, match=why):
            foretrace.view([dataset, tmp_path / "other.json"], out=tmp_path / "w")
    with pytest.raises(UsageError, match="one dataset, with"):
        foretrace.view(results, out=tmp_path / "w")
    assert not (tmp_path / "w").exists()


def test_the_report_of_a_build_is_small(dataset: Path) -> None:
    before = (dataset / "manifest.json").read_bytes()
    built = (dataset / REPORT).read_bytes()  # what `build` wrote
    (dataset / REPORT).unlink()
    path = write_dataset_report(dataset)
    assert path == dataset / REPORT and len(built) < 1_300_000
    assert path.read_bytes() == built
    assert (dataset / "manifest.json").read_bytes() == before
    meta: Any = read_block(path, "meta")
    assert meta["manifest"] == json.loads(before)
    assert max(sum(line["split"] == "train" for line in lines) for lines in meta["rows"].values()) <= 15


def test_a_dataset_whose_report_cannot_be_written_is_built_all_the_same(dataset: Path, tmp_path: Path) -> None:
    shutil.copytree(dataset, tmp_path / "d")
    (tmp_path / "d" / REPORT).unlink()
    (tmp_path / "d" / REPORT).mkdir()
    with pytest.warns(ForetraceWarning, match="the dataset is built, its report is not"):
        assert write_dataset_report(tmp_path / "d") is None


def test_what_does_not_go_together_is_refused(dataset: Path, tmp_path: Path) -> None:
    guesses = tmp_path / "g.jsonl"
    write_guesses(dataset, guesses, wrong=4)
    write_traces([make_trace(())], tmp_path / "traces")
    with pytest.raises(StoreError, match=r"none\.jsonl: no such file or folder"):
        foretrace.view([dataset, tmp_path / "none.jsonl"], out=tmp_path / "v")
    for inputs in ([guesses], [guesses, tmp_path / "traces"]):
        with pytest.raises(UsageError, match="one dataset, with up to 2 files"):
            foretrace.view(inputs, out=tmp_path / "v")
    with pytest.raises(PredictionError, match="traces: holds no predictions"):
        foretrace.view([dataset, tmp_path / "traces"], out=tmp_path / "v")
    lines = guesses.read_text().splitlines(keepends=True)
    guesses.write_text('{"predictions": 1, "dataset": "other"}\n' + "".join(lines[-3:]))
    with pytest.warns(ForetraceWarning, match=r"g\.jsonl: was made for another dataset, or another version"):
        foretrace.view([dataset, guesses], out=tmp_path / "warned")
    guesses.write_text('{"key": "other", "step": 1, "prediction": {"action": "BLOCKED"}}\n')
    with pytest.raises(PredictionError, match=r"none of its 1 predictions is for an eval row of .*; name the dataset"):
        foretrace.view([dataset, guesses], out=tmp_path / "v")
    guesses.write_text("no prediction\n")
    with pytest.raises(ForetraceError, match="is not a prediction"):
        foretrace.view([dataset, guesses], out=tmp_path / "v")
    assert not (tmp_path / "v").exists() and not list(tmp_path.glob(".*.partial"))
