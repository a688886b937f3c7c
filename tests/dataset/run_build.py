"""Builds in a process of its own, as its one argument says (JSON); prints `error CODE: TEXT` where that fails."""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path
from typing import Any

from foretrace.core.errors import ForetraceError


def main(job: dict[str, Any]) -> int:
    from foretrace.dataset import build as module
    from foretrace.dataset import parquet, plan
    from foretrace.dataset.settings import BuildSettings
    from foretrace.engines.processes import Processes

    if "messages_per_job" in job:
        plan.MESSAGES_PER_JOB = job["messages_per_job"]
    if "window_rows" in job:
        parquet.WINDOW_ROWS = job["window_rows"]
    if "file_size" in job:
        sys.dont_write_bytecode = True  # it would be cut short too
        resource.setrlimit(resource.RLIMIT_FSIZE, (job["file_size"],) * 2)

    def progress(doing: str, done: int, total: int | None) -> None:
        print(f"{doing} {done}", flush=True)

    try:
        module.build(
            job["traces"],
            Path(job["out"]),
            BuildSettings(**job.get("settings", {})),
            engine=Processes(job.get("workers", 1)),
            overwrite=job.get("overwrite", False),
            progress=progress,
        )
    except ForetraceError as error:
        print(f"error {error.exit_code}: {error}", flush=True)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
