"""What is said where there is no Ray, or no cluster at the address. What runs on one: tests/integrations."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

import foretrace
from foretrace.api.engines import make_engine
from foretrace.core.errors import UsageError
from foretrace.engines.processes import Processes
from foretrace.engines.ray_tasks import RayTasks


def test_without_ray_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with (
        pytest.raises(UsageError, match=r"engine='ray' needs Ray: pip install 'foretrace\[ray\]'"),
        RayTasks().open_pool(),
    ):
        pass


def test_an_address_where_nobody_answers_is_said_at_once() -> None:
    pytest.importorskip("ray", reason="Ray is not installed (pip install 'foretrace[ray]')")
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
    assert make_engine("processes", 3, None, processes=2) == Processes(3)
    assert make_engine("ray", None, "auto") == RayTasks(None, "auto")
    assert make_engine(Processes(2), None, None) == Processes(2)
    with pytest.raises(UsageError, match="ray_address='auto' is for engine='ray'"):
        foretrace.label_folder(tmp_path, out=tmp_path / "l.csv", ray_address="auto")
    with pytest.raises(UsageError, match="engine='slurm': choose processes or ray"):
        foretrace.build(tmp_path, out=tmp_path / "d", engine="slurm")  # type: ignore[arg-type]
