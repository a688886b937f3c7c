"""The guarded parents, each started when a test first asks for it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import pytest

from hostile.harness import SETTINGS, Host


@pytest.fixture(scope="session")
def linux() -> None:
    if sys.platform != "linux":
        pytest.skip("the local sandbox isolates on Linux")


@pytest.fixture(scope="session")
def host(linux: None) -> Iterator[Callable[[str], Host]]:
    """The guarded parent at a setting."""
    hosts: dict[str, Host] = {}

    def get(setting: str) -> Host:
        if setting not in hosts:
            hosts[setting] = Host(SETTINGS[setting])
        if hosts[setting].raised:
            pytest.fail(f"{setting}: {hosts[setting].raised}")
        return hosts[setting]

    yield get
    for one in hosts.values():
        one.close()
