"""What is said where there is no Ray, or no cluster at the address. What runs on one: tests/integrations."""

from __future__ import annotations

import signal
import socket
import sys
from pathlib import Path

import pytest

import foretrace
from foretrace.api.settings import make_engine
from foretrace.core.errors import UsageError
from foretrace.engines import ray_tasks
from foretrace.engines.processes import Processes
from foretrace.engines.ray_tasks import RayTasks


def test_without_ray_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match=r"engine='ray' needs Ray: pip install ray"), RayTasks().open_pool():
        pass


@pytest.mark.integration
def test_an_address_where_nobody_answers_is_said_at_once() -> None:
    pytest.importorskip("ray", reason="Ray is not installed (pip install ray)")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        for given in (address, f"ray://{address}"):
            with (
                pytest.raises(UsageError, match=f"ray_address='{given}': Connection refused; is the cluster up"),
                RayTasks(address=given).open_pool(),
            ):
                pass


def test_the_engine_is_made_from_the_settings(tmp_path: Path) -> None:
    assert make_engine("processes", None, None) == Processes(1)
    assert make_engine("processes", 3, None) == Processes(3)
    assert make_engine("ray", None, "auto") == RayTasks(None, "auto")
    assert make_engine(Processes(2), None, None) == Processes(2)
    with pytest.raises(UsageError, match="ray_address='auto' is for engine='ray'"):
        foretrace.label_folder(tmp_path, out=tmp_path / "l.csv", ray_address="auto")
    with pytest.raises(UsageError, match="engine='slurm': choose processes or ray"):
        foretrace.build(tmp_path, out=tmp_path / "d", engine="slurm")  # type: ignore[arg-type]


def start_with_ctrl_c(times: int, started: list[bool]) -> None:
    with ray_tasks._hold_interrupt():
        for _ in range(times):
            signal.raise_signal(signal.SIGINT)
        started.append(True)


@pytest.mark.parametrize(("times", "is_started"), [(1, True), (2, False)])
def test_ctrl_c_waits_until_ray_has_started_and_a_second_one_does_not(times: int, is_started: bool) -> None:
    started: list[bool] = []
    with pytest.raises(KeyboardInterrupt):
        start_with_ctrl_c(times, started)
    assert started == [True] * is_started
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
