"""`foretrace demo` shows the whole house, the same each time, also where no sandbox serves; `build` knows its model."""

from __future__ import annotations

import contextlib
import io
import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyarrow import parquet

from cli.conftest import Run, chat_row, write_rows
from dataset.little import tree
from foretrace.cli.commands.demo import next_steps
from foretrace.cli.main import main
from foretrace.core.store import TraceStore, read_traces, write_traces
from foretrace.core.trace import DEMO_MODEL
from sandbox.container import LANDLOCK, NAMESPACES

CONTAINER = Path(__file__).parents[1] / "sandbox/container.py"
DEMONSTRATION = "20 of 89 traces come from the demo model: this dataset is a demonstration, never training data"
pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the sandbox needs Linux")
DEMO = [sys.executable, "-m", "foretrace", "demo"]


class Made(NamedTuple):
    """One run of the demo."""

    out: Path
    json: Any


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder, printed = tmp_path_factory.mktemp("demo"), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
        patch.chdir(folder)
        patch.setattr(sys, "argv", ["foretrace"])
        assert main(["demo", "--out", "demo-out", "--json"]) == 0
    return Made(folder / "demo-out", json.loads(printed.getvalue()))


def ids(traces: Path) -> dict[str, str]:
    table = TraceStore(traces).read_columns("key", "id")
    return dict(zip(table["key"].to_pylist(), table["id"].to_pylist(), strict=True))


@pytest.mark.slow
def test_it_generates_failures_and_recoveries(made: Made) -> None:
    report = made.json["generate"]
    assert (report["done"], report["stored"], report["remaining"], report["errors"]) == (20, 20, 0, {})
    assert sum(c["traces"] for c in made.json["import"].values()) == 69
    assert made.json["labels"]["traces"] == made.json["manifest"]["counts"]["traces"] == 89
    assert 0 < report["success"] < 1 and 0 < report["recovery"] < 1 and report["mean_reward"] > 0.5
    generated = [t for t in read_traces(made.out / "traces") if t.provenance.origin == "generated"]
    assert {t.provenance.model for t in generated} == {DEMO_MODEL} and len(generated) == 20
    assert len({t.task.id for t in generated}) == 10


@pytest.mark.slow
def test_it_ends_with_a_ceiling_and_a_score(made: Made, run: Run) -> None:
    """The ceiling is that of the generated traces alone, since the samples have no times; the scores are what `score`
    says of the files that are left there."""
    ceiling, scores = made.json["ceiling"], made.json["scores"]
    assert (ceiling["traces"], ceiling["coverage"], ceiling["verdict"]) == (20, 1.0, "known")
    assert 0 < ceiling["oracle"]["saved_s"] < ceiling["wall_s"]
    dataset = made.out / "dataset"
    for name, report in scores.items():
        scored = run("score", made.out / f"predictions/{name.replace(':', '-')}.jsonl", dataset, "--json")
        assert scored.json["scores"] == report["scores"] and report["rows"] == 58
    best, worst = (scores[name]["scores"][0] for name in ("regression", "majority"))
    assert best["metric"] == "type_accuracy" and best["value"] > 0.6 > 0.4 > worst["value"]


@pytest.mark.slow
def test_it_is_marked_as_a_demonstration(made: Made, run: Run) -> None:
    assert made.json["demonstration"] == DEMONSTRATION
    assert DEMONSTRATION in (made.out / "dataset/README.md").read_text()
    refused = run("push", made.out / "dataset", "--org", "org", "--dry-run", "--allow-undecided")
    assert (refused.code, refused.out) == (1, "")
    assert refused.err.splitlines()[-1] == (
        f"foretrace: {made.out}/dataset: {DEMONSTRATION}, and is never pushed: build one without them"
    )


@pytest.mark.slow
def test_the_command_line_makes_the_same(made: Made, run: Run, tmp_path: Path) -> None:
    """What the demo does are runs of `generate` and `build` like any other: nothing is left to be done, and made anew
    it is the same, to the last byte of the dataset."""
    words = (
        "generate --problems builtin --limit 10 --protocol interleaved_tools --model demo --temperature 1 "
        "--max-tokens 1024 --json"
    )
    done = run(*words.split(), "--samples", 2, "--out", made.out / "traces")
    assert (done.json["already_done"], done.json["done"]) == (20, 0)
    anew = run(*words.replace("limit 10", "limit 4").split(), "--samples", 1, "--out", tmp_path / "traces")
    assert anew.json["done"] == 4 and ids(tmp_path / "traces").items() < ids(made.out / "traces").items()
    assert run("build", made.out / "traces", "--out", tmp_path / "dataset", "--allow-demo").code == 0
    assert tree(tmp_path / "dataset") == tree(made.out / "dataset")


def test_a_folder_that_is_not_its_own_is_left_alone(run: Run, traces: Path) -> None:
    done = run("demo", "--out", traces.parent)
    assert done.code == 1 and f"{traces}: is there and was not made by the demo" in done.err
    assert len(list(read_traces(traces))) == 4


@pytest.mark.slow
def test_what_to_do_next_works_as_it_stands(
    made: Made, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commands of `foretrace` in this process, all others in a shell."""
    shutil.copytree(made.out, tmp_path / "demo-out")
    monkeypatch.chdir(tmp_path)
    said: dict[str, str] = {}
    for what, command in made.json["next"].items():
        if command.startswith("foretrace "):
            own = run(*shlex.split(command)[1:])
            assert own.code == 0, (command, own.err)
            said[what] = own.out
            continue
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, (command, done.stderr)
        said[what] = done.stdout
    assert sum(command.startswith("foretrace ") for command in made.json["next"].values()) == 6
    assert (tmp_path / "demo-out/predictions/memory.jsonl").is_file()
    shown = said["one trace, step by step"]
    assert "demo-model" in shown and "failed\n" in shown and "repair" in shown and "success, done" in shown


@pytest.mark.slow
def test_what_it_prints_at_its_end(made: Made, run: Run) -> None:
    assert "foretrace view" in (made.out / "dataset/report.html").read_text()
    shown = run("demo", "--out", made.out)
    ceiling, note, _, score, _, majority, *_ = shown.out.partition("\n5. ")[2].splitlines()
    assert ceiling.startswith("ceiling  a perfect predictor of the next call saves at most ")
    assert note.startswith("of the 20 generated traces")
    assert score.startswith("6. score  ") and majority.split()[:3] == ["majority", "34%", "[32,"]
    assert shown.out.splitlines()[-1] == f"see it in a browser  {made.out / 'dataset/report.html'}"


def test_names_with_blanks_are_quoted(traces: Path, tmp_path: Path) -> None:
    command = next_steps(traces, tmp_path / "a b", sandbox=False)["build with other settings"]
    assert shlex.split(command)[-1] == f"{tmp_path}/a b-types"


@pytest.mark.slow
def test_without_a_sandbox_the_rest_is_shown_and_only_its_own_is_replaced(made: Made, tmp_path: Path) -> None:
    """In the folder of an earlier run, beside a file that is not the demo's."""
    shutil.copytree(made.out, tmp_path / "out")
    (tmp_path / "out/mine.txt").write_text("mine")
    (tmp_path / "out/labels.parquet").write_text("torn")
    names = ",".join((*NAMESPACES, *LANDLOCK))
    command = [sys.executable, str(CONTAINER), names, "--", *DEMO, "--out", "out"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    first = done.stdout.splitlines()[0]
    assert first.startswith("1. generate  skipped: isolation level 2 is not to be had here") and "landlock" in first
    assert "4. build  69 traces" in done.stdout and "demo model" not in done.stdout
    assert "5. ceiling" not in done.stdout and "6. score  predictors that cost nothing" in done.stdout
    assert "--protocol" not in done.stdout
    assert json.loads((tmp_path / "out/dataset/manifest.json").read_bytes())["counts"]["traces_of_demo_model"] == 0
    assert ids(tmp_path / "out/traces").items() < ids(made.out / "traces").items()
    assert parquet.read_metadata(tmp_path / "out/labels.parquet").num_rows > 0
    assert (tmp_path / "out/mine.txt").read_text() == "mine"


@pytest.fixture
def demo_traces(made: Made, tmp_path: Path) -> Path:
    """Only the 20 generated traces."""
    generated = (t for t in read_traces(made.out / "traces") if t.provenance.origin == "generated")
    write_traces(generated, tmp_path / "demo-traces")
    return tmp_path / "demo-traces"


@pytest.mark.slow
def test_build_refuses_it_before_anything_is_imported(run: Run, demo_traces: Path, tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", [chat_row(n) for n in range(5)])
    done = run("build", demo_traces, f"chat={rows}", "--out", tmp_path / "out")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"foretrace: {demo_traces}: 20 of 20 traces come from the demo model")
    assert "--allow-demo" in done.err and done.err.count("\n") == 1
    assert not list(tmp_path.glob("out*"))
