"""Pushing with the real Hub client to a Hub in memory: what arrives, what is refused, what survives a fault."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fakes.hub import TOKEN, Blob, FakeHub
from foretrace.core.errors import PushError, UsageError
from foretrace.core.files import compute_sha256
from foretrace.dataset.push import NAME, find_repositories, find_unpushed_configs, push

PROPOSER = "acme/speculative-actions-proposer-sft"
VERIFIER = "acme/speculative-actions-verifier-pref"
SPLITS = ("train", "validation", "test")
REPOSITORIES = find_repositories()


def table(config: str, split: str, rows: int) -> pa.Table:
    message = pa.struct([("role", pa.string()), ("content", pa.string())])
    prompt = [[{"role": "user", "content": f"{config} {split} {i} \u00e9"}] for i in range(rows)]
    ids = [f"{config}-{split}-{i}" for i in range(rows)]
    return pa.table({"id": ids, "prompt": pa.array(prompt, pa.list_(message))})


def build(folder: Path, *, configs: dict[str, tuple[str, ...]] | None = None) -> Path:
    """A dataset folder as `foretrace build` leaves it."""
    configs = configs or {config: SPLITS for held in REPOSITORIES.values() for config in held}
    listed: dict[str, Any] = {}
    for config, splits in configs.items():
        (folder / config).mkdir(parents=True)
        for split in splits:
            path = f"{config}/{split}-00000-of-00001.parquet"
            rows = {"train": 5, "validation": 2, "test": 3}[split]
            pq.write_table(table(config, split, rows), folder / path)
            sha256 = {path: compute_sha256(folder / path)}
            listed.setdefault(config, {})[split] = {"rows": rows, "files": [path], "sha256": sha256}
    manifest = {
        "schema_version": 1,
        "counts": {"traces": 7, "assistant_messages": 40},
        "licenses": {"CC-BY-4.0": 5, "MIT": 2},
        "sources": {"own:train": 7},
        "settings": {"max_context_tokens": 8192},
        "token_counter": "utf-8 bytes / 3.5",
        "actions": {"train": {"file_read": 40}},
        "families": {},
        "drops": {},
        "warnings": [],
        "gates": [{"name": "no_leak", "verdict": "pass", "detail": "0 of 7 tasks in two splits"}],
        "configs": listed,
    }
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1))
    (folder / "README.md").write_text("---\nlicense: mit\n---\nthe card of the whole build\n")
    return folder


def edit(folder: Path, **changes: Any) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    return build(tmp_path / "dataset")


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return build(tmp_path / "dataset", configs={"proposer": ("train",)})


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeHub]:
    import huggingface_hub.constants as constants
    from huggingface_hub.utils import close_session

    # read from the environment when the client was imported, which another test may have done already
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    with FakeHub() as fake:
        monkeypatch.setenv("HF_ENDPOINT", fake.url)
        yield fake
        close_session()


@pytest.fixture(autouse=True)
def no_token_shown(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    """No test may print or log the token, at any level."""
    with caplog.at_level(logging.DEBUG):
        for name in ("huggingface_hub", "httpx2", "httpcore2", "httpx", "httpcore"):
            logging.getLogger(name).setLevel(logging.DEBUG)
        logging.getLogger("huggingface_hub").propagate = True
        yield
    logging.getLogger("huggingface_hub").setLevel(logging.WARNING)
    logged = "".join(f"{record.getMessage()}{vars(record)}" for record in caplog.records)
    shown = "".join(capfd.readouterr())
    assert TOKEN not in logged + shown


def refused(dataset: Path, org: str | None = None, *, kind: type[Exception] = PushError, **settings: Any) -> str:
    """The one line of a push that must fail; nothing reachable from the exception holds the token."""
    lines: list[str] = []
    with pytest.raises(kind) as caught:
        push(dataset, org=org, progress=lines.append, **settings)
    text = str(caught.value)
    assert "\n" not in text and len(text) < 700
    shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value) + "".join(lines)
    assert TOKEN not in shown and settings.get("token", TOKEN) not in shown
    # `raise ... from None` keeps the context, and a crash report prints it: none of the client's may be there
    assert caught.value.__cause__ is None and not hasattr(caught.value.__context__, "request")
    return text


def on_disk(folder: Path, configs: Iterable[str]) -> dict[str, bytes]:
    paths = [path for config in configs for path in (folder / config).rglob("*.parquet")]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def test_push_arrives_byte_for_byte_in_one_commit_a_repository(hub: FakeHub, dataset: Path) -> None:
    done = push(dataset, org="acme")
    assert [p.repo_id for p in done] == [f"acme/speculative-actions-{ending}" for ending in REPOSITORIES]
    for pushed, configs in zip(done, REPOSITORIES.values(), strict=True):
        repo = hub.repos[pushed.repo_id]
        arrived = hub.files(pushed.repo_id)
        card = arrived.pop("README.md")
        assert arrived.pop("manifest.json") == (dataset / "manifest.json").read_bytes()
        assert arrived == on_disk(dataset, configs) and len(arrived) == 3 * len(configs)
        assert len(repo.commits) == 2 and not repo.private and not pushed.skipped
        assert (pushed.commit, pushed.url) == (repo.head.oid, f"{hub.url}/datasets/{pushed.repo_id}")
        assert set(pushed.files) == {*arrived, "README.md", "manifest.json"}
        assert pushed.bytes == sum(map(len, hub.files(pushed.repo_id).values()))
        assert pushed.rows == 10 * len(configs)
        assert f'load_dataset("{pushed.repo_id}", "{configs[0]}")'.encode() in card
    assert all(r.authorised for r in hub.requests if not r.path.startswith("/lfs-store/"))
    assert not any(r.authorised for r in hub.log("PUT"))
    assert hub.requests[0].path == "/api/whoami-v2"
    assert all("visibility" not in r.json for r in hub.log("POST", "/repos/create"))  # the organization decides


def test_one_repository_holds_all_configs_on_a_branch(hub: FakeHub, dataset: Path) -> None:
    (done,) = push(dataset, repo="acme/mine", revision="v2")
    configs = tuple(config for held in REPOSITORIES.values() for config in held)
    (repo,) = hub.repos.values()
    assert (repo.id, done.repo_id, done.rows, len(repo.commits)) == ("acme/mine", "acme/mine", 10 * len(configs), 1)
    arrived = {path: blob.data for path, blob in repo.branches["v2"].head.files.items()}
    assert f'load_dataset("acme/mine", "{configs[0]}")'.encode() in arrived.pop("README.md")
    assert arrived.pop("manifest.json") and on_disk(dataset, configs).items() <= arrived.items()
    (again,) = push(dataset, repo="acme/mine", revision="v2")
    assert again.skipped and len(repo.branches["v2"].commits) == 2
    for org, repo_id in ((None, None), ("acme", "acme/mine")):
        with pytest.raises(UsageError, match="either"):
            push(dataset, org=org, repo=repo_id)
    for name in ("acme", "acme/", "/mine", "acme/a/b", "a b/c", "acme/-a", "acme/a.", "acme/a.git", f"acme/{'a' * 97}"):
        with pytest.raises(UsageError, match="repo="):
            push(dataset, repo=name)


@pytest.mark.parametrize("name", ["", "a/b", "../x", "a b", "-a", "a-", "a--b", "a..b", "a" * 97])
def test_name_that_no_repository_can_have(hub: FakeHub, small: Path, name: str) -> None:
    """Only the name that was given is blamed."""
    assert refused(small, "acme", name=name, kind=UsageError).startswith(f"name={name!r} ")
    assert refused(small, name, kind=UsageError).startswith(f"org={name!r}")
    assert not hub.requests


def test_second_push_makes_no_commit(hub: FakeHub, dataset: Path) -> None:
    first = push(dataset, org="acme")
    hub.requests.clear()
    second = push(dataset, org="acme")
    assert all(p.skipped for p in second) and [p.commit for p in second] == [p.commit for p in first]
    assert not hub.log("POST", "/commit/") and not hub.log("PUT")
    assert all(len(repo.commits) == 2 for repo in hub.repos.values())


def test_a_smaller_push_removes_what_is_gone_and_sends_only_changes(hub: FakeHub, tmp_path: Path) -> None:
    push(build(tmp_path / "a"), org="acme")
    repo = hub.repos[PROPOSER]
    # another shard count would otherwise leave shards that no card lists; what is not ours stays
    more = {"proposer/train-00001-of-00002.parquet": Blob(b"PAR1", True), "notes.md": Blob(b"by hand", False)}
    hub.commit(repo, "by hand", {**repo.head.files, **more})
    hub.requests.clear()
    (pushed,) = push(build(tmp_path / "b", configs={"proposer": ("train", "validation")}), org="acme")
    kept = {"proposer/train-00000-of-00001.parquet", "proposer/validation-00000-of-00001.parquet"}
    assert set(hub.files(PROPOSER)) == {"README.md", "manifest.json", "notes.md", *kept}
    assert set(pushed.files) == {"README.md", "manifest.json", *kept}
    assert len(hub.log("POST", "/commit/")) == 1 and not hub.log("PUT")


def test_dry_run_makes_no_request_and_needs_no_token(hub: FakeHub, dataset: Path, monkeypatch: Any) -> None:
    monkeypatch.delenv("HF_TOKEN")
    lines: list[str] = []
    dry = push(dataset, org="acme", dry_run=True, progress=lines.append)
    other = push(dataset, org="acme", name="my-agent_2.0", dry_run=True)
    assert [p.repo_id for p in other] == [f"acme/my-agent_2.0-{ending}" for ending in REPOSITORIES]
    assert not hub.requests and len(lines) == 4 and "would push 5 files, 10 rows" in lines[0]
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    done = push(dataset, org="acme")
    assert all(p.commit is None for p in dry)
    assert "new repositories would be public" in str(dry)
    assert "new repositories would be private" in str(push(dataset, org="acme", dry_run=True, private=True))
    same = [(p.repo_id, p.url, p.files, p.bytes, p.rows) for p in dry]
    assert same == [(p.repo_id, p.url, p.files, p.bytes, p.rows) for p in done]


def test_a_wrong_token_or_organization_is_refused_before_anything_is_made(
    hub: FakeHub, small: Path, monkeypatch: Any
) -> None:
    text = refused(small, "acme", token="hf_wrongWrongWrongWrong")
    assert "401" in text and "HF_TOKEN" in text
    hub.whoami |= {"orgs": [{"name": "other"}]}
    assert "not a member of acme, only of: other" in refused(small, "acme")
    assert [r.path for r in hub.requests] == ["/api/whoami-v2"] * 2 and not hub.repos
    monkeypatch.delenv("HF_TOKEN")
    text = refused(small, "acme")
    assert "HF_TOKEN" in text and "hf auth login" in text and len(hub.requests) == 2


@pytest.mark.parametrize("token", [TOKEN + "\nX-Evil: 1", TOKEN + "\x01", TOKEN + "\u2026", " " + TOKEN])
def test_token_that_no_header_can_hold_is_not_quoted(hub: FakeHub, small: Path, token: str) -> None:
    assert "HF_TOKEN" in refused(small, "acme", token=token)
    assert not hub.requests


def test_token_echoed_by_the_server_is_not_repeated(hub: FakeHub, small: Path) -> None:
    hub.fault("POST", "/commit/", status=403, body=json.dumps({"error": f"bad token\n{TOKEN}"}))
    assert "<token>" in refused(small, "acme")


REQUESTS = [
    ("POST", "/repos/create"),
    ("GET", "/api/datasets/"),
    ("POST", "validate-yaml"),
    ("POST", "/preupload/"),
    ("POST", "objects/batch"),
    ("PUT", "lfs-store"),
    ("POST", "lfs-verify"),
    ("POST", "/commit/"),
]


SAID = {403: "no permission to write", 404: "not found", 409: "a conflict", 400: "not yours", 500: "the Hub failed"}
REFUSALS = [
    *((*request, 403) for request in REQUESTS),
    *((*request, 500) for request in REQUESTS if request[0] != "GET"),
    *(("POST", "/commit/", status) for status in (400, 404, 409)),
]


@pytest.mark.parametrize(("method", "path", "status"), REFUSALS)
def test_a_refusal_anywhere_is_one_line_and_no_content(
    hub: FakeHub, small: Path, monkeypatch: Any, method: str, path: str, status: int
) -> None:
    """Whatever failed, and although the client tries some requests again."""
    really = time.sleep
    monkeypatch.setattr(time, "sleep", lambda seconds: really(0.001))
    hub.fault(method, path, status=status, times=10_000, body=json.dumps({"error": "not\nyours"}))
    # create_repo looks whether a forbidden repository is there, so both calls are refused
    hub.fault("GET", "/api/datasets/", status=403, times=99 if status == 403 and "create" in path else 0)
    text = refused(small, "acme")
    assert f"HTTP {status}" in text and SAID[status] in text and "<html" not in text
    assert len(hub.log(method, path)) <= 6
    assert PROPOSER not in hub.repos or not hub.files(PROPOSER)


def test_after_a_failed_commit_the_next_push_finishes(hub: FakeHub, small: Path) -> None:
    hub.create(PROPOSER)
    old = {"proposer/test-00000-of-00001.parquet": Blob(b"PAR1", True)}
    hub.commit(hub.repos[PROPOSER], "old", {**hub.repos[PROPOSER].head.files, **old})
    hub.fault("POST", "/commit/", lost=True)
    assert "run it again" in refused(small, "acme")
    (pushed,) = push(small, org="acme")
    assert pushed.skipped and len(hub.repos[PROPOSER].commits) == 3  # only the answer was lost
    assert not old.keys() & hub.files(PROPOSER).keys()


def test_someone_else_pushed_meanwhile(hub: FakeHub, small: Path) -> None:
    def meanwhile() -> None:
        with hub.lock:
            repo = hub.repos[PROPOSER]
            hub.commit(repo, "other", {**repo.head.files, "other.md": Blob(b"x", False)})

    hub.fault("POST", "/preupload/", act=meanwhile)
    assert "HTTP 412, the repository changed during the push" in refused(small, "acme")
    assert set(hub.files(PROPOSER)) == {"other.md"}
    assert set(push(small, org="acme")[0].files) < set(hub.files(PROPOSER))


def test_private_is_never_pushed_to_a_public_repository(hub: FakeHub, dataset: Path) -> None:
    hub.create(f"acme/speculative-actions-{list(REPOSITORIES)[-1]}")
    assert "is there already and is public" in refused(dataset, "acme", private=True)
    assert not any(hub.files(name) for name in hub.repos) and not hub.log("PUT")


def test_killed_half_way_shows_nothing_and_the_next_push_finishes(hub: FakeHub, dataset: Path, tmp_path: Path) -> None:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "HUGGING", "TRANSFORMERS"))}
    env = {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "hf"), "HF_TOKEN": TOKEN, "HF_HUB_DISABLE_XET": "1"}
    code = "import sys, foretrace; foretrace.push(sys.argv[1], org='acme')"
    command, pipe = [sys.executable, "-c", code, str(dataset)], subprocess.PIPE
    arrived, go_on, puts = threading.Event(), threading.Event(), iter(range(100))

    def stall() -> None:
        # the third file of the verifier's repository: its first ones are stored already
        if next(puts) >= 5:
            arrived.set()
            go_on.wait(20)

    hub.fault("PUT", "lfs-store", times=99, act=stall)
    process = subprocess.Popen(command, env=kept | env, stdout=pipe, stderr=pipe, text=True)
    assert arrived.wait(20)
    process.kill()
    out, err = process.communicate()
    go_on.set()
    assert TOKEN not in out + err
    # a repository is whole or empty
    assert len(hub.files(PROPOSER)) == 5 and len(hub.stored) >= 3
    assert not any(hub.files(name) for name in hub.repos if name != PROPOSER)
    done = push(dataset, org="acme")
    assert [p.skipped for p in done] == [True, False, False, False]
    assert all(len(repo.commits) == 2 for repo in hub.repos.values())


def gate(verdict: str, name: str = "shortcut") -> dict[str, str]:
    return {"name": name, "verdict": verdict, "detail": "0.61 on 12 rows"}


def test_gates_decide(hub: FakeHub, small: Path) -> None:
    edit(small, gates=[gate("pass"), gate("undecided", "paired")])
    for dry_run in (False, True):
        text = refused(small, "acme", dry_run=dry_run)
        assert "undecided gates: paired" in text and "allow_undecided=True" in text and "shortcut" not in text
    for verdict in ("fail", "FAIL", "skipped", ""):
        edit(small, gates=[gate("pass"), gate(verdict, "leak"), gate("undecided", "paired")])
        text = refused(small, "acme", allow_undecided=True)
        assert "failed gates: leak" in text and "paired" not in text
    edit(small, gates=[])
    assert "no gate was run" in refused(small, "acme")
    assert not hub.requests
    edit(small, gates=[gate("undecided")])
    assert not push(small, org="acme", allow_undecided=True)[0].skipped
    assert b"| shortcut | UNDECIDED | 0.61 on 12 rows |" in hub.file(PROPOSER, "README.md")


TRAIN, TEST = (f"proposer/{split}-00000-of-00001.parquet" for split in ("train", "test"))
ELSEWHERE = {"proposer": {"train": {"rows": 5, "sha256": {"../proposer/train-0.parquet": ""}}}}
DAMAGES: dict[str, tuple[dict[str, Any], str, bytes | None]] = {
    "`build` wrote": ({}, "manifest.json", None),
    "is not a built dataset": ({}, "manifest.json", b"[]"),
    "Invalid enum value 2": ({"schema_version": 2}, "README.md", None),
    "Expected `array`, got `null` - at `$.gates`": ({"gates": None}, "README.md", None),
    "nothing to push": ({"configs": {}}, TRAIN, None),
    "train-00000-of-00001.parquet is missing": ({}, TRAIN, None),
    "../proposer/train-0.parquet is missing": ({"configs": ELSEWHERE}, "README.md", None),
    "was changed after it was built": ({}, TRAIN, b"PAR1PAR1"),
    "is not in the manifest": ({}, TEST, b""),
}
"""What is told -> what the manifest says instead, and a file with its new bytes; `None` removes it."""


@pytest.mark.parametrize("told", DAMAGES)
def test_what_is_not_a_built_dataset_is_refused_before_any_request(hub: FakeHub, small: Path, told: str) -> None:
    changes, file, data = DAMAGES[told]
    edit(small, **changes)
    (small / file).unlink() if data is None else (small / file).write_bytes(data)
    text = refused(small, "acme")
    assert told in text and str(small) in text and not hub.requests


@pytest.mark.parametrize("what", ["HF_ENDPOINT", "JSONDecodeError", "HF_HUB_OFFLINE"])
def test_no_hub_is_one_line_with_what_to_check(hub: FakeHub, small: Path, monkeypatch: Any, what: str) -> None:
    import huggingface_hub.constants as constants

    if what == "HF_ENDPOINT":
        monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    elif what == "JSONDecodeError":
        hub.fault("GET", "whoami", status=200, body="<html>welcome</html>", times=99)
    else:
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert what in refused(small, "acme")


def test_only_the_configs_that_are_there(hub: FakeHub, tmp_path: Path) -> None:
    folder = build(tmp_path / "d", configs={"verifier_unpaired": ("test",), "eval": ("test", "train")})
    (folder / "notes").mkdir()
    listed = json.loads((folder / "manifest.json").read_text())["configs"]
    edit(folder, configs={**listed, "probes": {"train": {"rows": 1, "sha256": {}}}})
    assert find_unpushed_configs(folder) == ["probes"]
    done = push(folder, org="acme")
    assert [p.repo_id for p in done] == [VERIFIER, "acme/speculative-actions-eval"]
    assert hub.file(VERIFIER, "README.md").count(b"default: true") == 1


HELD: dict[str, dict[str, Any]] = {
    "beside its name": {"api_key": "9f8a7c6b5d4e3f2a1b0c9d8e7f6a5b4c"},
    "a value": {"x": "AKIAIOSFODNN7EXAMPLX"},
    "a name": {"ghp_" + "Zx9Kq2Lm8Vb4Nc7Tr1Wp6Ys3Hd5Jf0Ge2UaX": 1},
}


@pytest.mark.parametrize("held", HELD.values(), ids=[*HELD])
def test_secrets_in_arguments_are_found(hub: FakeHub, tmp_path: Path, held: dict[str, Any]) -> None:
    """Arguments are JSON: names are searched, and values beside their names."""
    folder = build(tmp_path / "d", configs={"trajectories": ("train",)})
    path = folder / "trajectories" / "train-00000-of-00001.parquet"
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": held}}
    texts = [[json.dumps({"role": "assistant", "content": "", "tool_calls": [call]})]] * 5
    messages = pa.array(texts, pa.list_(pa.string())).cast(pa.list_(pa.json_()))
    pq.write_table(pa.table({"key": [f"k{n}" for n in range(5)], "step": range(5), "messages": messages}), path)
    sha256 = {f"trajectories/{path.name}": compute_sha256(path)}
    edit(folder, configs={"trajectories": {"train": {"rows": 5, "sha256": sha256}}})
    assert "secrets" in refused(folder, "acme")
    assert not hub.requests


def test_names_that_do_not_fit_together(hub: FakeHub, small: Path) -> None:
    for more in ({"name": "x"}, {"revision": ""}, {"revision": "a b~^"}):
        with pytest.raises(UsageError, match=next(iter(more))):
            push(small, repo="acme/mine", name=more.get("name", NAME), revision=more.get("revision"))
    assert not hub.requests
