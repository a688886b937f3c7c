"""Hand labels of real rows, held against what `import` and `label` say: the whole path, as a user runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from foretrace.cli.main import main

DATA = Path(__file__).resolve().parents[1].parent / "shared" / "data"
SOURCES = {
    "swe_smith_tool": "swe_smith",
    "swe_smith_xml": "swe_smith",
    "swe_smith_ticks": "swe_smith",
    "toolbench_v1": "toolbench",
}

pytestmark = pytest.mark.skipif(not DATA.exists(), reason="the folder of real rows and gold labels is not there")


def predictions(source: str, folder: Path) -> list[dict[str, object]]:
    """Labels of one source's rows, in the scorer's form."""
    traces, labels = folder / source, folder / f"{source}.parquet"
    rows = DATA / "traces" / source / "rows.jsonl"
    assert main(["import", SOURCES[source], str(rows), "--out", str(traces), "--quiet"]) == 0
    assert main(["label", str(traces), "--out", str(labels), "--quiet"]) == 0
    return [
        {
            "source": source,
            "trace_id": f"{source}:dev:{row['raw_row']}",
            "step_index": row["raw_index"],
            "action": row["action"] or "no step",
        }
        for row in pq.read_table(labels).to_pylist()
    ]


def test_labels_agree_with_hand_labels(tmp_path: Path) -> None:
    """Smoke: the bar stands for rows that nobody has looked at."""
    found = [p for source in SOURCES for p in predictions(source, tmp_path)]
    (tmp_path / "predictions.jsonl").write_text("\n".join(map(json.dumps, found)))
    gold = [
        line for line in (DATA / "gold" / "dev.jsonl").read_text().splitlines() if json.loads(line)["source"] in SOURCES
    ]
    (tmp_path / "gold.jsonl").write_text("\n".join(gold))
    command = [sys.executable, DATA / "gold" / "score_gold.py", tmp_path / "predictions.jsonl", tmp_path / "gold.jsonl"]
    scored = subprocess.run([*map(str, command)], capture_output=True, text=True, check=True).stdout
    result = json.loads(scored.splitlines()[-1])
    assert result["n"] == len(gold) > 100 and result["missing"] == 0
    assert result["strict"]["accuracy"] >= 0.95
    assert result["lenient"]["accuracy"] >= 0.98
