"""What the environment for the verifiers library is made of, without that library: attempts, reports, messages."""

from __future__ import annotations

import ast
import asyncio
import json
import logging
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from episodes.generating import plus
from fakes.model_server import ModelServer
from foretrace.core.completion import Completion, Request, Sampling
from foretrace.core.errors import ModelError, SandboxError, Setting
from foretrace.core.trace import Trace, compute_trace_id
from foretrace.envs.verifiers.attempts import (
    close_sandboxes,
    get_shared_sandbox,
    make_report,
    read_metrics,
    read_reward,
    read_sampling,
    run_attempt,
)
from foretrace.envs.verifiers.interception_model import InterceptionModel, join_thinking
from foretrace.envs.verifiers.setting_names import OPTIONS, rewrite_error
from foretrace.episodes.episode import Episode
from foretrace.episodes.rollout import rollout
from foretrace.models.servers.scripted import Scripted
from foretrace.registry import make_protocol
from foretrace.sandbox.base import SandboxSettings
from foretrace.sandbox.local import LocalSandbox

ROOT = Path(__file__).resolve().parents[3]
WRONG = "<think>A first try of mine.</think><code>\ndef plus(x):\n    return x - 1\n</code>"
RIGHT = "<think>Now I add.</think><code>\ndef plus(x):\n    return x + 3\n</code>"
END = "<verify>It adds, as asked.</verify>"
SECONDS = ("model_s", "tool_s")


class Box:
    """A loop with a sandbox in it."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self.run, self.sandbox = runner.run, LocalSandbox(SandboxSettings(workers=1, allow_weak_isolation=True))

    def episode(self, protocol: str = "tools") -> Episode:
        return Episode(plus(3), make_protocol(protocol), self.sandbox)


@pytest.fixture(scope="module")
def box() -> Iterator[Box]:
    with asyncio.Runner() as runner:
        made = Box(runner)
        yield made
        runner.run(made.sandbox.close())


def refusing(after: int, kind: str) -> Scripted:
    """A model that fails from its reply number `after` on."""

    def say(request: Request) -> str:
        said = sum(m.role == "assistant" for m in request.messages)
        if said >= after:
            raise ModelError("it is gone", kind=kind)
        return [RIGHT, END][said]

    return Scripted("said", scripts=say)


def run(box: Box, model: Scripted, stopped: str | None = None) -> dict[str, Any]:
    episode = box.episode()
    box.run(run_attempt(episode, model, Sampling(), lambda: stopped))
    return make_report(episode)


@pytest.mark.parametrize("texts", [[WRONG, RIGHT, END], [RIGHT, END], [WRONG] * 10, ["Hm."] * 10])
def test_an_attempt_is_a_rollout(box: Box, texts: list[str]) -> None:
    trace = box.run(rollout(box.episode(), Scripted.of(texts), Sampling()))
    report = run(box, Scripted.of(texts))
    assert (report["key"], read_reward(report)) == (trace.key, trace.outcome.reward)
    assert compute_trace_id(msgspec.convert(report["trace"], Trace)) == compute_trace_id(trace)
    assert trace.outcome.tests is not None
    rate = trace.outcome.tests.passed / trace.outcome.tests.total
    wanted = {"accuracy": float(bool(trace.outcome.success)), "pass_rate": rate} | trace.outcome.metrics
    found = read_metrics(report)
    assert found.keys() == wanted.keys() and all(found[name] == wanted[name] for name in wanted if name not in SECONDS)


def test_a_run_that_is_stopped_is_judged(box: Box) -> None:
    report = run(box, refusing(1, "bad_request"), "max_turns")
    assert (read_reward(report), report["outcome"]["status"]) == (1.0, "limit")
    assert report["outcome"]["exit_reason"] == "max_turns"


def test_a_server_that_fails_leaves_no_reward(box: Box) -> None:
    episode = box.episode()
    with pytest.raises(ModelError, match="it is gone"):
        box.run(run_attempt(episode, refusing(1, "refused"), Sampling()))
    report = make_report(episode)
    assert report["outcome"]["error"] == {"kind": "refused", "message": "it is gone"}
    assert read_metrics(report) == {}
    with pytest.raises(ValueError, match="no reward: it is gone"):
        read_reward(report)
    with pytest.raises(ValueError, match="stopped before it began"):
        read_reward(None)


def test_a_report_holds_no_test(box: Box) -> None:
    told = json.dumps(run(box, Scripted.of([RIGHT, END])))
    tests = plus(3).hidden_tests
    assert tests and not any(json.dumps(test.code)[1:-1] in told for test in tests) and "def plus" in told


def test_what_a_run_leaves_open_is_our_default() -> None:
    given = {"temperature": 0.2, "top_p": None, "max_tokens": 50, "stop": ["x"], "min_p": 0.1}
    assert read_sampling(given) == Sampling(temperature=0.2, max_tokens=50)


def test_one_sandbox_for_all_rollouts_of_a_loop() -> None:
    async def work() -> None:
        one, other = (SandboxSettings(workers=number, allow_weak_isolation=True) for number in (1, 2))
        box = get_shared_sandbox("local", one)
        assert box is get_shared_sandbox("local", one) is not get_shared_sandbox("local", other)
        await box.start()
        await close_sandboxes()
        assert get_shared_sandbox("local", one) is not box
        await close_sandboxes()

    asyncio.run(work())


def test_thinking_is_put_back_where_it_stood() -> None:
    assert join_thinking(Completion(text="b", reasoning="a")) == "<think>a</think>\nb"
    assert join_thinking(Completion(text="b")) == "b"
    assert join_thinking(Completion(text="", reasoning="a", finish="length")) == "<think>a"
    assert join_thinking(Completion(text="", reasoning="a", finish="stop")) == "<think>a</think>\n"


def test_a_split_reply_is_sent_back_as_it_came(box: Box) -> None:
    """The renderer takes the thinking out: the episode sees it all the same, and the server its own message."""
    codes = [text.partition("</think>")[2] for text in (WRONG, RIGHT)]

    async def work(split: bool) -> tuple[Episode, list[dict[str, Any]]]:
        said = [*codes, END]
        async with ModelServer(say=lambda asked: said[asked.turn], think="I think so.", continues=False) as server:
            episode = box.episode()
            async with InterceptionModel("toy", server.url + "/v1", "key", splits_thinking=split) as wire:
                await run_attempt(episode, wire, Sampling())
            return episode, server.sent("/v1/chat/completions")[-1]["messages"]

    for split in (True, False):
        episode, sent = box.run(work(split))
        assert make_report(episode)["outcome"]["metrics"]["think_count"] == 3
        replies = [message for message in sent if message["role"] == "assistant"]
        assert [reply.get("reasoning_content") for reply in replies] == ["I think so." if split else None] * 2
        assert replies[0]["content"].startswith("<code>")


def proxied(said: str, status: int = 503) -> ModelError:
    """What an attempt fails with, where the library's own server answers so."""
    body = {"error": {"message": said, "type": "invalid_request_error"}}

    async def work() -> None:
        async with ModelServer() as server:
            server.fault("/v1/chat/completions", status=status, body=json.dumps(body), times=-1)
            upstream = "http://me:secret@10.0.0.1:8000/v1"
            async with InterceptionModel(
                "toy", server.url + "/v1", "key", splits_thinking=False, upstream_url=upstream, retries=0
            ) as wire:
                await run_attempt(
                    Episode(plus(3), make_protocol("tools"), LocalSandbox(SandboxSettings())), wire, Sampling()
                )

    with pytest.raises(ModelError) as caught:
        asyncio.run(work())
    return caught.value


def test_a_server_that_cannot_be_reached_is_told_so_once(caplog: pytest.LogCaptureFixture) -> None:
    """The library tells of no connection by a 503 of its own; a server that is busy has its words behind a status."""
    with caplog.at_level(logging.WARNING, "foretrace.envs"):
        errors = [proxied("All connection attempts failed") for _ in range(2)]
    assert {(str(error), error.kind, error.retryable) for error in errors} == {
        (
            "http://10.0.0.1:8000, model toy: the model server cannot be reached (All connection attempts failed); "
            "start the server, or check --client.base-url",
            "refused",
            True,
        )
    }
    assert [record.message for record in caplog.records] == [str(errors[0])]
    for words in ("upstream 503: no slot is free", "Error code: 503 - no slot is free"):
        busy = proxied(words)
        assert busy.kind == "busy" and "it is busy: lower " in str(busy)
    assert proxied("All connection attempts failed", 500).kind == "server"


FLOORS = ("models", "sandbox", "problems", "protocols", "episodes")
NOT_HERE = {
    *("cost", "max_cost", "price_in", "price_out"),  # of a budget, which only runs of `generate` have
    "context_length",  # of Ollama's own interface, and refused for the others
    "environment",  # of Harbor's own checks of its tasks
    "forms",  # all three decide here
    "min_level",  # a run here has `level`
    "options",  # of adapters that are not used here
    "speculate",  # only runs of `generate` begin calls early
}


def test_every_setting_that_a_message_names_has_an_option_here() -> None:
    """Messages of the lower floors name the settings of foretrace; `vf-eval` has options for them."""
    folders = [ROOT / "src" / "foretrace" / floor for floor in FLOORS]
    assert all(folder.is_dir() for folder in folders)
    calls = [
        node
        for folder in folders
        for file in folder.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Setting"
    ]
    named = {call.args[0].value for call in calls if isinstance(call.args[0], ast.Constant)}
    assert named - NOT_HERE <= set(OPTIONS)


def test_an_error_names_the_options_of_vf_eval() -> None:
    error = SandboxError("no engine: use ", Setting("sandbox", "local"), ", or ", Setting("allow_weak_isolation", True))
    assert str(error) == "no engine: use sandbox='local', or allow_weak_isolation=True"
    for named in (rewrite_error(error), rewrite_error(rewrite_error(error))):
        assert type(named) is SandboxError and str(named) == (
            "no engine: use --env.agent.harness.sandbox local, or --env.agent.harness.allow-weak-isolation true"
        )
    assert str(error) == "no engine: use sandbox='local', or allow_weak_isolation=True"


def test_what_is_raised_and_what_is_reported_name_the_same_options(box: Box) -> None:
    def say(request: Request) -> str:
        raise ModelError("it is full: lower ", Setting("max_tokens", 5), kind="bad_request", retry_after_s=2.0)

    episode = box.episode()
    with pytest.raises(ModelError) as caught:
        box.run(run_attempt(episode, Scripted("said", scripts=say), Sampling()))
    assert str(caught.value) == "it is full: lower --sampling.max-tokens 5"
    assert (caught.value.kind, caught.value.retry_after_s) == ("bad_request", 2.0)
    assert caught.traceback[-1].name == "say"
    assert make_report(episode)["outcome"]["error"] == {"kind": "bad_request", "message": str(caught.value)}


def test_the_wheel_holds_all_packages() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = settings["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert sorted(packages) == sorted(f"src/{p.parent.name}" for p in (ROOT / "src").glob("*/__init__.py"))
