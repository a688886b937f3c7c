"""An engine that runs jobs on a Ray cluster: the same functions, as Ray tasks.

All nodes read and write the same folders. A task that dies with its node is run again on another one, so a job must
produce the same files every time it runs.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import logging
import os
import pickle
import platform
import secrets
import signal
import socket
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, Unpack

from foretrace.core.errors import Setting, UsageError, WorkerError, find_first_line
from foretrace.core.files import describe_write_error, make_own_name
from foretrace.core.internal_errors import run_in_worker, take_result
from foretrace.core.version import __version__
from foretrace.engines.engine import NOTHING_WRITTEN, Pool, PoolNeeds
from foretrace.engines.processes import prepare_worker, usable_cores

_MAX_RETRIES = 5
_PROBE_S = 120.0
_CONNECT_S = 5.0
_MAX_READS = 64
_COMPARED_BYTES = 1 << 20


class RayTasks(NamedTuple):
    """The engine of a Ray cluster."""

    workers: int | None = None
    address: str | None = None
    """Address for `ray.init` (`auto`, `HOST:PORT`, `ray://HOST:PORT`). `None` for `RAY_ADDRESS` or, if that is not set,
    a temporary Ray on this machine."""

    @contextlib.contextmanager
    def open_pool(self, **needs: Unpack[PoolNeeds]) -> Generator[Pool]:
        """A pool of tasks, after comparing each node with this one (see `Engine`). It is never `None`: the work is done
        on the cluster, or an error says why not."""
        with connect(self.address) as ray:
            check_nodes(needs.get("writes", ()), needs.get("reads", ()))
            useful, cores = needs.get("useful"), int(ray.cluster_resources().get("CPU", 1))
            at_once = min(self.workers or cores, cores, cores if useful is None else useful)
            pool = _RayPool(ray, max(1, at_once), needs.get("small", True))
            try:
                yield pool
            except BaseException as error:
                pool.cancel()
                if isinstance(error, WorkerError):
                    raise WorkerError(f"{error}; {needs.get('kept', NOTHING_WRITTEN)}; run it again") from None
                raise
            finally:
                pool.shutdown()


class _Context(NamedTuple):
    """What a worker process takes over from this process before its first job."""

    folder: str
    modules: tuple[str, ...]
    """Search path for modules, including those of the user's sources or recipes."""
    small: bool

    @classmethod
    def of_this_process(cls, small: bool) -> _Context:
        return cls(os.getcwd(), tuple(os.path.abspath(path) for path in sys.path), small)


class _RayPool(ThreadPoolExecutor, Pool):
    """Makes calls as Ray tasks. A thread waits for each task, so what has no thread yet can still be canceled."""

    def __init__(self, ray: Any, workers: int, small: bool) -> None:
        super().__init__(workers)
        self.workers = workers
        self._ray = ray
        self._context = _Context.of_this_process(small)
        self._task: Any = ray.remote(num_cpus=1, max_retries=_MAX_RETRIES)(_run_job)
        self._running: set[Any] = set()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        return super().submit(self._run, fn, args, kwargs)

    def _run(self, *call: Any) -> Any:
        task = self._task.remote(self._context, pickle.dumps(call))
        self._running.add(task)
        try:
            return take_result(self._ray.get(task))
        except Exception as error:
            raise _find_cause(error) from None
        finally:
            self._running.remove(task)

    def cancel(self) -> None:
        self.shutdown(wait=False, cancel_futures=True)
        for task in tuple(self._running):
            with contextlib.suppress(Exception):
                self._ray.cancel(task, force=True)


def _run_job(context: _Context, call: bytes) -> Any:
    """Make the call, in a worker of the cluster; its module may only be found with `context`."""
    _take_over(context)
    function, args, kwargs = pickle.loads(call)
    return run_in_worker(function, *args, **kwargs)


@functools.cache
def _take_over(context: _Context) -> None:
    with contextlib.suppress(OSError):  # paths may be absolute anyway
        os.chdir(context.folder)
    sys.path += [path for path in context.modules if path not in sys.path]
    prepare_worker(context.small)


def _find_cause(error: Exception) -> Exception:
    """The error that a job raised, without Ray's wrapping."""
    exceptions = _import_ray(".exceptions")
    if isinstance(error, exceptions.RayTaskError):
        cause: Any = getattr(error, "cause", None)
        error = cause if isinstance(cause, Exception) else error
    if isinstance(error, exceptions.RayError):
        return WorkerError(
            f"the Ray cluster lost a task, and lost it again each time it was tried: {find_first_line(error)}"
        )
    return error


def _import_ray(module: str = "") -> Any:
    return importlib.import_module(f"ray{module}")


@contextlib.contextmanager
def connect(address: str | None) -> Generator[Any]:
    """Ray, connected. Pools opened in the block share the connection, and the Ray that is started if there is no
    cluster."""
    address = address or os.environ.get("RAY_ADDRESS") or None
    ray, is_ours = _connect(address)
    try:
        yield ray
    finally:
        if is_ours:
            ray.shutdown()


def _connect(given: str | None) -> tuple[Any, bool]:
    """Ray, connected, and whether it is ours to shut down."""
    try:
        ray = _import_ray()
    except ImportError:
        raise UsageError(Setting("engine", "ray"), " needs Ray: pip install ray") from None
    if ray.is_initialized():
        return ray, False
    _check_address(given)
    own = {"include_dashboard": False, "num_cpus": usable_cores()} if given in (None, "local") else {}
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # the future default, about which Ray warns
    is_main = threading.current_thread() is threading.main_thread()
    on_sigterm = signal.getsignal(signal.SIGTERM)
    try:
        with _hold_interrupt() if own else contextlib.nullcontext():
            ray.init(address=given or "local", log_to_driver=False, logging_level=logging.ERROR, **own)
    except KeyboardInterrupt:
        ray.shutdown()
        raise
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        raise UsageError(
            Setting("ray_address", given),
            f": {find_first_line(error)}; start a cluster, or leave the address out (one that asks for a token needs "
            "RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN)",
        ) from None
    finally:
        if is_main and on_sigterm is not None:  # Ray replaces the handler
            signal.signal(signal.SIGTERM, on_sigterm)
    return ray, True


@contextlib.contextmanager
def _hold_interrupt() -> Generator[None]:
    """Delay Ctrl-C until the block is done; a second one is not delayed. A Ray that is interrupted while it starts
    leaves processes behind, or ends this process with a segmentation fault."""
    on_sigint = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(on_sigint):
        yield
        return
    came = False

    def note(number: int, _: FrameType | None) -> None:
        nonlocal came
        came = True
        signal.signal(number, on_sigint)

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, on_sigint)
        if came:
            signal.raise_signal(signal.SIGINT)


def _check_address(address: str | None) -> None:
    """Try to connect to the address: Ray itself would wait for minutes without an answer."""
    host, colon, port = (address or "").removeprefix("ray://").rpartition(":")
    if not colon or not port.isdecimal():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S).close()
    except OSError as error:
        why = error.strerror or "no answer"
        raise UsageError(Setting("ray_address", address), f": {why}; is the cluster up?") from None


def check_nodes(writes: Iterable[Path], reads: Iterable[Path]) -> None:
    """Compare each node of the cluster with this one before any work begins: versions, folders to write (missing ones
    are created), and some of the files to read."""
    of_folders = {path.parent: path for path in reads}  # one per folder
    shown = {str(path): path for path in [*of_folders.values()][:_MAX_READS]}
    marks = [make_own_name(folder / "seen-by-all-nodes") for folder in writes]
    try:
        for mark in marks:
            shown[str(mark)] = mark.parent
            try:
                mark.parent.mkdir(parents=True, exist_ok=True)
                mark.write_text(secrets.token_hex(8))
            except OSError as error:
                raise UsageError(describe_write_error(mark.parent, error)) from None
        _compare_nodes(shown)
    finally:
        for mark in marks:
            mark.unlink(missing_ok=True)


def _compare_nodes(shown: Mapping[str, Path]) -> None:
    ray = _import_ray()
    place_on: Any = _import_ray(".util.scheduling_strategies").NodeAffinitySchedulingStrategy
    probe: Any = ray.remote(num_cpus=0, max_retries=1)(_describe_node)
    nodes = {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}
    given = os.getcwd(), tuple(shown)
    asked = [probe.options(scheduling_strategy=place_on(node, soft=False)).remote(*given) for node in nodes]
    our_versions, our_files = _describe_node(*given)
    for name, answer in zip(nodes.values(), asked, strict=True):
        try:
            versions, files = ray.get(answer, timeout=_PROBE_S)
        except Exception as error:
            cause = _find_cause(error)
            if isinstance(cause, ModuleNotFoundError):
                raise UsageError(
                    f"node {name}: {cause}; install foretrace there, in the same version as here"
                ) from None
            raise UsageError(f"node {name} does not answer: {find_first_line(cause)}") from None
        for each, theirs in versions.items():
            if theirs != our_versions[each]:
                raise UsageError(
                    f"node {name} has {each} {theirs}, and here it is {our_versions[each]}: they must be one version"
                )
        for path, theirs in files.items():
            if theirs != our_files[path]:
                why = f"does not see {shown[path]}" if theirs is None else f"sees another {shown[path]} than this one"
                raise UsageError(
                    f"node {name} {why}: name a folder that all nodes share (for what lies in an object store: set "
                    "TMPDIR to one)"
                )


def _describe_node(folder: str, paths: Sequence[str]) -> tuple[dict[str, str], dict[str, str | None]]:
    """The versions on a worker of the cluster that the written bytes depend on, and what it sees of the files."""
    versions = {"foretrace": __version__, "python": platform.python_version(), "pyarrow": version("pyarrow")}
    return versions, {path: _describe_file(Path(folder, path)) for path in paths}


def _describe_file(path: Path) -> str | None:
    try:
        if path.is_dir():
            return "folder"
        with path.open("rb") as file:
            return hashlib.blake2b(file.read(_COMPARED_BYTES), digest_size=8).hexdigest()
    except OSError:
        return None
