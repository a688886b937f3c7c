"""The objects under one address: read, write, list and remove them; replace them only if nobody else has.

S3 itself checks whether an object is still the version that was read (conditional writes). For other stores this is
checked just before the write, so two writers at the same instant may both succeed.
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
"""The longest that the store may be silent before a request is retried."""
TRIES = 4
_AT_ONCE = 8
_LIBRARIES = {"s3": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "az": "adlfs", "abfs": "adlfs"}
_REFUSED = ("PreconditionFailed", "ConditionalRequestConflict", "NoSuchKey")
"""S3's error codes if an object is not the named version."""
_CLIENTS = ("botocore", "aiobotocore", "aiohttp", "gcsfs", "google", "azure", "huggingface_hub", "httpx", "requests")
"""Modules whose errors are treated as errors of the store."""
_WRONG_SETTINGS = ("ProfileNotFound", "PartialCredentialsError", "ConfigParseError", "ConfigNotFound", "NoRegionError")


class ChangedObjectError(StoreError):
    """Another process has created, replaced or removed the object."""


class StoredObject(NamedTuple):
    """An object that was read."""

    data: bytes
    version: str
    """Identifies this content: other content under the same name has another version."""


class Objects:
    """The objects under an address, by their names relative to it.

    Raises:
        StoreError: every request to the store may raise it, in one line, if the store is not reachable or refuses.
        UsageError: the library for such addresses is not installed.
    """

    def __init__(self, address: Address, **options: Any) -> None:
        self.address = address
        self._files = _open_file_system(address, options)

    def get(self, name: str) -> StoredObject | None:
        """The object with that name; `None` if there is none."""
        with self.report_errors("read", name):
            try:
                # The version is read before the data: if the object is replaced in between, a later `put` in place of
                # this version is refused.
                version = self._files.info(self._locate(name)).get("ETag")
                data: bytes = self._files.cat_file(self._locate(name))
            except FileNotFoundError as error:
                if _find_code(error) == "NoSuchBucket":
                    raise
                return None
            return StoredObject(data, version or _digest(data))

    def put(self, name: str, data: bytes, *, instead_of: str | None) -> str:
        """Write an object in place of the given version (`None`: of no object); returns the new version.
        ChangedObjectError if a different version is there."""
        there = self.get(name)
        if (there and there.version) != instead_of:
            raise self._make_changed_error(name)
        with self.report_errors("write", name):
            self._files.pipe_file(self._locate(name), data)
        return _digest(data)

    def list_names(self) -> list[str]:
        with self.report_errors("list"):
            try:
                found: list[str] = self._files.find(self._locate(""))
            except FileNotFoundError:
                return []
        start = self._files._strip_protocol(self._locate("")).rstrip("/") + "/"
        return sorted(name.removeprefix(start) for name in found if name.startswith(start))

    def upload(self, folder: Path, names: Sequence[str], watch: Callable[[], None] = lambda: None) -> None:
        """Upload local files; `watch` is called as each one is done. ChangedObjectError if another object has that
        name."""
        self._do_each("write", lambda name: self._send(folder / name, name), names, watch)

    def _send(self, path: Path, name: str) -> None:
        try:
            self._files.put_file(str(path), self._locate(name), mode="create")
        except OSError as error:
            if not isinstance(error, FileExistsError) and _find_code(error) not in _REFUSED:
                raise
            # An earlier attempt may have succeeded, with its answer lost.
            if (there := self.get(name)) is None or there.data != path.read_bytes():
                raise self._make_changed_error(name) from None

    def download(self, names: Sequence[str], folder: Path, watch: Callable[[], None] = lambda: None) -> None:
        """Copy objects to local files. FileNotFoundError if one of them is missing."""

        def fetch(name: str) -> None:
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            self._files.get_file(self._locate(name), str(path))

        self._do_each("read", fetch, names, watch, absent=FileNotFoundError)

    def remove(self, names: Sequence[str]) -> None:
        """Remove objects; one that does not exist counts as removed."""

        def drop(name: str) -> None:
            with contextlib.suppress(FileNotFoundError):
                self._files.rm_file(self._locate(name))

        self._do_each("remove", drop, names)

    def _do_each(
        self,
        doing: str,
        function: Callable[[str], None],
        names: Sequence[str],
        watch: Callable[[], None] = lambda: None,
        absent: type[Exception] | None = None,
    ) -> None:
        def do(name: str) -> None:
            with self.report_errors(doing, name, absent=absent):
                function(name)
            watch()

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            futures = [pool.submit(do, name) for name in names]
            try:
                for future in futures:
                    future.result()
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

    def _locate(self, name: str) -> str:
        return f"{self.address}/{name}".rstrip("/")

    def _make_changed_error(self, name: str) -> ChangedObjectError:
        return ChangedObjectError(f"{self._locate(name)}: another process has written it")

    @contextlib.contextmanager
    def report_errors(self, doing: str, name: str = "", *, absent: type[Exception] | None = None) -> Generator[None]:
        """Turn any error of the store or its library into a one-line `StoreError`; `absent` is raised if there is no
        such object."""
        place = self._locate(name)
        try:
            yield
        except StoreError:
            raise
        except Exception as error:
            if not isinstance(error, (OSError, ValueError)) and not type(error).__module__.startswith(_CLIENTS):
                raise
            if absent is not None and isinstance(error, FileNotFoundError):
                raise absent(place) from error
            if type(error).__name__ == "NoCredentialsError":
                said = "no credentials; set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            else:
                said = f"cannot {doing}: {find_first_line(error)}{self._find_remedy(error)}"
            raise StoreError(f"{place}: {said}") from error

    def _find_remedy(self, error: Exception) -> str:
        if isinstance(error, FileNotFoundError):
            return ""
        if isinstance(error, PermissionError):
            return f"; check the credentials and rights for {self.address.scheme}://"
        if isinstance(error, ValueError) or type(error).__name__ in _WRONG_SETTINGS:
            return "; check AWS_PROFILE, AWS_ENDPOINT_URL and the other settings of the store"
        return "; what was published is whole, run again when the store answers"


class S3Objects(Objects):
    """Objects in S3, which replaces an object only if it is the named version."""

    def __init__(self, address: Address) -> None:
        config = {
            "connect_timeout": CONNECT_TIMEOUT_S,
            "read_timeout": READ_TIMEOUT_S,
            "retries": {"mode": "standard", "total_max_attempts": TRIES},
        }
        super().__init__(address, config_kwargs=config)
        self._files.retries = TRIES  # for an answer that breaks off, which the client does not retry

    def put(self, name: str, data: bytes, *, instead_of: str | None) -> str:
        """See `Objects`; S3 itself checks the version."""
        condition = {"IfNoneMatch": "*"} if instead_of is None else {"IfMatch": instead_of}
        with self.report_errors("write", name):
            try:
                bucket, key, _ = self._files.split_path(self._locate(name))
                return self._files.call_s3("put_object", Bucket=bucket, Key=key, Body=data, **condition)["ETag"]
            except OSError as error:
                if _find_code(error) not in _REFUSED:
                    raise
        # An earlier attempt may have succeeded, with its answer lost.
        if (there := self.get(name)) is not None and there.data == data:
            return there.version
        raise self._make_changed_error(name)


def open_objects(place: Address) -> Objects:
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
    """The store's own code for an error; empty if it has none."""
    response: Any = getattr(error.__cause__, "response", None) or {}
    return str(response.get("Error", {}).get("Code", ""))


def _digest(data: bytes) -> str:
    """The version of an object in a store that does not provide one."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()
