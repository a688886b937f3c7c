"""Rows of a Hugging Face dataset, streamed with the `datasets` library; a local dataset folder works, too."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from foretrace.core.digest import digest
from foretrace.core.errors import SourceError, UsageError, find_first_line
from foretrace.rows.base import Drop, Hub, RawRow, RowRef


class HubRows:
    """Rows of one split, streamed: one pass downloads nothing twice, and keeps no rows in memory."""

    def __init__(self, hub: Hub, *, split: str | None = None, revision: str | None = None) -> None:
        self._hub = hub
        self._split = split or hub.split
        self._local = Path(hub.repo).is_dir()
        self._revision = None if self._local else _find_commit(hub.repo, revision)
        where = hub.repo if self._local else f"{hub.repo}@{(self._revision or '')[:12]}"
        self.label = f"{where} split {self._split}"
        self.fingerprint = f"hub:{hub.repo}@{self._revision}/{hub.config or ''}/{self._split}"
        if self._local:
            self.fingerprint += f":{_digest_folder(Path(hub.repo))}"

    def read(self, start: int = 0) -> Iterator[RawRow]:
        """Rows from number `start`."""
        stream = self._open().skip(start)
        numbers = itertools.count(start)
        try:
            for row in stream:
                at = RowRef(next(numbers), None, self._revision, self._split)
                yield RawRow(at, row if isinstance(row, dict) else Drop("not_an_object"))
        except Exception as error:  # datasets raises many kinds: its own, httpx's, fsspec's, pyarrow's
            raise SourceError(
                f"{self.label}: reading stopped at row {next(numbers)}: {find_first_line(error)}; "
                "run it again (an import goes on from its last checkpoint)"
            ) from error

    def _open(self) -> Any:
        from datasets import load_dataset

        try:
            return load_dataset(
                self._hub.repo, self._hub.config, split=self._split, streaming=True, revision=self._revision
            )
        except Exception as error:
            raise SourceError(f"{self.label}: cannot open: {find_first_line(error)}") from error


def _find_commit(repo: str, revision: str | None) -> str:
    """The current commit of the branch or tag (default: the main branch), so that every row names its revision."""
    if os.environ.get("HF_HUB_OFFLINE", "0") not in ("0", ""):
        raise UsageError(f"{repo}: HF_HUB_OFFLINE is set; name local files instead")
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError, RevisionNotFoundError

    try:
        info = HfApi().dataset_info(repo, revision=revision, timeout=20)
    except RevisionNotFoundError:
        raise SourceError(f"{repo}: has no revision {revision!r}") from None
    except RepositoryNotFoundError:
        raise SourceError(f"{repo}: no such dataset on the Hub, or it needs a token (HF_TOKEN)") from None
    except HfHubHTTPError as error:
        raise SourceError(f"{repo}: the Hub answered: {find_first_line(error)}") from None
    except Exception as error:
        raise SourceError(
            f"{repo}: cannot reach the Hugging Face Hub ({find_first_line(error)}); check the network"
        ) from error
    return info.sha or revision or "main"


def _digest_folder(folder: Path) -> str:
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    return digest(*(f"{p.relative_to(folder)}:{p.stat().st_size}:{p.stat().st_mtime_ns}" for p in files))
