"""Jobs on a Ray cluster, behind the interface of a pool of processes: the same functions, run as Ray tasks.

All nodes read and write the same folders. A task that dies with its node is run again on another one, so a job has to
give the same files whenever it runs.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import platform
import secrets
import socket
import threading
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Executor, Future
from importlib.metadata import version
from pathlib import Path
from typing import Any

from foretrace.core.errors import Setting, UsageError, WorkerError

_MAX_RETRIES = 5
"""How often a task is run again whose worker or node died."""
_PROBE_S = 120.0
_CONNECT_S = 5.0
_MUST_AGREE = ("foretrace", "python", "pyarrow")
"""Versions that decide about bytes."""


class RayExecutor(Executor):
    """Runs calls as Ray tasks, so many at a time; the others wait here, where they can still be cancelled."""

    def __init__(self, in_flight: int, *, small: bool = True) -> None:
        ray = _import_ray()
        self._ray = ray
        self._in_flight = in_flight
        self._small = small
        self._task: Any = ray.remote(num_cpus=1, max_retries=_MAX_RETRIES)(_run_job)
        self._lock = threading.RLock()
        self._waiting: deque[tuple[Future[Any], Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = deque()
        self._running: dict[Any, Future[Any]] = {}
        self._closed = False

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run a call on the cluster when there is room for it."""
        future: Future[Any] = Future()
        with self._lock:
            if self._closed:
                raise RuntimeError("the pool is closed")
            self._waiting.append((future, function, args, kwargs))
        self._launch()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls; with `cancel_futures`, drop those that wait and end those that run."""
        with self._lock:
            self._closed = True
            running = dict(self._running)
            if cancel_futures:
                for future, *_ in self._waiting:
                    future.cancel()
                self._waiting.clear()
        if cancel_futures:
            for reference in running:
                with contextlib.suppress(Exception):
                    self._ray.cancel(reference, force=True)
        if wait:
            for future in running.values():
                with contextlib.suppress(Exception):
                    future.exception(timeout=_PROBE_S)

    def _launch(self) -> None:
        with self._lock:
            while self._waiting and len(self._running) < self._in_flight:
                future, function, args, kwargs = self._waiting.popleft()
                if not future.set_running_or_notify_cancel():
                    continue
                reference = self._task.remote(self._small, function, args, kwargs)
                self._running[reference] = future
                reference.future().add_done_callback(lambda done, reference=reference: self._finish(reference, done))

    def _finish(self, reference: Any, done: Future[Any]) -> None:
        with self._lock:
            future = self._running.pop(reference)
        try:
            future.set_result(done.result())
        except Exception as error:
            future.set_exception(_find_cause(error))
        self._launch()


def _run_job(small: bool, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """In a worker of the cluster: the call itself."""
    if small:
        from foretrace.engines.processes import limit_memory

        limit_memory()
    return function(*args, **kwargs)


def _find_cause(error: Exception) -> Exception:
    """What a job raised, out of what Ray puts around it."""
    exceptions = _import_ray(".exceptions")
    if isinstance(error, exceptions.RayTaskError):
        cause: Any = getattr(error, "cause", None)
        return cause if isinstance(cause, Exception) else error
    if isinstance(error, exceptions.RayError):
        return WorkerError(f"the Ray cluster lost a task and gave it up after {_MAX_RETRIES} more tries: {error}")
    return error


@contextlib.contextmanager
def ray_pool(
    workers: int | None, address: str | None, folders: Sequence[Path], *, small: bool = True, kept: str
) -> Generator[RayExecutor]:
    """A pool on the Ray cluster at `address`, or on one of this machine alone.

    Args:
        workers: Tasks at a time at most; `None` is as many as the cluster has cores.
        address: As `ray.init` takes it (`auto`, `ray://...`); `None` uses `RAY_ADDRESS`, else starts Ray here.
        folders: What all nodes have to see; each is made if it is not there.
        small: Tasks do without pandas.
        kept: What an error says of the work that was done before a worker died.

    Raises:
        UsageError: Ray is not installed, there is no cluster, or a node differs from this one or does not see a folder.
        WorkerError: a task was lost, and again each time it was tried.
    """
    ray = _connect(address)
    try:
        check_nodes(folders)
        cores = int(ray.cluster_resources().get("CPU", 1))
        executor = RayExecutor(max(1, min(workers or cores, cores)), small=small)
        try:
            yield executor
        except BaseException as error:
            executor.shutdown(cancel_futures=True)
            if isinstance(error, WorkerError):
                raise WorkerError(f"{error}; {kept}; run the same command again") from None
            raise
        executor.shutdown()
    finally:
        ray.shutdown()


def _import_ray(module: str = "") -> Any:
    return importlib.import_module(f"ray{module}")


def _connect(address: str | None) -> Any:
    try:
        ray = _import_ray()
    except ImportError:
        raise UsageError(Setting("engine", "ray"), " needs Ray: pip install 'foretrace[ray]'") from None
    given = address or os.environ.get("RAY_ADDRESS") or None
    _check_address(given)
    options = {} if given else {"include_dashboard": False}
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # the coming default, which Ray warns of
    try:
        ray.init(address=given, log_to_driver=False, logging_level=logging.ERROR, **options)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        why = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UsageError(
            Setting("ray_address", given), f": {why}; start a cluster with `ray start --head`, or leave the address out"
        ) from None
    return ray


def _check_address(address: str | None) -> None:
    """Knock at the address: Ray itself would wait for minutes where nobody answers."""
    host, colon, port = (address or "").removeprefix("ray://").rpartition(":")
    if not colon or not port.isdecimal():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S).close()
    except OSError as error:
        why = error.strerror or "no answer"
        raise UsageError(
            Setting("ray_address", address), f": {why}; is the cluster up? (`ray start --head` prints its address)"
        ) from None


def check_nodes(folders: Sequence[Path]) -> None:
    """Hold each node of the cluster against this one, before any work begins.

    Raises:
        UsageError: a node has another version of foretrace, Python or pyarrow, or does not see a folder.
    """
    ray = _import_ray()
    place_on: Any = _import_ray(".util.scheduling_strategies").NodeAffinitySchedulingStrategy
    mark = f".ray-{secrets.token_hex(8)}"
    places = [folder.absolute() / mark for folder in folders]
    for place in places:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(mark)
    try:
        probe: Any = ray.remote(num_cpus=0, max_retries=1)(_describe_node)
        nodes = {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}
        asked = {
            node: probe.options(scheduling_strategy=place_on(node, soft=False)).remote([str(place) for place in places])
            for node in nodes
        }
        ours = _describe_node([str(place) for place in places])
        for node, answer in asked.items():
            _compare_node(nodes[node], _find_answer(nodes[node], answer), ours)
    finally:
        for place in places:
            place.unlink(missing_ok=True)


def _find_answer(name: str, answer: Any) -> dict[str, Any]:
    try:
        return _import_ray().get(answer, timeout=_PROBE_S)
    except Exception as error:
        cause = _find_cause(error)
        if isinstance(cause, ModuleNotFoundError):
            raise UsageError(f"node {name}: {cause}; install foretrace there, in the same version as here") from None
        raise UsageError(f"node {name} does not answer: {str(cause).strip().splitlines()[0]}") from None


def _compare_node(name: str, theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    for each in _MUST_AGREE:
        if theirs[each] != ours[each]:
            raise UsageError(
                f"node {name} has {each} {theirs[each]}, and here it is {ours[each]}: they must be one version"
            )
    for place, is_seen in theirs["sees"].items():
        if not is_seen:
            folder = Path(place).parent
            raise UsageError(f"node {name} does not see {folder}: name a folder that all nodes share")


def _describe_node(places: Sequence[str]) -> dict[str, Any]:
    """In a worker of the cluster: the versions there, and which of the files it sees."""
    return {
        "foretrace": version("foretrace"),
        "python": platform.python_version(),
        "pyarrow": version("pyarrow"),
        "sees": {place: Path(place).is_file() for place in places},
    }
