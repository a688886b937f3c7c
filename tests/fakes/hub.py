"""A Hub in memory on 127.0.0.1: the endpoints that a dataset push and `load_dataset` use, with faults on demand.

    with FakeHub() as hub:
        hub.fault("POST", r"/commit/", status=503, times=2)
        push(folder, org="acme", ...)              # with HF_ENDPOINT = hub.url
        hub.file("acme/name", "README.md")     # the bytes that arrived

Files become visible only by a commit, all of them or none. Every request is in `hub.requests`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

TOKEN = "hf_secretSecretSecretSecretSecret"


@dataclass(frozen=True)
class Blob:
    """One stored file."""

    data: bytes
    lfs: bool

    @property
    def oid(self) -> str:
        """The client compares it with its own file to skip what has not changed."""
        if self.lfs:
            return hashlib.sha256(self.data).hexdigest()
        return hashlib.sha1(b"blob %d\0" % len(self.data) + self.data).hexdigest()


@dataclass
class Commit:
    """One state of a repository."""

    oid: str
    files: dict[str, Blob]


@dataclass
class Repo:
    """One dataset repository; the first commit is the one that the Hub makes itself."""

    id: str
    private: bool
    commits: list[Commit] = field(default_factory=list)
    branches: dict[str, Repo] = field(default_factory=dict[str, "Repo"])
    """Other branches than main, each with commits of its own."""

    @property
    def head(self) -> Commit:
        return self.commits[-1]


@dataclass(frozen=True)
class Request:
    """One request that arrived."""

    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: bytes

    @property
    def authorised(self) -> bool:
        return "authorization" in self.headers

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Fault:
    """What the next `times` requests that match get instead of an answer."""

    method: str
    path: str
    """A regular expression, searched in the path."""
    times: int = 1
    status: int = 500
    body: str = '{"error": "made to fail"}'
    lost: bool = False
    """Serve the request, and close the connection without an answer."""
    act: Callable[[], None] | None = None
    """Called, and the request is then served as usual."""


class FakeHub:
    """The server: repositories, a token check, faults and a log. Use it as a context manager."""

    def __init__(self) -> None:
        self.whoami: dict[str, Any] = {"type": "user", "name": "alice", "orgs": [{"type": "org", "name": "acme"}]}
        self.repos: dict[str, Repo] = {}
        self.stored: dict[str, bytes] = {}
        """LFS objects by sha256: uploaded, not necessarily visible in a commit."""
        self.requests: list[Request] = []
        self.lock = threading.RLock()
        self._faults: list[Fault] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": self}))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> FakeHub:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def fault(self, method: str, path: str, **settings: Any) -> None:
        """Add a `Fault`."""
        with self.lock:
            self._faults.append(Fault(method, path, **settings))

    def note(self, request: Request) -> Fault | None:
        """Log a request; returns the fault that is due."""
        with self.lock:
            self.requests.append(request)
            for fault in self._faults:
                if fault.times > 0 and fault.method == request.method and re.search(fault.path, request.path):
                    fault.times -= 1
                    return fault
        return None

    def log(self, method: str, path: str = "") -> list[Request]:
        """The requests of one method whose path matches."""
        return [r for r in self.requests if r.method == method and re.search(path, r.path)]

    def file(self, repo_id: str, path: str) -> bytes:
        """The bytes of one file at the head of a repository."""
        return self.repos[repo_id].head.files[path].data

    def files(self, repo_id: str) -> dict[str, bytes]:
        """All files at the head of a repository, without the Hub's own `.gitattributes`."""
        head = self.repos[repo_id].head.files
        return {path: blob.data for path, blob in sorted(head.items()) if path != ".gitattributes"}

    def create(self, repo_id: str, *, private: bool = False) -> Repo:
        """Make an empty repository, as the Hub does: with one commit of its own."""
        repo = self.repos[repo_id] = Repo(repo_id, private)
        self.commit(repo, "initial commit", {".gitattributes": Blob(b"*.parquet filter=lfs\n", False)})
        return repo

    def commit(self, repo: Repo, summary: str, files: dict[str, Blob]) -> Commit:
        """Replace the head of a repository by these files."""
        text = f"{repo.id}{len(repo.commits)}{summary}" + "".join(f"{p}{b.oid}" for p, b in sorted(files.items()))
        repo.commits.append(Commit(hashlib.sha1(text.encode()).hexdigest(), files))
        return repo.head


class _AnswerError(Exception):
    """An answer other than 200, from anywhere below."""

    def __init__(self, status: int, error: str, code: str = "", **more: str) -> None:
        self.status, self.code, self.body = status, code, {"error": error} | more


class _Handler(BaseHTTPRequestHandler):
    hub: FakeHub
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: Any) -> None:
        """Silence: `hub.requests` is the log."""

    def _serve(self) -> None:
        parts = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(self.command, unquote(parts.path), parse_qs(parts.query), headers, body)
        fault = self.hub.note(request)
        if fault and fault.act:
            fault.act()
        elif fault and not fault.lost:
            self._send(fault.status, fault.body.encode(), {})
            return
        try:
            status, payload, extra = 200, *self._route(request)
        except _AnswerError as answer:
            status, payload = answer.status, json.dumps(answer.body).encode()
            extra = {"X-Error-Code": answer.code} if answer.code else {}
        except AssertionError as wrong:  # a request that the Hub would not take: no dropped connection, no retries
            status, payload, extra = 400, json.dumps({"error": f"fake Hub: {wrong!r}"}).encode(), {}
        if fault and fault.lost:
            self.close_connection = True
            return
        self._send(status, payload, extra)

    do_GET = do_HEAD = do_POST = do_PUT = _serve  # noqa: N815

    def _send(self, status: int, payload: bytes, headers: dict[str, str]) -> None:
        length = len(payload)
        if "ETag" in headers and (wanted := re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range") or "")):
            start, end = int(wanted[1]), min(int(wanted[2]), length - 1)
            headers = {**headers, "Content-Range": f"bytes {start}-{end}/{length}"}
            status, payload = 206, payload[start : end + 1]
        self.send_response(status)
        self.send_header("Content-Length", str(len(payload)))
        for name, value in {"Content-Type": "application/json", **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(payload)

    def _route(self, request: Request) -> tuple[bytes, dict[str, str]]:
        for method, pattern, name in _ROUTES:
            found = re.fullmatch(pattern, request.path)
            if found and request.method in method:
                with self.hub.lock:
                    answer = getattr(self, name)(request, **found.groupdict())
                return answer if isinstance(answer, tuple) else (json.dumps(answer).encode(), {})
        raise _AnswerError(404, f"the fake Hub has no {request.method} {request.path}")

    def _check(self, request: Request) -> None:
        if request.headers.get("authorization") != f"Bearer {TOKEN}":
            raise _AnswerError(401, "Invalid username or password.")

    def _repo(self, repo_id: str, request: Request | None = None) -> Repo:
        repo = self.hub.repos.get(repo_id)
        if repo is None or (repo.private and request is not None and not request.authorised):
            raise _AnswerError(404, "Repository not found", "RepoNotFound")
        return repo

    def _commit_at(self, repo: Repo, revision: str) -> Commit:
        named = {commit.oid: commit for commit in repo.commits} | {"main": repo.head}
        named |= {name: branch.head for name, branch in repo.branches.items()}
        if revision not in named:
            raise _AnswerError(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        return named[revision]

    def whoami(self, request: Request) -> Any:
        self._check(request)
        return self.hub.whoami

    def create(self, request: Request) -> Any:
        self._check(request)
        asked = request.json
        assert asked["type"] == "dataset"
        repo_id = f"{asked['organization']}/{asked['name']}"
        url = f"{self.hub.url}/datasets/{repo_id}"
        if repo_id in self.hub.repos:
            raise _AnswerError(409, "You already created this dataset repo", url=url)
        self.hub.create(repo_id, private=asked.get("visibility") == "private")
        return {"url": url}

    def validate(self, request: Request) -> Any:
        import yaml

        asked = request.json
        assert asked["repoType"] == "dataset"
        card = yaml.safe_load(asked["content"].split("---\n")[1])
        assert all(isinstance(config["config_name"], str) for config in card["configs"])
        return {"errors": [], "warnings": []}

    def preupload(self, request: Request, repo: str, rev: str) -> Any:
        self._check(request)
        head = self._commit_at(self._repo(repo), rev).files
        files: list[dict[str, Any]] = []
        for asked in request.json["files"]:
            assert len(base64.b64decode(asked["sample"])) == min(512, asked["size"])
            mode = "lfs" if asked["path"].endswith(".parquet") else "regular"
            there = head.get(asked["path"])
            oid = {"oid": there.oid} if there else {}
            files.append({"path": asked["path"], "uploadMode": mode, "shouldIgnore": False, **oid})
        return {"files": files}

    def lfs_batch(self, request: Request, repo: str) -> Any:
        self._check(request)
        self._repo(repo)
        asked = request.json
        assert asked["operation"] == "upload" and asked["hash_algo"] == "sha256"
        objects: list[dict[str, Any]] = []
        for item in asked["objects"]:
            actions: dict[str, Any] = {}
            if item["oid"] not in self.hub.stored:
                upload = {"href": f"{self.hub.url}/lfs-store/{item['oid']}?signature=x"}
                actions = {"actions": {"upload": upload, "verify": {"href": f"{self.hub.url}/lfs-verify"}}}
            objects.append({"oid": item["oid"], "size": item["size"], **actions})
        return {"transfer": "basic", "objects": objects}

    def lfs_put(self, request: Request, oid: str) -> Any:
        assert hashlib.sha256(request.body).hexdigest() == oid
        self.hub.stored[oid] = request.body
        return {}

    def lfs_verify(self, request: Request) -> Any:
        self._check(request)
        asked = request.json
        assert len(self.hub.stored[asked["oid"]]) == asked["size"]
        return {}

    def add_branch(self, request: Request, repo: str, rev: str) -> Any:
        self._check(request)
        there = self._repo(repo)
        if rev in there.branches:
            raise _AnswerError(409, "Reference already exists")
        there.branches[rev] = Repo(repo, there.private, there.commits[:])
        return {}

    def add_commit(self, request: Request, repo: str, rev: str) -> Any:
        self._check(request)
        there = self._repo(repo)
        there = there.branches.get(rev, there)
        files = dict(there.head.files)
        summary = ""
        for line in request.body.splitlines():
            item = json.loads(line)
            key, value = item["key"], item["value"]
            if key == "header":
                summary = value["summary"]
                if value.get("parentCommit", there.head.oid) != there.head.oid:
                    raise _AnswerError(412, "A commit has happened since. Please refresh and try again.")
            elif key == "file":
                assert value["encoding"] == "base64"
                files[value["path"]] = Blob(base64.b64decode(value["content"]), False)
            elif key == "lfsFile":
                assert value["oid"] in self.hub.stored, "it was not uploaded"
                files[value["path"]] = Blob(self.hub.stored[value["oid"]], True)
            else:
                assert key == "deletedFile", item
                del files[value["path"]]
        made = self.hub.commit(there, summary, files)
        url = f"{self.hub.url}/datasets/{repo}/commit/{made.oid}"
        return {"success": True, "commitOid": made.oid, "commitUrl": url, "hookOutput": ""}

    def info(self, request: Request, repo: str, rev: str = "main") -> Any:
        there = self._repo(repo, request)
        commit = self._commit_at(there, rev)
        siblings = [{"rfilename": path} for path in sorted(commit.files)]
        return {"id": repo, "private": there.private, "tags": [], "sha": commit.oid, "siblings": siblings}

    def tree(self, request: Request, repo: str, rev: str, path: str | None = None) -> Any:
        files = self._commit_at(self._repo(repo, request), rev).files
        recursive = request.query.get("recursive", ["false"])[0].lower() == "true"
        prefix = f"{path.strip('/')}/" if path and path.strip("/") else ""
        listed: dict[str, dict[str, Any]] = {}
        for name, blob in sorted(files.items()):
            if not name.startswith(prefix):
                continue
            inner, _, rest = name.removeprefix(prefix).partition("/")
            if rest:
                folder = prefix + inner
                listed[folder] = {"type": "directory", "path": folder, "size": 0, "oid": "0" * 40}
            if recursive or not rest:
                size = len(blob.data)
                lfs = {"lfs": {"oid": blob.oid, "size": size, "pointerSize": 130}} if blob.lfs else {}
                listed[name] = {"type": "file", "path": name, "size": size, "oid": blob.oid, **lfs}
        if prefix and not listed:
            raise _AnswerError(404, f"{path} does not exist", "EntryNotFound")
        return list(listed.values())

    def resolve(self, request: Request, repo: str, rev: str, path: str) -> Any:
        commit = self._commit_at(self._repo(repo, request), rev)
        blob = commit.files.get(path)
        if blob is None:
            raise _AnswerError(404, "Entry not found", "EntryNotFound")
        headers = {"ETag": f'"{blob.oid}"', "X-Repo-Commit": commit.oid, "Accept-Ranges": "bytes"}
        if blob.lfs:
            headers |= {"X-Linked-Etag": f'"{blob.oid}"', "X-Linked-Size": str(len(blob.data))}
        return blob.data, {**headers, "Content-Type": "application/octet-stream"}


_API = r"/api/datasets/(?P<repo>[^/]+/[^/]+)"
_ROUTES = (
    ("GET", r"/api/whoami-v2", "whoami"),
    ("POST", r"/api/repos/create", "create"),
    ("POST", r"/api/validate-yaml", "validate"),
    ("POST", rf"{_API}/preupload/(?P<rev>[^/]+)", "preupload"),
    ("POST", r"/datasets/(?P<repo>[^/]+/[^/]+)\.git/info/lfs/objects/batch", "lfs_batch"),
    ("PUT", r"/lfs-store/(?P<oid>[0-9a-f]{64})", "lfs_put"),
    ("POST", r"/lfs-verify", "lfs_verify"),
    ("POST", rf"{_API}/branch/(?P<rev>[^/]+)", "add_branch"),
    ("POST", rf"{_API}/commit/(?P<rev>[^/]+)", "add_commit"),
    ("GET", _API, "info"),
    ("GET", rf"{_API}/revision/(?P<rev>[^/]+)", "info"),
    ("GET", rf"{_API}/tree/(?P<rev>[^/]+)(?P<path>/.*)?", "tree"),
    ("GETHEAD", r"/datasets/(?P<repo>[^/]+/[^/]+)/resolve/(?P<rev>[^/]+)/(?P<path>.+)", "resolve"),
)
