"""Push a built dataset to the Hub: a dataset repository for each kind of row, and one commit per repository."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import msgspec

from foretrace.clean.redact import Redactor
from foretrace.clean.scanner import TooSlowError
from foretrace.core.digest import digest
from foretrace.core.errors import PredictionError, PushError, Setting, UsageError, count_things, find_first_line
from foretrace.core.files import compute_sha256
from foretrace.core.places import make_local_path
from foretrace.core.predictions import digest_dataset
from foretrace.core.references import FILE as REFERENCES_FILE
from foretrace.core.references import References, read_references
from foretrace.core.report import Report
from foretrace.dataset.card import make_card, make_evaluation, put_references
from foretrace.dataset.demonstration import describe_demonstration
from foretrace.dataset.recipes.base import load_configs

_BATCH_ROWS = 64
_MAX_KNOWN = 1 << 18
"""Most digests of clean texts that are remembered: many rows share their prompts."""
_MAX_PLACES = 3

if TYPE_CHECKING:
    from huggingface_hub import CommitInfo, HfApi

NAME = "speculative-actions"
"""What the names of the repositories begin with by default."""

_T = TypeVar("_T")
_REMEDIES = {
    401: "the token was refused: check HF_TOKEN, or log in again with `hf auth login`",
    403: "no permission to write: use a token with write access to this organization",
    404: "not found: check the organization and HF_ENDPOINT",
    409: "a conflict with another change: run it again",
    412: "the repository changed during the push: run it again",
    429: "too many requests: run it again later",
}
_NETWORK_ERRORS = {"TransportError", "RequestException", "ConnectionError", "TimeoutError", "JSONDecodeError"}


def find_repositories() -> dict[str, list[str]]:
    """Name ending of each repository -> its configs, of which the first with rows is the default. They are those of
    foretrace and of installed packages: code that a dataset names is not loaded."""
    found: dict[str, list[str]] = {}
    for config in load_configs().values():
        if config.repository is not None:
            found.setdefault(config.repository, []).append(config.name)
    return found


class PushedRepository(msgspec.Struct, frozen=True):
    """What was pushed to one repository, or would be without `dry_run`."""

    repo_id: str
    url: str
    commit: str | None
    """The head of the branch afterwards; `None` in a dry run."""
    files: tuple[str, ...]
    """Paths in the repository, including the card and the manifest."""
    bytes: int
    rows: int
    skipped: bool
    """Whether the repository already had exactly these files, so that no commit was made."""
    private: bool
    """Whether it was to be made private if it was not there. Otherwise the owner's settings on the Hub decide, by
    default for public."""


class PushReport(Report, list[PushedRepository]):
    """The repositories pushed to."""


class _RepositoryPlan(NamedTuple):
    pushed: PushedRepository
    """As in a dry run."""
    configs: list[str]
    """Configs that it may hold."""
    contents: dict[str, Path | bytes]
    """By path: a file on disk, or the bytes themselves."""

    def __str__(self) -> str:
        files, rows = count_things(len(self.contents), "file"), count_things(self.pushed.rows, "row")
        return f"{files}, {rows}, {self.pushed.bytes:,} bytes to {self.pushed.repo_id}"


def push(
    dataset: str | Path,
    *,
    org: str | None = None,
    name: str | None = None,
    repo: str | None = None,
    revision: str | None = None,
    private: bool = False,
    dry_run: bool = False,
    allow_undecided: bool = False,
    token: str | None = None,
    progress: Callable[[str], None] | None = None,
) -> PushReport:
    """Push a built dataset to up to four dataset repositories of `org` on the Hugging Face Hub, or to one, `repo`.

    Each repository changes in one commit, so its readers see all of a push or nothing; an unchanged repository gets
    none. The commit removes Parquet files of an earlier push that this dataset does not have.

    Args:
        dataset: What `foretrace build` wrote.
        org: Organization or user on the Hub.
        name: What the names of the repositories begin with; two datasets of one organization need two.
        repo: OWNER/NAME of one repository for all configs, instead of an organization.
        revision: Branch to push to, made if absent (default: main).
        private: Make new repositories private.
        dry_run: Say what would be sent, and send nothing; needs no token and no network.
        allow_undecided: Push even if a gate had too few rows to decide.
        token: Token of the Hub; None finds it as huggingface_hub does (HF_TOKEN, then the stored login).
        progress: Called with each progress line.

    Raises:
        UsageError: `org`, `name` or `repo` is not a valid name on the Hub.
        PushError: no built dataset, traces of the demo model, a gate that does not pass, no access, or the Hub failed.
    """
    dataset, progress = make_local_path(dataset), progress or (lambda line: None)
    if (org is None) == (repo is None):
        raise UsageError("push takes either ", Setting("org", "NAME"), " or ", Setting("repo", "OWNER/NAME"))
    if repo is not None and name not in (None, NAME):
        raise UsageError(Setting("name", name), " is for ", Setting("org"), ": ", Setting("repo"), " is a whole name")
    if revision is not None and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._/-]*", revision):
        raise UsageError(Setting("revision", revision), ": is not the name of a branch")
    found, name = find_repositories(), NAME if name is None else name
    if repo is None:
        held = {f"{org}/{name}-{ending}": configs for ending, configs in found.items()}
        _check_name(str(org), Setting("org", org), is_whole=False)
        for repo_id in held:
            _check_name(repo_id, Setting("name", name))
    else:
        held = {repo: [config for configs in found.values() for config in configs]}
        _check_name(repo, Setting("repo", repo))
    manifest, raw = _read_manifest(dataset)
    if demonstration := describe_demonstration(json.loads(raw)):
        raise PushError(f"{dataset}: {demonstration}, and is never pushed: build one without them")
    _check_gates(dataset, manifest.gates, allow_undecided=allow_undecided)
    base = (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")
    url = f"{base}/datasets/{{}}" + ("" if revision is None else f"/tree/{revision}")
    plans = list(_plan_repositories(dataset, held, manifest, raw, url, private))
    if not plans:
        raise PushError(f"{dataset}: holds no rows of a config that has a repository: nothing to push")
    _refuse_secrets(dataset, plans)
    if dry_run:
        for plan in plans:
            progress(f"would push {plan}")
        return PushReport(plan.pushed for plan in plans)
    hub = _Hub(token, progress, revision)
    hub.check_access(next(iter(held)).partition("/")[0])
    # create and check every repository before changing any
    heads = [hub.prepare(plan.pushed.repo_id, private=private) for plan in plans]
    return PushReport(map(hub.commit, plans, heads))


def _check_name(text: str, given: Setting, *, is_whole: bool = True) -> None:
    """Refuse what cannot be OWNER/NAME on the Hub (or OWNER, unless `is_whole`), and blame the given setting for it."""
    from huggingface_hub.utils import HFValidationError, validate_repo_id  # imported late: it reads the environment

    try:
        validate_repo_id(text)
    except HFValidationError as error:
        raise UsageError(given, f" cannot be used on the Hub: {find_first_line(error)}") from None
    if ("/" in text) != is_whole:
        raise UsageError(given, f": is not {'OWNER/NAME' if is_whole else 'one name'}")


def find_unpushed_configs(dataset: Path) -> list[str]:
    """Configs with rows that `push` leaves out because they belong to no repository."""
    manifest, _ = _read_manifest(dataset)
    pushed = {config for held in find_repositories().values() for config in held}
    return sorted(name for name, splits in manifest.configs.items() if splits and name not in pushed)


class _Split(msgspec.Struct):
    rows: int
    sha256: dict[str, str]


class _Gate(msgspec.Struct):
    name: str
    verdict: str


class _Manifest(msgspec.Struct):
    """The part of a manifest that is read."""

    schema_version: Literal[1]
    configs: dict[str, dict[str, _Split]]
    gates: list[_Gate]


def _read_manifest(dataset: Path) -> tuple[_Manifest, bytes]:
    try:
        raw = (dataset / "manifest.json").read_bytes()
        return msgspec.json.decode(raw, type=_Manifest), raw
    except (OSError, msgspec.DecodeError) as error:
        why = f"its manifest.json: {find_first_line(error)}"
        if isinstance(error, OSError):
            why = "it has no manifest.json" if dataset.is_dir() else "there is no such folder"
        raise PushError(f"{dataset}: is not a built dataset ({why}): give a folder that `build` wrote") from None


def _check_gates(dataset: Path, gates: Sequence[_Gate], *, allow_undecided: bool) -> None:
    failed = ", ".join(gate.name for gate in gates if gate.verdict not in ("pass", "undecided", "removed"))
    if failed:
        raise PushError(f"{dataset}: failed gates: {failed}: a failed dataset is never pushed, build it again")
    undecided = ", ".join(gate.name for gate in gates if gate.verdict == "undecided")
    if (undecided or not gates) and not allow_undecided:
        what = f"undecided gates: {undecided}" if gates else "no gate was run"
        raise PushError(f"{dataset}: {what}: build with more data, or push with ", Setting("allow_undecided", True))


def _plan_repositories(
    dataset: Path, repositories: Mapping[str, list[str]], manifest: _Manifest, raw: bytes, url: str, private: bool
) -> Iterator[_RepositoryPlan]:
    """The repositories for this folder, given their configs by id, after checking every file against the manifest."""
    for config in {config for held in repositories.values() for config in held}:
        _check_files(dataset, config, manifest.configs.get(config, {}))
    references = _read_references(dataset)
    known = load_configs()
    described: dict[str, Any] = json.loads(raw)
    for repo_id, held in repositories.items():
        present = {config: splits for config in held if (splits := manifest.configs.get(config))}
        if not present:
            continue
        configs = [known[config] for config in present]
        card = make_card(described, configs, repo_id)
        contents: dict[str, Path | bytes] = {"manifest.json": raw}
        if references is not None and any(config.has_references for config in configs):
            card = put_references(card, references)
            contents[REFERENCES_FILE] = (dataset / REFERENCES_FILE).read_bytes()
        contents["README.md"] = card.encode()
        if evaluation := make_evaluation(described, configs, repo_id):
            contents["eval.yaml"] = evaluation.encode()
        splits = [split for of_config in present.values() for split in of_config.values()]
        contents |= {path: dataset / path for split in splits for path in split.sha256}
        size = sum(len(c) if isinstance(c, bytes) else c.stat().st_size for c in contents.values())
        files, rows = tuple(sorted(contents)), sum(split.rows for split in splits)
        pushed = PushedRepository(repo_id, url.format(repo_id), None, files, size, rows, False, private)
        yield _RepositoryPlan(pushed, held, contents)


def _read_references(dataset: Path) -> References | None:
    try:
        found = read_references(dataset)
        return found if found is not None and found.dataset == digest_dataset(dataset) else None
    except PredictionError as error:
        raise PushError(*error.parts) from None


def _refuse_secrets(dataset: Path, plans: Sequence[_RepositoryPlan]) -> None:
    """Refuse to send files that contain secrets or cannot be searched. The secrets themselves are never shown."""
    redactor = Redactor()
    counts = Counter[str]()
    places: list[str] = []
    known: set[str] = set()
    for name, content in (item for plan in plans for item in plan.contents.items()):
        for group in _read_texts(name, content):
            marked = {digest(text, size=16): (place, text) for place, text in reversed(group)}
            unknown = [item for mark, item in marked.items() if mark not in known]
            if len(known) < _MAX_KNOWN:
                known |= marked.keys()
            try:
                found = redactor.count_types([text for _, text in unknown])
            except TooSlowError:
                why = "a text takes too long to look through for secrets: nothing is pushed"
                raise PushError(f"{dataset}: {why}") from None
            for number, types in found.items():
                counts.update(types)
                places.append(unknown[number][0])
    if counts:
        told = ", ".join(f"{count:,} {name}" for name, count in sorted(counts.items()))
        first = "; ".join(list(dict.fromkeys(places))[:_MAX_PLACES])
        raise PushError(
            f"{dataset}: holds what may be secrets or user names: {told}; first in {first}: scrub the traces, and "
            "build again"
        )


def _read_texts(name: str, content: Path | bytes) -> Iterator[list[tuple[str, str]]]:
    """Places and texts of a file in batches: of a Parquet file whose rows have a key, or of a text file."""
    if isinstance(content, bytes):
        yield [(name, content.decode("utf-8", "replace"))]
        return
    import pyarrow.parquet as pq

    with pq.ParquetFile(content) as file:
        first = 0
        for batch in file.iter_batches(batch_size=_BATCH_ROWS, use_threads=False):
            rows: list[dict[str, Any]] = batch.to_pylist()
            places = (f"{name} row {number} (key {row.get('key')})" for number, row in enumerate(rows, first))
            yield [(place, text) for place, row in zip(places, rows, strict=True) for text in _list_texts(row)]
            first += len(rows)


def _list_texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for each in (*value, *value.values()) if isinstance(value, dict) else value:
            yield from _list_texts(each)


def _check_files(dataset: Path, config: str, splits: Mapping[str, _Split]) -> None:
    """Refuse a config if one of its files is missing, or was changed or added after its gates ran."""
    listed = {path: sha256 for split in splits.values() for path, sha256 in split.sha256.items()}
    there = {path.relative_to(dataset).as_posix() for path in (dataset / config).rglob("*.parquet")}
    for path in sorted(there ^ listed.keys()):
        why = "is not in the manifest, so no gate has seen it" if path in there else "is missing"
        raise PushError(f"{dataset}: {path} {why}: build it again")
    for path, sha256 in listed.items():
        if compute_sha256(dataset / path) != sha256:
            raise PushError(f"{dataset}: {path} was changed after it was built: build it again")


class _Hub:
    """The Hub client, with one-line errors. No exception contains the token or a request."""

    def __init__(self, token: str | None, report: Callable[[str], None], revision: str | None) -> None:
        from huggingface_hub import HfApi, get_token  # imported late: it reads the environment

        self._report = report
        self._revision = revision
        self._token = ""
        found = token or self._call("finding the token", get_token)
        if not found:
            raise PushError("no Hub token: set HF_TOKEN to a token with write access, or run `hf auth login`")
        # checked here because the client would quote an impossible header, token and all
        if not re.fullmatch(r"[\x21-\x7e]+", found):
            raise PushError("the Hub token holds spaces or characters that no token has: check HF_TOKEN")
        self._token = found
        endpoint = (os.environ.get("HF_ENDPOINT") or "").rstrip("/") or None
        self._api: HfApi = HfApi(endpoint=endpoint, token=found, library_name="foretrace")

    def check_access(self, org: str) -> None:
        """Ask who the token belongs to: the client reports a wrong organization late, after creating repositories."""
        who: dict[str, Any] = self._call("checking the token", self._api.whoami)
        name, orgs = str(who.get("name", "")), [str(each.get("name", "")) for each in who.get("orgs") or ()]
        if org.lower() not in {each.lower() for each in (name, *orgs)}:
            raise PushError(f"{name} is not a member of {org}, only of: {', '.join(sorted(orgs)) or 'none'}")

    def prepare(self, repo_id: str, *, private: bool) -> str | None:
        # not False: an organization whose repositories are private by default keeps them so
        visibility = private or None
        make = partial(self._api.create_repo, repo_id, repo_type="dataset", private=visibility, exist_ok=True)
        self._call(f"making {repo_id}", make)
        if (branch := self._revision) is not None:
            make = partial(self._api.create_branch, repo_id, branch=branch, repo_type="dataset", exist_ok=True)
            self._call(f"making the branch {branch} of {repo_id}", make)
        info = self._call(f"reading {repo_id}", partial(self._api.dataset_info, repo_id, revision=self._revision))
        if private and not info.private:
            raise PushError(f"{repo_id} is there already and is public: make it private on the Hub first")
        return info.sha

    def commit(self, plan: _RepositoryPlan, before: str | None) -> PushedRepository:
        from huggingface_hub import CommitOperationAdd, CommitOperationDelete

        api, repo_id = self._api, plan.pushed.repo_id
        message = f"Push {count_things(plan.pushed.rows, 'row')} with foretrace"
        settings: dict[str, Any] = {"repo_type": "dataset", "commit_message": message}
        self._report(f"pushing {plan}")
        configs = "|".join(map(re.escape, plan.configs))

        def send() -> CommitInfo:
            now = api.dataset_info(repo_id, revision=self._revision)
            there = {sibling.rfilename for sibling in now.siblings or []} - set(plan.contents)
            gone = [path for path in sorted(there) if re.fullmatch(rf"({configs})/.*\.parquet", path)]
            added = [CommitOperationAdd(path, content) for path, content in plan.contents.items()]
            changes = [*map(CommitOperationDelete, gone), *added]
            return api.create_commit(repo_id, changes, parent_commit=now.sha, revision=self._revision, **settings)

        made = self._call(f"pushing {repo_id}", send)
        skipped = made.oid == before
        self._report(f"{repo_id}: {'no change' if skipped else f'commit {made.oid[:8]}'}")
        return msgspec.structs.replace(plan.pushed, commit=made.oid, skipped=skipped)

    def _call(self, what: str, do: Callable[[], _T]) -> _T:
        """Call the client, which retries uploads itself; a failure becomes one line."""
        try:
            return do()
        except Exception as error:
            line = self._describe_failure(what, error)
        # outside the handler, to drop the exception that holds the request, token included
        raise PushError(line)

    def _describe_failure(self, what: str, error: Exception) -> str:
        # the client wraps upload errors; compared by name, because its HTTP library differs between versions
        root = error.__cause__ if type(error) is RuntimeError and error.__cause__ else error
        response: Any = getattr(root, "response", None)
        if response is not None:
            status = int(response.status_code)
            remedy = _REMEDIES.get(status, "the Hub failed: run it again later" if status >= 500 else "")
            said = self._hide_token(getattr(root, "server_message", None) or "")
            return f"{what}: HTTP {status}{remedy and ', '}{remedy}{said and f' (it says: {said})'}"
        said = f"{what}: {type(root).__name__}: {self._hide_token(str(root))}"
        is_unreachable = _NETWORK_ERRORS & {kind.__name__ for kind in type(root).__mro__}
        return f"{said}: check the network and HF_ENDPOINT, and run it again" if is_unreachable else said

    def _hide_token(self, text: str) -> str:
        return " ".join(text.split()).replace(self._token or "\n", "<token>")[:300]
