"""Jobs on a real Ray cluster of three nodes on this machine."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from foretrace.core.errors import Setting, UsageError
from foretrace.engines.in_order import Job, run_in_order
from foretrace.engines.ray_tasks import check_nodes, ray_pool

pytestmark = pytest.mark.integration


@pytest.fixture
def cluster() -> Iterator[Any]:
    ray_cluster = pytest.importorskip("ray.cluster_utils", reason="Ray is not installed (make test-integrations)")
    made = ray_cluster.Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    for _ in range(2):
        made.add_node(num_cpus=1)
    made.wait_for_nodes()
    yield made
    made.shutdown()


def square_here(number: int) -> tuple[int, str]:
    import ray

    time.sleep(0.05)
    return number * number, ray.get_runtime_context().get_node_id()


def refuse(number: int) -> None:
    raise UsageError(Setting("seed", number), " is not liked")


def note_and_wait(folder: str, number: int) -> int:
    (Path(folder) / f"{number}-{os.getpid()}").touch()
    time.sleep(0.3)
    return number


def test_jobs_run_on_all_nodes_and_errors_come_as_they_were(cluster: Any, tmp_path: Path) -> None:
    with ray_pool(None, cluster.address, [tmp_path], kept="nothing was written") as pool:
        found = [pool.submit(square_here, number) for number in range(24)]
        assert [future.result()[0] for future in found] == [number**2 for number in range(24)]
        assert len({future.result()[1] for future in found}) == 3
        error = pool.submit(refuse, 7).exception()
        assert isinstance(error, UsageError) and str(error) == "seed=7 is not liked"
    assert list(tmp_path.iterdir()) == []


def test_no_more_are_in_flight_than_there_is_room_for(cluster: Any, tmp_path: Path) -> None:
    with ray_pool(2, cluster.address, [tmp_path], kept="nothing was written") as pool:
        futures: list[Future[int]] = [pool.submit(note_and_wait, str(tmp_path), number) for number in range(12)]
        while not futures[0].done():
            time.sleep(0.02)
        assert len(list(tmp_path.iterdir())) <= 4
        cancelled = [future.cancel() for future in futures]
        assert not any(cancelled[:2]) and all(cancelled[6:])
    assert len(list(tmp_path.iterdir())) < 12


def test_what_a_lost_node_was_doing_is_done_again(cluster: Any, tmp_path: Path) -> None:
    jobs = [Job(note_and_wait, (str(tmp_path), number), weight=1) for number in range(20)]
    with ray_pool(None, cluster.address, [tmp_path], kept="nothing was written") as pool:
        results = run_in_order(pool, jobs, 8)
        first = [next(results) for _ in range(3)]
        cluster.remove_node(next(node for node in cluster.worker_nodes), allow_graceful=False)
        assert first + list(results) == list(range(20))


def test_a_node_that_does_not_see_the_folder_is_named(
    cluster: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import ray

    ray.init(address=cluster.address, log_to_driver=False)
    try:
        check_nodes([tmp_path])
        monkeypatch.setattr(Path, "unlink", lambda self, missing_ok=False: None)
        monkeypatch.setattr("foretrace.engines.ray_tasks.version", lambda name: "0.0.0")
        with pytest.raises(UsageError, match=r"node .* has foretrace .*, and here it is 0\.0\.0: they must be one"):
            check_nodes([tmp_path])
        monkeypatch.undo()
        monkeypatch.setattr(Path, "write_text", lambda self, text: None)
        with pytest.raises(UsageError, match=f"does not see {tmp_path}: name a folder that all nodes share"):
            check_nodes([tmp_path])
    finally:
        ray.shutdown()
