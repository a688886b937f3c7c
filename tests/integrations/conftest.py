"""The datasets built from the shipped samples, a tiny model, and no network; and real model servers."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from foretrace.core.places import Address
from foretrace.objectstores.objects import S3Objects
from integrations.llama_build import Say, build, missing_compiler
from integrations.llama_server import Running, llama_server
from integrations.stores import use_server
from made_once import make_once

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
MAX_CONTEXT_TOKENS = 2048


class Built(NamedTuple):
    """A dataset folder, loaded as a user would."""

    folder: Path
    cache: Path

    def load(self, config: str, split: str = "train") -> Any:
        import datasets

        return datasets.load_dataset(str(self.folder), config, split=split, cache_dir=str(self.cache))


@pytest.fixture(scope="module")
def offline() -> Iterator[None]:
    """The Hub libraries are told that there is no network, and every connection to another machine fails."""
    for name in ("torch", "trl"):
        pytest.importorskip(name, reason=f"{name} is not installed (make test-integrations installs it)")
    import datasets
    import huggingface_hub.constants
    import torch

    torch.set_num_threads(1)  # threads that wait for each other crawl where the cores are shared
    connect = socket.socket.connect

    def refuse(self: socket.socket, address: Any) -> None:
        if self.family != socket.AF_UNIX and address[0] not in ("127.0.0.1", "::1", "localhost"):
            raise OSError(f"no network in this test: {address}")
        connect(self, address)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
        patch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
        patch.setattr(socket.socket, "connect", refuse)
        yield


@pytest.fixture(scope="module")
def built(offline: None, sample_traces: Path, tmp_path_factory: pytest.TempPathFactory) -> Built:
    """All datasets, built from the samples that ship with the package."""
    from foretrace.api.datasets import build

    def make(folder: Path) -> None:
        build(sample_traces, out=folder, max_context_tokens=MAX_CONTEXT_TOKENS)

    return Built(make_once(tmp_path_factory, "training-dataset", make), tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def corpus(built: Built) -> list[str]:
    """Text to train a tokenizer on."""
    return [m["content"] for row in built.load("trajectories") for m in row["messages"]]


@pytest.fixture(scope="module")
def tokenizer(corpus: list[str]) -> Any:
    """Byte-level BPE, like the tokenizers of nearly all chat models."""
    from integrations.tiny import train_tokenizer

    return train_tokenizer(corpus)


@pytest.fixture(scope="session")
def say(request: pytest.FixtureRequest) -> Say:
    """Say a line that is seen while the test runs."""
    capture = request.config.pluginmanager.getplugin("capturemanager")

    def line(text: str) -> None:
        with capture.global_and_fixture_disabled():
            print(f"\n{text}", flush=True)

    return line


@pytest.fixture(scope="session")
def program(say: Say) -> Path:
    """llama-server, compiled if it was not before."""
    if why := missing_compiler():
        pytest.skip(why)
    return build(say)


@pytest.fixture(scope="session")
def gguf_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo model, as scripts/export_demo_gguf.py writes it."""
    import subprocess
    import sys

    target = tmp_path_factory.mktemp("gguf") / "demo-model.gguf"
    subprocess.run([sys.executable, SCRIPTS / "export_demo_gguf.py", target], check=True)
    return target


@pytest.fixture(scope="session")
def llama(program: Path, gguf_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A llama-server with the demo model, for all tests that leave it alive."""
    with llama_server(program, gguf_file, tmp_path_factory.mktemp("llama") / "server.log") as running:
        yield running


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Running]:
    """Atropos' trajectory server."""
    from integrations.atropos_runs import run_api

    with run_api(tmp_path / "api.log") as running:
        yield running


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """An S3 server on this machine: moto in its server mode."""
    pytest.importorskip("s3fs", reason="s3fs is not installed (make test-integrations)")
    moto = pytest.importorskip("moto.server", reason="moto is not installed (make test-integrations)")
    made = moto.ThreadedMotoServer(port=0, verbose=False)
    made.start()
    host, port = made.get_host_and_port()
    yield f"http://{host}:{port}"
    made.stop()


@pytest.fixture
def bucket(server: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> S3Objects:
    """An empty bucket, with the credentials for it in the environment."""
    use_server(monkeypatch, server)
    name = f"b{abs(hash(request.node.name))}"
    made = S3Objects(Address("s3", name))
    made._files.call_s3("create_bucket", Bucket=name)
    return made
