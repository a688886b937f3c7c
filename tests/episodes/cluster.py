"""A cluster of one thread, to which calls and results go as bytes; and scripts that answer the little problems."""

from __future__ import annotations

import contextlib
import json
import pickle
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from episodes.generating import PROBLEMS
from foretrace.api.cluster_generation import AttemptParts, ClusterAttempts
from foretrace.core.errors import WorkerError
from foretrace.engines.engine import Pool
from foretrace.episodes.generate.settings import GenerateSettings
from foretrace.sandbox.base import SandboxSettings

WRONG = "<code>\ndef plus(x):\n    return x - 1\n</code>"


def write_scripts(path: Path) -> str:
    """For each problem a script that solves it, one that errs first, and one that never does; the model's name."""
    lines = []
    for number, problem in enumerate(PROBLEMS):
        solved = [
            f"<think>I add.</think><code>\ndef plus(x):\n    return x + {number}\n</code>",
            "<verify>Done.</verify>",
        ]
        for turns in (solved, [WRONG, *solved], [WRONG, "<verify>Done.</verify>"]):
            lines.append(json.dumps({"turns": turns, "match": problem.statement}))
    path.write_text("\n".join(lines))
    return f"scripted:{path}"


class ThreadCluster(Pool):
    """A pool and the engine that opens it. It says that it has more workers than it has. What makes a worker ready is
    not among its calls.

    Args:
        lost: Number of the call with which the cluster breaks down.
        repeats: Make each call twice, as when the node with the first result was lost.
    """

    def __init__(self, workers: int = 3, *, lost: int | None = None, repeats: bool = False) -> None:
        self.workers, self._lost, self._repeats = workers, lost, repeats
        self._thread = ThreadPoolExecutor(1)
        self.calls: list[tuple[Any, ...]] = []
        self.max_in_flight = self._in_flight = 0
        self.on_call: Callable[[int], None] = lambda number: None

    @contextlib.contextmanager
    def open_pool(self, *, useful: int | None = None, **others: Any) -> Generator[Pool]:
        self.workers = min(self.workers, useful or self.workers)
        try:
            yield self
        finally:
            self._thread.shutdown()

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        if len(args) < 2:
            return self._thread.submit(function, *args, **kwargs)
        self.calls.append(args)
        self._in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self._in_flight)
        future = self._thread.submit(self._call, len(self.calls), pickle.dumps((function, args)))
        future.add_done_callback(self._end)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        pass

    def _end(self, future: Future[Any]) -> None:
        self._in_flight -= 1

    def _call(self, number: int, call: bytes) -> Any:
        self.on_call(number)
        if number == self._lost:
            raise WorkerError("the cluster lost a task")
        function, args = pickle.loads(call)
        for _ in range(1 + self._repeats):
            result = function(*args)
        return pickle.loads(pickle.dumps(result))


def attempts_on(engine: ThreadCluster, model: str, settings: GenerateSettings, **sandbox: Any) -> ClusterAttempts:
    """Attempts that the cluster makes with a model of that name."""
    parts = AttemptParts(model, None, "tools", "local", SandboxSettings(**sandbox))
    return ClusterAttempts(engine, parts, settings)
