"""Write the sample rows of `foretrace.samples` from the invented scenarios beside this script.

Every step of a SWE sample really runs in a throw-away checkout, so the outputs hang together; that takes
bash, git and pytest. The same input gives the same bytes. Usage: `python scripts/make_samples.py [FOLDER]`.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from sample_scenarios.attempts import FAILED, RESOLVED, Attempt, Bug
from sample_scenarios.chat import chat_rows
from sample_scenarios.encode import Step, text_messages, tool_messages
from sample_scenarios.sandbox import Sandbox
from sample_scenarios.toolbench import toolbench_rows

HERE = Path(__file__).parent
SCENARIOS = HERE / "sample_scenarios"
SAMPLES = HERE.parent / "src" / "foretrace" / "samples"
SEED = 20240501
MODEL = "sample-model"
REPOSITORIES = (
    "quernlib", "tidelattice", "cardwicket", "bramblecents", "queuewort", "pagemoth", "sparrowcsv", "mapletoken",
)  # fmt: skip


def main() -> None:
    """Write all files into the package, or into the folder that is given."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else SAMPLES
    folder.mkdir(parents=True, exist_ok=True)
    phrases = _toml("phrases")
    rows: dict[str, list[dict[str, Any]]] = {"tool": [], "xml": [], "ticks": []}
    bugs = [bug for name in REPOSITORIES for bug in read_bugs(name)]
    jobs = [(bug, *reversed(attempt.split(":"))) for bug in bugs for attempt in bug.attempts]
    with ThreadPoolExecutor() as pool:
        list(pool.map(check_bug, bugs))
        made = pool.map(lambda job: swe_row(*job, phrases), jobs)
        for row, (_, _, encoding) in zip(made, jobs, strict=True):
            rows[encoding].append(row)
    for encoding, found in rows.items():
        write_rows(folder / f"swe_smith_{encoding}.jsonl", found)
    write_rows(folder / "toolbench.jsonl", toolbench_rows(_toml("toolbench")))
    write_rows(folder / "chat.jsonl", chat_rows())
    same = next(bug for bug in bugs if bug.suffix == "func_pm_class_rm__3qu4ls00")
    rendered = {encoding: swe_row(same, "documented", encoding, phrases) for encoding in rows}
    text = json.dumps(rendered, ensure_ascii=False)
    (folder / "same_trace.json").write_text(text + "\n", encoding="utf-8")


def read_bugs(repository: str) -> list[Bug]:
    """The bugs of one invented repository."""
    data = _toml(repository)
    shared = {key: data[key] for key in ("owner", "name", "commit", "files")}
    trimmed = ("good", "bad", "half", "issue")
    return [Bug(**shared, **bug | {k: bug[k].strip("\n") for k in trimmed}) for bug in data["bugs"]]


def check_bug(bug: Bug) -> None:
    """The bad form fails the report's cases, the half-right one only the others, the good one none."""
    wanted = {bug.bad: (False, None), bug.half: (True, False), bug.good: (True, True)}
    for form, (main_holds, edge_holds) in wanted.items():
        text = bug.files[bug.file].replace(bug.good, form)
        for old, new in bug.also if form == bug.half else []:
            text = text.replace(old, new)
        with tempfile.TemporaryDirectory() as folder:
            sandbox = Sandbox(Path(folder), bug.files | {bug.file: text})
            assert sandbox.passes(bug.asserts(bug.main)) == main_holds, (bug.instance_id, "main", form)
            if edge_holds is not None:
                assert sandbox.passes(bug.asserts(bug.edge)) == edge_holds, (bug.instance_id, "edge", form)


def swe_row(bug: Bug, plan: str, encoding: str, phrases: dict[str, Any]) -> dict[str, Any]:
    """One attempt as a row with the columns of the published trajectories."""
    traj_id = f"{bug.instance_id}.{hashlib.sha256(f'{bug.instance_id}/{plan}'.encode()).hexdigest()[:8]}"
    with tempfile.TemporaryDirectory() as folder:
        sandbox = Sandbox(Path(folder), bug.broken_files())
        steps = Attempt(bug, sandbox, plan, phrases["say"], SEED).steps
        resolved = sandbox.passes(bug.asserts([*bug.main, *bug.edge]))
    assert resolved == (plan in RESOLVED) and resolved != (plan in FAILED), traj_id
    return {
        "messages": json.dumps(_messages(bug, steps, encoding, phrases["prompt"], traj_id)),
        "instance_id": bug.instance_id,
        "resolved": resolved,
        "model": MODEL,
        "traj_id": traj_id,
        "patch": "",
    }


def _messages(bug: Bug, steps: list[Step], encoding: str, prompts: dict[str, str], seed: str) -> list[Any]:
    task = prompts["task"].format(title=bug.title, issue=bug.issue).strip()
    if encoding == "tool":
        return tool_messages(prompts["system"], task, steps, seed)
    return text_messages(prompts[encoding].strip(), task, steps, encoding)


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    """One JSON object a line."""
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
    path.write_text("".join(lines), encoding="utf-8")


def _toml(name: str) -> dict[str, Any]:
    return tomllib.loads((SCENARIOS / f"{name}.toml").read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
