"""Import, label and build on a real Ray cluster of three nodes on this machine, of which some are killed."""

from __future__ import annotations

import contextlib
import os
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import foretrace
from foretrace.core import segments
from foretrace.core.errors import Setting, StoreError, UsageError
from foretrace.core.files import only_writer
from foretrace.core.store import TraceStore
from foretrace.dataset import plan
from foretrace.engines import ray_tasks
from foretrace.engines.engine import Engine, Pool
from foretrace.engines.processes import THIS_PROCESS
from foretrace.engines.ray_tasks import RayTasks, check_nodes, connect
from foretrace.objectstores.objects import S3Objects
from foretrace.rows.files import FileRows
from foretrace.sources import importing, taking
from foretrace.sources.importing import import_rows
from foretrace.sources.swe_smith import SweSmith
from integrations.stores import read_objects
from sources.raw_rows import swe_rows, write_jsonl

pytestmark = pytest.mark.integration
BUILD: dict[str, Any] = {"outcomes": "all", "statistical_gates": False, "max_context_tokens": 2048}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    ray_cluster = pytest.importorskip("ray.cluster_utils", reason="Ray is not installed (make test-integrations)")
    try:
        made = ray_cluster.Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    except Exception as error:
        pytest.skip(f"no Ray cluster can be started here: {error}")
    yield made
    made.shutdown()


@pytest.fixture(scope="module")
def connected(cluster: Any) -> Iterator[Any]:
    """The cluster with a connection that is left as it is, as in a notebook: its workers see many jobs."""
    import ray

    ray.init(address=cluster.address, log_to_driver=False)
    yield cluster
    ray.shutdown()


@pytest.fixture
def three(connected: Any) -> Any:
    """Three nodes, whatever was killed before."""
    while len(connected.list_all_nodes()) < 3:
        connected.add_node(num_cpus=1)
    connected.wait_for_nodes()
    return connected


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> FileRows:
    return FileRows(write_jsonl(tmp_path_factory.mktemp("rows") / "r.jsonl", swe_rows(240)))


@pytest.fixture(scope="module", autouse=True)
def small_jobs() -> Iterator[None]:
    """So that there are many of few rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(importing, "_MAX_ROWS", 10)
        patch.setattr(importing, "_MIN_POOL_BYTES", 0)
        patch.setattr(taking, "CHECKPOINT_ROWS", 60)
        patch.setattr(segments, "MAX_UNMERGED", 0)
        patch.setattr(plan, "MESSAGES_PER_JOB", 150)
        yield


def run_import(rows: FileRows, folder: Path, engine: Engine) -> dict[str, bytes]:
    import_rows(SweSmith(), [rows], folder, engine=engine)
    names = ["manifest.json", *(segment.path for segment in TraceStore(folder).manifest.segments)]
    found = {name: (folder / name).read_bytes() for name in names}
    assert sorted(str(path.relative_to(folder)) for path in folder.rglob("*.parquet")) == sorted(names[1:])
    return found


def run_build(traces: Path, folder: Path, engine: Engine) -> dict[str, bytes]:
    foretrace.build(traces, out=folder, **BUILD, engine=engine)
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


class Local(NamedTuple):
    """What this process makes alone."""

    traces: Path
    segments: dict[str, bytes]
    dataset: dict[str, bytes]
    labels: bytes


@pytest.fixture(scope="module")
def local(rows: FileRows, tmp_path_factory: pytest.TempPathFactory) -> Local:
    folder = tmp_path_factory.mktemp("local")
    segments = run_import(rows, folder / "t", THIS_PROCESS)
    dataset = run_build(folder / "t", folder / "d", THIS_PROCESS)
    foretrace.label_folder(folder / "t", out=folder / "l.parquet")
    assert len([name for name in dataset if name.startswith("proposer/train")]) > 4
    return Local(folder / "t", segments, dataset, (folder / "l.parquet").read_bytes())


def check_all(address: str, rows: FileRows, local: Local, folder: Path) -> None:
    """Import, label and build on the cluster, and compare."""
    engine = RayTasks(address=address)
    assert run_import(rows, folder / "t", engine) == local.segments
    assert run_build(folder / "t", folder / "d", engine) == local.dataset
    foretrace.label_folder(folder / "t", out=folder / "l.parquet", engine="ray", ray_address=address)
    assert (folder / "l.parquet").read_bytes() == local.labels
    assert not [path for path in folder.rglob(".*") if path.name != ".lock"]


def test_pools_share_a_connection(cluster: Any) -> None:
    import ray

    with connect(cluster.address):
        for _ in range(2):
            with RayTasks(address=cluster.address).open_pool() as pool:
                assert pool.submit(os.getcwd).result() == os.getcwd()
            assert ray.is_initialized()
    assert not ray.is_initialized()


def test_three_nodes_give_the_bytes_of_this_process(three: Any, rows: FileRows, local: Local, tmp_path: Path) -> None:
    check_all(three.address, rows, local, tmp_path)


def test_three_nodes_give_the_bytes_of_this_process_to_a_store(
    three: Any, bucket: S3Objects, rows: FileRows, local: Local
) -> None:
    place, ray = str(bucket.address), {"engine": "ray", "ray_address": three.address}
    import_rows(SweSmith(), [rows], f"{place}/t", engine=RayTasks(address=three.address))
    assert read_objects(bucket, "t") == local.segments
    foretrace.label_folder(f"{place}/t", out=f"{place}/l.parquet", **ray)
    assert bucket.get("l.parquet").data == local.labels  # type: ignore[union-attr]
    foretrace.build(f"{place}/t", out=f"{place}/d", **BUILD, **ray)
    assert read_objects(bucket, "d") == local.dataset


def note_and_run(notes: str, victim: str | None, job: int, function: Callable[..., Any], *arguments: Any) -> Any:
    """In a worker: the call, which says where it begins. The first on the victim waits for its node to be killed."""
    import ray

    folder, node = Path(notes), ray.get_runtime_context().get_node_id()
    (folder / f"{job}.{node}.{uuid.uuid4().hex}.begun").touch()
    if node == victim:
        with contextlib.suppress(FileExistsError):
            (folder / "in-the-middle").touch(exist_ok=False)
            time.sleep(600)
    return function(*arguments)


class KillingPool(Pool):
    """From a job on, each is given to one node as long as that lives, and the first one there is killed with it."""

    def __init__(self, pool: Pool, notes: Path, victim: str, first: int) -> None:
        self.workers = pool.workers
        self._pool, self._notes, self._victim = pool, notes, victim
        self._jobs, self._first = 0, first

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        self._jobs += 1
        future = Future[Any]()
        future.set_running_or_notify_cancel()  # so that this process does nothing but wait
        if self._jobs == self._first:
            pool: Any = self._pool
            pool._task = pool._task.options(scheduling_strategy=NodeAffinitySchedulingStrategy(self._victim, soft=True))
        victim = self._victim if self._jobs >= self._first else None
        inner = self._pool.submit(note_and_run, str(self._notes), victim, self._jobs, function, *args)
        inner.add_done_callback(lambda done: future.set_result(done.result()))
        return future


class KillingRay(NamedTuple):
    """Ray, of which a node is killed in the middle of a job, of this number or a later one."""

    cluster: Any
    notes: Path
    first: int

    @contextlib.contextmanager
    def open_pool(self, **options: Any) -> Generator[Pool]:
        self.notes.mkdir()
        ended, victim = threading.Event(), next(iter(self.cluster.worker_nodes))
        (self.notes / "victim").symlink_to(victim.node_id)
        killer = threading.Thread(target=self.kill, args=(victim, ended))
        with RayTasks(address=self.cluster.address).open_pool(**options) as pool:
            killer.start()
            try:
                yield KillingPool(pool, self.notes, victim.node_id, self.first)
            finally:
                ended.set()
                killer.join()

    def kill(self, victim: Any, ended: threading.Event) -> None:
        while not ended.wait(0.05):
            if (self.notes / "in-the-middle").exists():
                self.cluster.remove_node(victim, allow_graceful=False)
                return

    def check(self) -> None:
        """One node is gone, and the job that was on it was begun again on another one."""
        assert len(self.cluster.list_all_nodes()) == 2
        victim = os.readlink(self.notes / "victim")
        begun = [path.name.split(".")[:2] for path in self.notes.glob("*.begun")]
        twice = {job for job, times in Counter(job for job, _ in begun).items() if times > 1}
        assert any(job in twice for job, node in begun if node == victim)
        assert any(job in twice for job, node in begun if node != victim)


def test_a_node_killed_in_the_middle_of_an_import_changes_no_byte(
    three: Any, rows: FileRows, local: Local, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(importing, "count_in_flight_bytes", lambda pool: 200_000)
    engine = KillingRay(three, tmp_path / "notes", first=12)
    assert run_import(rows, tmp_path / "t", engine) == local.segments
    engine.check()


def test_a_node_killed_in_the_middle_of_a_build_changes_no_byte(three: Any, local: Local, tmp_path: Path) -> None:
    jobs = len(plan.plan_shards([TraceStore(local.traces)]))
    engine = KillingRay(three, tmp_path / "notes", first=jobs + 3)  # the first are those that look for tools
    assert run_build(local.traces, tmp_path / "d", engine) == local.dataset
    engine.check()


def refuse(number: int) -> None:
    raise UsageError(Setting("seed", number), " is not liked")


def note_and_wait(folder: str, number: int) -> int:
    (Path(folder) / f"{number}-{uuid.uuid4().hex}").touch()
    time.sleep(0.3)
    return number


def test_no_more_are_in_flight_than_there_is_room_for(three: Any, tmp_path: Path) -> None:
    with RayTasks(2, three.address).open_pool(writes=[tmp_path]) as pool:
        error = pool.submit(refuse, 7).exception()
        assert isinstance(error, UsageError) and str(error) == "seed=7 is not liked"
        futures: list[Future[int]] = [pool.submit(note_and_wait, str(tmp_path), number) for number in range(12)]
        while not futures[0].done():
            time.sleep(0.02)
        started = len(list(tmp_path.iterdir()))
        assert pool.workers == 2 and started <= sum(future.done() for future in futures) + pool.workers
        cancelled = [future.cancel() for future in futures]
        assert not any(cancelled[:2]) and all(cancelled[6:])
    assert len(list(tmp_path.iterdir())) < 12


def test_a_node_that_differs_is_named_before_work_begins(
    three: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file, none = tmp_path / "read.txt", tmp_path / "none.txt"
    file.write_text("as here")
    check_nodes([tmp_path / "new"], [file])
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["new", "read.txt"]
    for path, said in ((file, "sees another"), (none, "does not see")):
        with monkeypatch.context() as patch:
            patch.setattr(ray_tasks, "_describe_file", lambda path: "as only this process sees it")
            with pytest.raises(UsageError, match=f"{said} {path}.*: name a folder that all nodes"):
                check_nodes([], [path])
    monkeypatch.setattr(ray_tasks, "__version__", "0.0.0")
    with pytest.raises(UsageError, match=r"node .* has foretrace .*, and here it is 0\.0\.0: they must be one"):
        check_nodes([], [])


def test_two_drivers_do_not_write_to_one_folder(three: Any, rows: FileRows, local: Local, tmp_path: Path) -> None:
    engine = RayTasks(address=three.address)
    with only_writer(tmp_path / "t"), pytest.raises(StoreError, match="another process is writing here"):
        run_import(rows, tmp_path / "t", engine)
    with only_writer(tmp_path / ".d.building"), pytest.raises(StoreError, match="another process is writing here"):
        run_build(local.traces, tmp_path / "d", engine)
