"""What is said where there is no Ray, or no cluster at the address."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from foretrace.core.errors import UsageError
from foretrace.engines.ray_tasks import ray_pool


def test_without_ray_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with (
        pytest.raises(UsageError, match=r"engine='ray' needs Ray: pip install 'foretrace\[ray\]'"),
        ray_pool(None, None, [], kept="nothing was written"),
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
                ray_pool(None, given, [Path()], kept="nothing was written"),
            ):
                pass
