"""The objects under one address: read, written, listed, removed; replaced only if nobody else has.

S3 decides by itself whether an object is still the one that was read (conditional writes). Of the other stores this is
asked just before the write, so two writers in the same instant may both succeed.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from foretrace.core.errors import StoreError, UsageError, find_first_line
from foretrace.core.places import Address

CONNECT_TIMEOUT_S = 10.0
READ_TIMEOUT_S = 30.0
"""Longest silence of the store before a request is tried again."""
TRIES = 4
_AT_ONCE = 8
_LIBRARIES = {"s3": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "az": "adlfs", "abfs": "adlfs"}
_REFUSED = ("PreconditionFailed", "ConditionalRequestConflict", "NoSuchKey")
"""What S3 says where an object is not the version that is named."""
_CLIENTS = ("botocore", "aiobotocore", "aiohttp", "gcsfs", "google", "azure", "huggingface_hub", "httpx", "requests")
"""Modules whose errors are those of a store."""


_WRONG_SETTINGS = ("ProfileNotFound", "PartialCredentialsError", "ConfigParseError", "ConfigNotFound", "NoRegionError")
"""Errors that no further try would mend."""


class ChangedObjectError(StoreError):
    """Another process has made, replaced or removed the object."""


class StoredObject(NamedTuple):
    """An object that was read."""

    data: bytes
    version: str
    """What tells it from what stands there before or after."""


class Objects:
    """The objects under an address, by their names below it.

    Raises:
        StoreError: in all that asks the store: it is not reached, or refuses; one line.
        UsageError: the library for such addresses is not installed.
    """

    def __init__(self, address: Address, **options: Any) -> None:
        self.address = address
        self._files = _open_file_system(address, options)

    def get(self, name: str) -> StoredObject | None:
        """The object of that name; `None` where there is none."""
        with self.report_errors("read", name):
            try:
                # Before the data: if it is replaced between the two, what is put in the place of this version is
                # refused.
                version = self._files.info(self._locate(name)).get("ETag")
                data: bytes = self._files.cat_file(self._locate(name))
            except FileNotFoundError as error:
                if _find_code(error) == "NoSuchBucket":
                    raise
                return None
            return StoredObject(data, version or _digest(data))

    def put(self, name: str, data: bytes, *, instead_of: str | None) -> str:
        """Write an object in the place of the version that is named, or of none at all; returns its own version.

        Raises:
            ChangedObjectError: another one stands there.
        """
        there = self.get(name)
        if (there and there.version) != instead_of:
            raise self._make_changed_error(name)
        with self.report_errors("write", name):
            self._files.pipe_file(self._locate(name), data)
        return _digest(data)

    def list_names(self) -> list[str]:
        """Names of all objects, sorted."""
        with self.report_errors("list"):
            try:
                found: list[str] = self._files.find(self._locate(""))
            except FileNotFoundError:
                return []
        start = self._files._strip_protocol(self._locate("")).rstrip("/") + "/"
        return sorted(name.removeprefix(start) for name in found if name.startswith(start))

    def upload(self, folder: Path, names: Sequence[str], watch: Callable[[], None] = lambda: None) -> None:
        """Make objects of local files; `watch` is called as each is done.

        Raises:
            ChangedObjectError: there is another object of that name already.
        """

        def send(name: str) -> None:
            with self.report_errors("write", name):
                self._send(folder / name, name)
            watch()

        self._run(send, names)

    def download(self, names: Sequence[str], folder: Path, watch: Callable[[], None] = lambda: None) -> None:
        """Copy objects to local files.

        Raises:
            FileNotFoundError: one is not there.
        """

        def fetch(name: str) -> None:
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with self.report_errors("read", name, absent=FileNotFoundError):
                self._files.get_file(self._locate(name), str(path))
            watch()

        self._run(fetch, names)

    def remove(self, names: Sequence[str]) -> None:
        """Remove objects; one that is not there is none the less removed."""

        def drop(name: str) -> None:
            with self.report_errors("remove", name), contextlib.suppress(FileNotFoundError):
                self._files.rm_file(self._locate(name))

        self._run(drop, names)

    def _send(self, path: Path, name: str) -> None:
        try:
            self._files.put_file(str(path), self._locate(name), mode="create")
        except OSError as error:
            if not isinstance(error, FileExistsError) and _find_code(error) not in _REFUSED:
                raise
            # A first try to send it may have succeeded whose answer was lost.
            if (there := self.get(name)) is None or there.data != path.read_bytes():
                raise self._make_changed_error(name) from None

    def _locate(self, name: str) -> str:
        return f"{self.address}/{name}".rstrip("/")

    def _run(self, function: Callable[[str], None], names: Sequence[str]) -> None:
        if not names:
            return
        with ThreadPoolExecutor(min(_AT_ONCE, len(names))) as pool:
            futures = [pool.submit(function, name) for name in names]
            try:
                for future in futures:
                    future.result()
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

    def _make_changed_error(self, name: str) -> ChangedObjectError:
        return ChangedObjectError(f"{self._locate(name)}: another process has written it")

    @contextlib.contextmanager
    def report_errors(self, doing: str, name: str = "", *, absent: type[Exception] | None = None) -> Generator[None]:
        """Turn any error of the store or its library into a `StoreError` of one line.

        Args:
            absent: What is raised where there is no such object, or bucket; by default that is a `StoreError` too.
        """
        place = self._locate(name)
        try:
            yield
        except PermissionError as error:
            raise StoreError(
                f"{place}: cannot {doing}: {find_first_line(error)}; check the credentials and rights for "
                f"{self.address.scheme}://"
            ) from error
        except FileNotFoundError as error:
            if absent is not None:
                raise absent(place) from error
            raise StoreError(f"{place}: cannot {doing}: {find_first_line(error)}") from error
        except Exception as error:
            if not isinstance(error, (OSError, ValueError)) and not type(error).__module__.startswith(_CLIENTS):
                raise
            if type(error).__name__ == "NoCredentialsError":
                raise StoreError(
                    f"{place}: no credentials; set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
                ) from error
            remedy = "what was published is whole, run again when the store answers"
            if isinstance(error, ValueError) or type(error).__name__ in _WRONG_SETTINGS:
                remedy = "check AWS_PROFILE, AWS_ENDPOINT_URL and the other settings of the store"
            raise StoreError(f"{place}: cannot {doing}: {find_first_line(error)}; {remedy}") from error


class S3Objects(Objects):
    """Objects of S3, which replaces one only if it is the version that is named."""

    def __init__(self, address: Address) -> None:
        config = {
            "connect_timeout": CONNECT_TIMEOUT_S,
            "read_timeout": READ_TIMEOUT_S,
            "retries": {"mode": "standard", "total_max_attempts": TRIES},
        }
        super().__init__(address, config_kwargs=config)
        self._files.retries = TRIES  # of an answer that breaks off, which the client does not try again

    def put(self, name: str, data: bytes, *, instead_of: str | None) -> str:
        """See `Objects`; it is S3 that decides."""
        condition = {"IfNoneMatch": "*"} if instead_of is None else {"IfMatch": instead_of}
        with self.report_errors("write", name):
            try:
                bucket, key, _ = self._files.split_path(self._locate(name))
                return self._files.call_s3("put_object", Bucket=bucket, Key=key, Body=data, **condition)["ETag"]
            except OSError as error:
                if _find_code(error) not in _REFUSED:
                    raise
        # A first try may have succeeded whose answer was lost.
        if (there := self.get(name)) is not None and there.data == data:
            return there.version
        raise self._make_changed_error(name)


def open_objects(place: Address) -> Objects:
    """The objects under an address.

    Raises:
        UsageError: the library for such addresses is not installed.
    """
    return S3Objects(place) if place.scheme == "s3" else Objects(place)


def _open_file_system(address: Address, options: dict[str, Any]) -> Any:
    library = _LIBRARIES.get(address.scheme, "fsspec")
    try:
        importlib.import_module(library)
    except ImportError:
        raise UsageError(f"{address}: needs the library {library}: pip install {library}") from None
    fsspec: Any = importlib.import_module("fsspec")
    return fsspec.filesystem(address.scheme, skip_instance_cache=True, use_listings_cache=False, **options)


def _find_code(error: BaseException) -> str:
    """The store's own word for an error; empty where it has none."""
    response: Any = getattr(error.__cause__, "response", None) or {}
    return str(response.get("Error", {}).get("Code", ""))


def _digest(data: bytes) -> str:
    """The version of an object in a store that names none."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()
