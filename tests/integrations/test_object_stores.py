"""Import, label and build in a real S3 server (moto's server mode), which also fails, answers slowly, and refuses."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from yarl import URL

import foretrace
from fakes.model_server import serving
from foretrace.core import segments
from foretrace.core.errors import BuildError, StoreError
from foretrace.core.store import TraceStore
from foretrace.objectstores.folders import open_traces_for_reading
from foretrace.objectstores.objects import ChangedObjectError, S3Objects
from foretrace.rows.files import FileRows
from foretrace.sources import importing, taking
from foretrace.sources.importing import import_rows
from foretrace.sources.swe_smith import SweSmith
from integrations.stores import read_files, read_objects, use_server
from sources.raw_rows import swe_rows, write_jsonl

pytestmark = pytest.mark.integration
BUILD: dict[str, Any] = {"outcomes": "all", "statistical_gates": False, "max_context_tokens": 2048}


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> FileRows:
    return FileRows(write_jsonl(tmp_path_factory.mktemp("rows") / "r.jsonl", swe_rows(120)))


@pytest.fixture(scope="module", autouse=True)
def small_checkpoints() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(importing, "_MIN_POOL_BYTES", 0)
        patch.setattr(taking, "CHECKPOINT_ROWS", 30)
        patch.setattr(segments, "MAX_UNMERGED", 0)
        yield


@pytest.fixture(scope="module")
def local(rows: FileRows, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is made without a store: traces, labels and a dataset."""
    folder = tmp_path_factory.mktemp("local")
    import_rows(SweSmith(), [rows], folder / "t")
    foretrace.label_folder(folder / "t", out=folder / "l.parquet")
    foretrace.build(folder / "t", out=folder / "d", **BUILD)
    return folder


def test_commands_read_and_write_a_store(bucket: S3Objects, rows: FileRows, tmp_path: Path) -> None:
    place = str(bucket.address)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "foretrace", *arguments]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)

    done = run("import", "swe_smith", str(rows.path), "--out", f"{place}/t")
    assert done.returncode == 0 and f"{place}/t" in done.stdout, done.stderr
    done = run("label", f"{place}/t", "--out", f"{place}/l.parquet")
    assert done.returncode == 0 and f"{place}/l.parquet" in done.stdout, done.stderr
    build = ("--outcomes", "all", "--no-statistical-gates", "--max-context-tokens", "2048")
    done = run("build", f"{place}/t", "--out", f"{place}/d", *build)
    assert done.returncode == 0 and f"dataset: {place}/d" in done.stdout, done.stderr
    load = re.search(r"next: python -c '(.+)'", done.stdout)
    assert load is not None
    loaded = subprocess.run([sys.executable, "-c", load[1]], capture_output=True, text=True, check=False)
    assert loaded.returncode == 0 and "completion" in loaded.stdout, loaded.stderr
    done = run("build", f"{place}/none", "--out", "none")
    assert done.returncode == 1 and done.stderr.splitlines()[-1].startswith(f"foretrace: {place}/none: is not a traces")
    assert not list(tmp_path.iterdir())
    done = run("build", f"{place}/t", "--out", "d", *build)
    assert done.returncode == 0 and read_objects(bucket, "d") == read_files(tmp_path / "d")


class Interrupted(BaseException):
    pass


def interrupt_at(monkeypatch: pytest.MonkeyPatch, calls: int) -> None:
    """So many requests that write succeed, and then nothing is ever sent again, as when the process is killed."""
    left = [calls]

    def count(function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **options: Any) -> Any:
            left[0] -= 1
            if left[0] < 0:
                raise Interrupted
            return function(*arguments, **options)

        return run

    for name in ("put", "_send", "remove"):
        monkeypatch.setattr(S3Objects, name, count(getattr(S3Objects, name)))


@pytest.mark.parametrize("calls", [0, 17, 40])
def test_an_import_that_was_killed_goes_on_from_the_store(
    bucket: S3Objects, rows: FileRows, local: Path, monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    place = f"{bucket.address}/t"
    with monkeypatch.context() as patch:
        interrupt_at(patch, calls)
        with pytest.raises(Interrupted):
            import_rows(SweSmith(), [rows], place)
    if "t/manifest.json" in bucket.list_names():  # what is listed can be read by anybody
        with open_traces_for_reading(place) as folder:
            assert sum(1 for _ in TraceStore(folder).read()) % 30 == 0
    import_rows(SweSmith(), [rows], place)
    assert read_objects(bucket, "t") == read_files(local / "t")


@pytest.mark.parametrize("calls", [3])
def test_a_build_that_was_killed_shows_no_dataset_and_can_be_run_again(
    bucket: S3Objects, local: Path, monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    with monkeypatch.context() as patch:
        interrupt_at(patch, calls)
        with pytest.raises(Interrupted):
            foretrace.build(local / "t", out=f"{bucket.address}/d", **BUILD)
    assert not bucket.get("d/manifest.json").data.strip()  # type: ignore[union-attr]
    foretrace.build(local / "t", out=f"{bucket.address}/d", **BUILD)
    assert read_objects(bucket, "d") == read_files(local / "d")


def test_of_two_that_write_at_once_one_wins(bucket: S3Objects) -> None:
    assert bucket.put("o", b"1", instead_of=None)
    with pytest.raises(ChangedObjectError):
        bucket.put("o", b"2", instead_of=None)
    first = bucket.get("o")
    assert first is not None
    bucket.put("o", b"3", instead_of=first.version)
    with pytest.raises(ChangedObjectError):
        bucket.put("o", b"4", instead_of=first.version)
    assert bucket.get("o").data == b"3"  # type: ignore[union-attr]
    (won, lost), barrier = ([], []), threading.Barrier(4)

    def race(number: int) -> None:
        barrier.wait()
        try:
            won.append(S3Objects(bucket.address).put("race", str(number).encode(), instead_of=None))
        except ChangedObjectError:
            lost.append(number)

    threads = [threading.Thread(target=race, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1 and len(lost) == 3


class FaultyProxy:
    """A proxy before the server, which does to some requests what it is told."""

    def __init__(self, target: str) -> None:
        self.fault: Callable[[str, str, int], str] = lambda method, path, number: ""
        """By method, path and number of a request: "error", "slow", "cut" (before it is passed on), "lost" (after)."""
        self._target, self._requests = target, 0

    async def start(self) -> None:
        app = web.Application(client_max_size=1 << 30)
        app.router.add_route("*", "/{path:.*}", self._pass_on)
        self._session = aiohttp.ClientSession(auto_decompress=False)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        await self._session.close()
        await self._runner.cleanup()

    async def _pass_on(self, request: web.Request) -> web.Response:
        body = await request.read()
        self._requests += 1
        fault = self.fault(request.method, request.raw_path, self._requests)
        if fault == "error":
            return web.Response(status=503)
        if fault == "slow":
            await asyncio.sleep(3)
        response = web.Response()
        if fault not in ("slow", "cut"):
            url = URL(self._target + request.raw_path, encoded=True)
            headers = {key: value for key, value in request.headers.items() if key != "Expect"}
            async with self._session.request(request.method, url, data=body, headers=headers) as answer:
                kept = {key: value for key, value in answer.headers.items() if key not in ("Connection", "Date")}
                response = web.Response(status=answer.status, headers=kept, body=await answer.read())
        if fault in ("slow", "cut", "lost"):
            assert request.transport is not None
            request.transport.close()
        return response


@pytest.fixture
def proxy(server: str, bucket: S3Objects, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyProxy]:
    with serving(FaultyProxy(server)) as made:
        use_server(monkeypatch, made.url)
        yield made


@pytest.mark.parametrize("fault", ["error", "slow", "cut", "lost"])
def test_requests_that_fail_once_are_tried_again(
    proxy: FaultyProxy, bucket: S3Objects, rows: FileRows, local: Path, fault: str
) -> None:
    tried: set[tuple[str, str]] = set()

    def fail_once(method: str, path: str, number: int) -> str:
        if number % 9 or (method, path) in tried:
            return ""
        tried.add((method, path))
        return fault

    proxy.fault = fail_once
    import_rows(SweSmith(), [rows], f"{bucket.address}/t")
    assert len(tried) > 5
    assert read_objects(bucket, "t") == read_files(local / "t")
    with open_traces_for_reading(f"{bucket.address}/t") as folder:
        assert read_files(folder) == read_files(local / "t")


@pytest.mark.parametrize("fault", ["error", "cut"])
def test_a_store_that_goes_on_failing_is_named_and_what_was_published_is_whole(
    proxy: FaultyProxy, bucket: S3Objects, rows: FileRows, local: Path, fault: str
) -> None:
    place = f"{bucket.address}/t"
    proxy.fault = lambda method, path, number: fault if number > 45 else ""
    with pytest.raises(StoreError, match=f"^{place}/.*: cannot (write|read).*what was published is whole") as caught:
        import_rows(SweSmith(), [rows], place)
    assert "\n" not in str(caught.value)
    assert json.loads(bucket.get("t/manifest.json").data)["counts"]["traces"] % 30 == 0  # type: ignore[union-attr]
    proxy.fault = lambda method, path, number: ""
    import_rows(SweSmith(), [rows], place)
    assert read_objects(bucket, "t") == read_files(local / "t")


def test_what_cannot_be_used_is_said_before_work_begins(
    bucket: S3Objects, rows: FileRows, local: Path, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StoreError, match=r"s3://no-such-bucket/t/.*: cannot .*bucket does not exist"):
        import_rows(SweSmith(), [rows], "s3://no-such-bucket/t")
    bucket.put("d/other.txt", b"", instead_of=None)
    with pytest.raises(BuildError, match=r"contains 'other.txt'; choose another folder"):
        foretrace.build(local / "t", out=f"{bucket.address}/d", **BUILD)
    with pytest.raises(StoreError, match=r"is not a traces folder \(it contains 'other.txt'\); choose another folder"):
        import_rows(SweSmith(), [rows], f"{bucket.address}/d")
    for key in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY"):
        monkeypatch.delenv(f"AWS_{key}")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(StoreError, match="no credentials; set AWS_PROFILE, or AWS_ACCESS_KEY_ID and"):
        import_rows(SweSmith(), [rows], f"{bucket.address}/t")
    for name, value in (("AWS_PROFILE", "nobody"), ("AWS_ENDPOINT_URL", "nowhere")):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            with pytest.raises(StoreError, match=rf"manifest.json: cannot read: .*{value}.*; check AWS_PROFILE, AWS_"):
                foretrace.label_folder(f"{bucket.address}/t", out=local / "none.csv")
    use_server(monkeypatch, "http://127.0.0.1:9")
    with pytest.raises(
        StoreError, match=r'/t/manifest.json: cannot read: Could not connect to the endpoint URL: "http://127'
    ):
        import_rows(SweSmith(), [rows], f"{bucket.address}/t")


def test_wrong_credentials_are_said(bucket: S3Objects, rows: FileRows, monkeypatch: pytest.MonkeyPatch) -> None:
    core: Any = pytest.importorskip("moto.core.responses")
    monkeypatch.setattr(core.settings, "INITIAL_NO_AUTH_ACTION_COUNT", 0)
    with pytest.raises(
        StoreError, match=r"/t/manifest.json: cannot read: .*; check the credentials and rights for s3://"
    ):
        import_rows(SweSmith(), [rows], f"{bucket.address}/t")
