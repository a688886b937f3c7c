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
from foretrace.core.trace import DEMO_MODEL, Trace
from sandbox.container import LANDLOCK, NAMESPACES

CONTAINER = Path(__file__).parents[1] / "sandbox/container.py"
DEMONSTRATION = "20 of 89 traces come from the demo model: this dataset is a demonstration, never training data"
pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the sandbox needs Linux")


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
    generated = read_generated(made.out)
    assert {t.provenance.model for t in generated} == {DEMO_MODEL} and len(generated) == 20
    assert len({t.task.id for t in generated}) == 10


def read_generated(out: Path) -> list[Trace]:
    return [trace for trace in read_traces(out / "traces") if trace.provenance.origin == "generated"]


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
def test_the_command_line_makes_the_same(made: Made, run: Run) -> None:
    """What the demo does are runs of `generate` and `build` like any other: nothing is left to be done, and made anew
    it is the same, to the last byte of the dataset."""
    line = "generate --problems builtin --protocol interleaved_tools --model demo --temperature 1 --max-tokens 1024"
    done = run(f"{line} --limit 10 --samples 2 --json --out {made.out}/traces").json
    assert (done["already_done"], done["done"]) == (20, 0)
    assert run(f"{line} --limit 4 --json --out traces").json["done"] == 4
    assert ids(Path("traces")).items() < ids(made.out / "traces").items()
    assert run(f"build {made.out}/traces --out dataset --allow-demo").code == 0
    assert tree(Path("dataset")) == tree(made.out / "dataset")


def test_a_folder_that_is_not_its_own_is_left_alone(run: Run, traces: Path) -> None:
    done = run("demo", "--out", traces.parent)
    assert done.code == 1 and f"{traces}: is there and was not made by the demo" in done.err
    assert len(list(read_traces(traces))) == 4


@pytest.mark.slow
def test_what_to_do_next_works_as_it_stands(made: Made, run: Run) -> None:
    """The commands of `foretrace` in this process, all others in a shell."""
    shutil.copytree(made.out, "demo-out")
    own = {what: line for what, line in made.json["next"].items() if line.startswith("foretrace ")}
    said = {what: run(*shlex.split(line)[1:]) for what, line in own.items()}
    assert not [done.err for done in said.values() if done.code] and len(said) == 6
    for line in {*made.json["next"].values()} - {*own.values()}:
        done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)
        assert done.returncode == 0, (line, done.stderr)
    assert Path("demo-out/predictions/memory.jsonl").is_file()
    shown = said["one trace, step by step"].out
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
def test_without_a_sandbox_the_rest_is_shown_and_only_its_own_is_replaced(made: Made) -> None:
    """In the folder of an earlier run, beside a file that is not the demo's."""
    out = Path("out")
    shutil.copytree(made.out, out)
    (out / "mine.txt").write_text("mine")
    (out / "labels.parquet").write_text("torn")
    names = ",".join((*NAMESPACES, *LANDLOCK))
    demo = [sys.executable, "-m", "foretrace", "demo", "--out", "out"]
    command = [sys.executable, str(CONTAINER), names, "--", *demo]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    first = done.stdout.splitlines()[0]
    assert first.startswith("1. generate  skipped: isolation level 2 is not to be had here") and "landlock" in first
    for words in ("4. build  69 traces", "6. score  predictors that cost nothing"):
        assert words in done.stdout
    for words in ("demo model", "5. ceiling", "--protocol"):
        assert words not in done.stdout
    assert json.loads((out / "dataset/manifest.json").read_bytes())["counts"]["traces_of_demo_model"] == 0
    assert ids(out / "traces").items() < ids(made.out / "traces").items()
    assert parquet.read_metadata(out / "labels.parquet").num_rows > 0
    assert (out / "mine.txt").read_text() == "mine"


@pytest.mark.slow
def test_build_refuses_it_before_anything_is_imported(run: Run, made: Made) -> None:
    write_traces(read_generated(made.out), "demo-traces")
    write_rows(Path("rows.jsonl"), [chat_row(n) for n in range(5)])
    done = run("build demo-traces chat=rows.jsonl --out out")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert done.err.startswith("foretrace: demo-traces: 20 of 20 traces come from the demo model")
    assert "--allow-demo" in done.err and not list(Path().glob("out*"))
