"""inspect_ai runs the eval rows of a dataset, scores them as `foretrace score` does, and its log is imported."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import foretrace

pytestmark = pytest.mark.integration
EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "inspect"


def test_the_example_scores_as_foretrace_does(
    sample_dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inspect_ai = pytest.importorskip("inspect_ai", reason="inspect_ai has its own environment (make test-integrations)")
    from inspect_ai.model import ModelOutput, ModelUsage, get_model

    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    from next_actions import next_actions  # type: ignore[import-not-found]

    task = next_actions(str(sample_dataset))
    answers = [answer(number, each.target) for number, each in enumerate(task.dataset)]
    outputs = [ModelOutput.from_content("mockllm/model", text) for text in answers]
    for output in outputs:
        output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)  # counting them needs a download
    model = get_model("mockllm/model", custom_outputs=outputs)
    (log,) = inspect_ai.eval(task, model=model, log_dir=str(tmp_path / "logs"), display="none", max_connections=1)
    assert log.status == "success", log.error
    theirs = {score.name: score.metrics["mean"].value for score in log.results.scores}

    lines = [
        json.dumps({"key": each.id.rpartition("#")[0], "step": int(each.id.rpartition("#")[2]), "completion": text})
        for each, text in zip(task.dataset, answers, strict=True)
    ]
    (tmp_path / "guesses.jsonl").write_text("\n".join(lines))
    report = foretrace.score(tmp_path / "guesses.jsonl", sample_dataset)
    ours = {row.metric: row.value for row in report.scores if row.slice == "natural"}
    assert theirs == pytest.approx({name: ours[name] for name in theirs}, abs=1e-4)
    assert 0 < theirs["exact_call"] < theirs["type_accuracy"] < 1 and not any(map(math.isnan, theirs.values()))

    foretrace.import_source("inspect_ai", tmp_path / "logs", out=tmp_path / "traces")
    assert len(list(foretrace.read_traces(tmp_path / "traces"))) == len(answers)


def test_the_eval_yaml_of_a_pushed_repository_runs(
    sample_dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`inspect eval hf/OWNER/NAME`, with the repository in the current folder in the place of the Hub."""
    inspect_ai = pytest.importorskip("inspect_ai", reason="inspect_ai has its own environment (make test-integrations)")
    import huggingface_hub
    from inspect_ai.model import ModelOutput, ModelUsage, get_model

    from foretrace.dataset.card import make_card, make_evaluation
    from foretrace.dataset.recipes.base import load_configs

    manifest = json.loads((sample_dataset / "manifest.json").read_bytes())
    repository = tmp_path / "me" / "actions-eval"
    shutil.copytree(sample_dataset / "eval", repository / "eval")
    (repository / "README.md").write_text(make_card(manifest, [load_configs()["eval"]], "{repo_id}"))
    told = make_evaluation(manifest, [load_configs()["eval"]], "me/actions-eval")
    assert told is not None
    (repository / "eval.yaml").write_text(told)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", lambda filename, **_: str(repository / filename))
    rows = [row for file in sorted((repository / "eval").iterdir()) for row in pq.read_table(file).to_pylist()]
    answers = [answer(number, row["completion"][0]["content"]) for number, row in enumerate(rows)]
    outputs = [ModelOutput.from_content("mockllm/model", text) for text in answers]
    for output in outputs:
        output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
    model = get_model("mockllm/model", custom_outputs=outputs)
    (log,) = inspect_ai.eval(
        "hf/me/actions-eval", model=model, log_dir=str(tmp_path / "logs"), display="none", max_connections=1
    )
    assert log.status == "success", log.error
    right = sum(bool(row["tool"]) for row in rows[::3]) / len(rows)
    assert log.results.scores[0].metrics["accuracy"].value == pytest.approx(right) and right > 0


def answer(number: int, target: str) -> str:
    """In turn the right answer, the right type with another call, and no answer."""
    value = json.loads(target)
    if number % 3 == 1:
        value |= {"tool": "nothing", "arguments": {}}
    return "I do not know" if number % 3 == 2 else f"```json\n{json.dumps(value)}\n```"
