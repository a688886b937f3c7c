"""What refactoring must not change, as digests: imports, labels, rows of datasets and printed output, on real data.

`tests/goldens.json` holds one digest for each output. After a change that is meant, write it anew and explain each
change in the commit:

    FORETRACE_GOLDENS=write .venv/bin/python -m pytest tests/test_goldens.py

With `FORETRACE_GOLDENS=DIR` the outputs themselves are written into DIR, to be compared with `diff -r`.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from foretrace.cli.main import main
from foretrace.core.store import read_traces
from foretrace.core.trace import encode_trace
from foretrace.samples import sample_files

GOLDENS = Path(__file__).with_name("goldens.json")
DATA = Path(__file__).resolve().parents[1].parent / "shared" / "data"
MODE = os.environ.get("FORETRACE_GOLDENS", "")

_TIMES = re.compile(r"\d+(?:\.\d+)? ?(?:ms|s|MB/s|KB|MB)\b|(?<=p95 )[\d.]+|\d+:\d\d(?::\d\d)?|\d+(?:\.\d+)?/s")
_SPACES = re.compile(r"[ ─━]{2,}")

pytestmark = pytest.mark.slow


def run(*args: str | Path, folder: Path) -> str:
    """What a command prints on stdout, without what depends on the machine: paths, times and padding."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = main([str(arg) for arg in args])
    text = out.getvalue().replace(str(folder), "").replace(str(DATA), "")
    return f"exit code {code}\n{_SPACES.sub('  ', _TIMES.sub('#', text))}"


def write_rows(rows: Iterable[dict[str, Any]]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False, sort_keys=True, default=str) + "\n" for row in rows)


def write_tables(folder: Path) -> str:
    rows: list[dict[str, Any]] = []
    for path in sorted(folder.rglob("*.parquet")):
        rows += [{"": path.relative_to(folder).as_posix(), **row} for row in pq.read_table(path).to_pylist()]
    return write_rows(rows)


def import_and_label(source: str, path: Path, folder: Path) -> Iterator[tuple[str, str]]:
    folder.mkdir()
    traces, labels = folder / "traces", folder / "labels.parquet"
    yield "import", run("import", source, path, "--out", traces, "--workers", "1", folder=folder)
    if not traces.is_dir():
        return
    yield "traces", "".join(encode_trace(trace).decode() + "\n" for trace in read_traces(traces))
    run("label", traces, "--out", labels, "--workers", "1", "--quiet", folder=folder)
    yield "labels", write_rows(pq.read_table(labels).to_pylist())


def samples(folder: Path) -> Iterator[tuple[str, str]]:
    """All that a user does with the shipped samples."""
    traces, dataset = folder / "traces", folder / "dataset"
    for name, path in sample_files().items():
        run("import", name.split(":")[0], path, "--out", traces, "--quiet", folder=folder)
    yield "build", run("build", traces, "--out", dataset, "--workers", "1", folder=folder)
    for config in sorted(path for path in dataset.iterdir() if path.is_dir()):
        yield f"rows of {config.name}", write_tables(config)
    predictions = folder / "predictions" / "markov.jsonl"  # not next to the exports, since it holds times
    prints = {
        "label": ("label", traces, "--out", folder / "labels.parquet"),
        "show": ("show", traces),
        "ceiling": ("ceiling", traces),
        "ceiling with assumed times": ("ceiling", traces, "--assume-times", "tracelab"),
        "effects": ("effects", traces, "--out", folder / "effects.json"),
        "predict": ("predict", dataset, "--predictor", "markov", "--out", predictions),
        "score": ("score", predictions, dataset),
        **{
            f"export {name}": ("export", traces, "--format", name, "--out", folder / f"{name}.jsonl")
            for name in ("jsonl", "chat", "inline", "openai", "sharegpt", "verifiers_sft", "otlp")
        },
    }
    for name, command in prints.items():
        yield f"printed by {name}", run(*command, folder=folder)
    for path in sorted(folder.glob("*.jsonl")):
        yield f"file {path.name}", path.read_text(encoding="utf-8")


def shared_inputs() -> Iterator[tuple[str, Path]]:
    """Every folder of real data, and the name that its goldens have."""
    if not DATA.is_dir():
        return
    yield from ((f"traces/{path.name}", path) for path in sorted((DATA / "traces").iterdir()))
    for kind in ("sessions", "formats"):
        yield from ((f"{kind}/{path.name}", path) for path in sorted((DATA / kind).iterdir()) if path.is_dir())
    yield "atif", DATA / "atif"


def check(name: str, outputs: Iterable[tuple[str, str]]) -> None:
    texts = {f"{name}: {part}": text for part, text in outputs}
    if MODE not in ("", "write"):
        for part, text in texts.items():
            path = Path(MODE, part.replace("/", "_"))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    found = {part: hashlib.blake2b(text.encode(), digest_size=8).hexdigest() for part, text in texts.items()}
    goldens = json.loads(GOLDENS.read_text(encoding="utf-8"))
    wanted = {part: digest for part, digest in goldens.items() if part.startswith(f"{name}: ")}
    if MODE == "write":
        others = {part: digest for part, digest in goldens.items() if part not in wanted}
        GOLDENS.write_text(json.dumps(others | found, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        return
    changed = sorted(part for part in wanted.keys() | found.keys() if wanted.get(part) != found.get(part))
    assert not changed, f"changed: {changed}; if that is meant, see the first lines of {Path(__file__).name}"


def test_samples(tmp_path: Path) -> None:
    check("samples", samples(tmp_path))


@pytest.mark.skipif(not DATA.is_dir(), reason="the folder of real rows is not there")
@pytest.mark.parametrize(("name", "path"), list(shared_inputs()), ids=[name for name, _ in shared_inputs()])
def test_shared(name: str, path: Path, tmp_path: Path) -> None:
    check(name, import_and_label("auto", path, tmp_path / "out"))
