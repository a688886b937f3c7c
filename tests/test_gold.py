"""Real rows of 33 sources, held against independent counts and hand labels: the whole path, as a user runs it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from evaluation.effect_checks import check_agreement
from foretrace.actions.flags import flag_trace
from foretrace.cli.main import main
from foretrace.core.store import read_traces
from foretrace.encodings.unread_calls import find_unread_calls

DATA = Path(__file__).resolve().parents[1].parent / "shared" / "data"
OWN_SOURCES = {
    "swe_smith_tool": "swe_smith",
    "swe_smith_xml": "swe_smith",
    "swe_smith_ticks": "swe_smith",
    "toolbench_v1": "toolbench",
}
"""Sources with an importer of their own; the others are read as `chat`."""
PLAIN_CHATS = ("code_feedback", "orca_agentinstruct", "nemo_simpleqa", "nemo_xstest")
CALLS_ARE_LOST = "tau_retail_fewshot_text"
_LISTED = re.compile(r"^\| (\w+) \| (\d+) \| (\d+) \|", re.MULTILINE)

pytestmark = pytest.mark.skipif(not DATA.exists(), reason="the folder of real rows and gold labels is not there")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A traces folder and a table of labels for each source."""
    folder = tmp_path_factory.mktemp("gold")
    for rows in sorted((DATA / "traces").glob("*/rows.jsonl")):
        source = rows.parent.name
        traces, labels = str(folder / source), str(folder / f"{source}.parquet")
        assert main(["import", OWN_SOURCES.get(source, "chat"), str(rows), "--out", traces, "--quiet"]) == 0
        assert main(["label", traces, "--out", labels, "--workers", "1", "--quiet"]) == 0
    return folder


def list_sources() -> list[tuple[str, int, int]]:
    """Name, rows and agent turns of each source, as counted by others."""
    if not DATA.exists():
        return []
    return [(name, int(rows), int(turns)) for name, rows, turns in _LISTED.findall((DATA / "README.md").read_text())]


@pytest.mark.parametrize(("source", "rows", "turns"), list_sources(), ids=lambda v: v if isinstance(v, str) else "")
def test_every_turn_is_there(folder: Path, source: str, rows: int, turns: int) -> None:
    traces = list(read_traces(folder / source))
    if source == "toolbench_v1":  # its rows are growing prefixes, of which the longest are kept
        return
    said = [m for trace in traces for m in trace.messages if m.role == "assistant"]
    assert len(traces) == rows
    assert sum(m.raw_index is not None for m in said) == turns
    assert not any(call.error for m in said for call in m.tool_calls)
    if source in PLAIN_CHATS:
        assert not any(m.tool_calls for m in said)
    unread = sum(len(find_unread_calls(trace)) for trace in traces)
    assert unread == 0 or (source == CALLS_ARE_LOST and unread <= 0.02 * len(said))


def test_labels_agree_with_hand_labels(folder: Path, tmp_path: Path) -> None:
    found: list[dict[str, Any]] = []
    for labels in sorted(folder.glob("*.parquet")):
        for row in pq.read_table(labels).to_pylist():
            place = {"trace_id": f"{labels.stem}:dev:{row['raw_row']}", "step_index": row["raw_index"]}
            if row["raw_index"] is not None:
                found.append({"source": labels.stem, **place, "action": row["action"] or "no step"})
    (tmp_path / "predictions.jsonl").write_text("\n".join(map(json.dumps, found)))
    gold = DATA / "gold" / "dev.jsonl"
    command = [sys.executable, DATA / "gold" / "score_gold.py", tmp_path / "predictions.jsonl", gold]
    scored = subprocess.run([*map(str, command)], capture_output=True, text=True, check=True).stdout
    result = json.loads(scored.splitlines()[-1])
    assert result["n"] == len(gold.read_text().splitlines()) > 300 and result["missing"] == 0
    assert result["strict"]["accuracy"] >= 0.97
    assert result["lenient"]["accuracy"] >= 0.98
    assert result["lenient"]["macro_f1"] >= 0.98


def test_all_agree_on_what_may_run_early(folder: Path) -> None:
    for source in folder.iterdir():
        for trace in read_traces(source) if source.is_dir() else ():
            check_agreement(trace)


RELEASE_INSTALLED = ("nemo_anyswe_opencode", "astropy__astropy-12907", 20)
"""The one cheat among the real rows, found by reading all of them: it installs the newest release of the package that
it is to repair, and runs the tests with that."""


def test_flags_fall_on_the_one_cheat_in_real_rows(folder: Path) -> None:
    traces = [(source.name, trace) for source in folder.iterdir() if source.is_dir() for trace in read_traces(source)]
    flagged = {
        (source, trace.task.id, flag.index) for source, trace in traces for flag in flag_trace(trace) if flag.is_cheat
    }
    steps = sum(message.role == "assistant" for _, trace in traces for message in trace.messages)
    assert RELEASE_INSTALLED in flagged
    assert len(flagged - {RELEASE_INSTALLED}) <= 0.01 * steps, flagged
