"""What every test may use: the shared development data, and the profiles of hypothesis."""

from __future__ import annotations

import gc
import os
import signal
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture.providers import HypothesisProvider
from hypothesis.internal.constants_ast import Constants

from made_once import make_once

SHARED = Path(__file__).resolve().parents[1].parent / "shared"

EXPLORE = bool(os.environ.get("FORETRACE_EXPLORE"))
"""Whether laws are tried with other and more examples than the usual ones."""

settings.register_profile(
    "foretrace",
    deadline=None,
    max_examples=200 if EXPLORE else 25,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
    derandomize=not EXPLORE,
)
settings.register_profile("quick", settings.get_profile("foretrace"), max_examples=10)
"""That of `make test`; the integrations try each law with the examples of the other."""
settings.load_profile("foretrace")
if not EXPLORE:
    # Hypothesis draws constants of all modules that are loaded, which are others for each worker and order of tests.
    mock.patch.object(HypothesisProvider, "_local_constants", Constants()).start()


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real development data, beside the repository."""
    if not SHARED.is_dir():
        pytest.skip(f"no shared development data at {SHARED}")
    return SHARED


@pytest.fixture(scope="session")
def sample_traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All shipped samples in one traces folder: read it, never write to it."""
    from foretrace.api.traces import import_source
    from foretrace.samples import sample_files

    def make(folder: Path) -> None:
        for name, path in sample_files().items():
            import_source(name.split(":")[0], path, out=folder)

    return make_once(tmp_path_factory, "traces", make)


@pytest.fixture(scope="session")
def sample_dataset(tmp_path_factory: pytest.TempPathFactory, sample_traces: Path) -> Path:
    """The dataset of the shipped samples: read it, never write to it."""
    from foretrace.api.datasets import build

    return make_once(tmp_path_factory, "dataset", lambda folder: build(sample_traces, out=folder))


@pytest.fixture
def short_measuring(monkeypatch: pytest.MonkeyPatch) -> None:
    """`foretrace doctor` measures a sandbox's speed for a moment only: where that is not what is tested."""
    from foretrace import doctor

    monkeypatch.setattr(doctor, "_ALONE_S", 0.05)
    monkeypatch.setattr(doctor, "_ALL_WORKERS_S", 0.1)


def pytest_collection_finish() -> None:
    """The tests themselves are never garbage: do not look through them in each full collection."""
    gc.freeze()


def pytest_configure() -> None:
    """A shell's background job ignores Ctrl-C, and so would all that it starts: tests that interrupt could not."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
