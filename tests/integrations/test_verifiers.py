"""The verifiers library's own command runs our episodes: at a scripted server, at a fake engine, at a llama-server."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from fakes.model_server import Asked, ModelServer, serving
from foretrace.core.completion import Sampling
from foretrace.core.errors import UsageError
from foretrace.core.plugins import load_plugin
from foretrace.core.problem import Problem
from foretrace.core.trace import Trace
from foretrace.episodes.episode import Episode
from foretrace.episodes.rollout import rollout
from foretrace.models.base import Server
from foretrace.models.servers.openai import OpenAI
from foretrace.registry import make_protocol
from foretrace.sandbox.base import SandboxSettings
from foretrace.sandbox.local import LocalSandbox
from integrations.llama_server import NAME, Running
from integrations.train_engine import Engine, qwen_like_tokenizer
from integrations.warm import WarmProcess
from sources.formats.reading import read

pytestmark = pytest.mark.integration
pytest.importorskip("verifiers", reason="verifiers is not installed (make test-integrations installs it)")
CHAT = "/v1/chat/completions"
SECONDS = ("model_s", "tool_s")
GUARD = """
import os, socket
connect = socket.socket.connect
def refuse(self, address):
    if self.family != socket.AF_UNIX and address[0] not in ("127.0.0.1", "::1", "localhost"):
        with open(os.environ["STRANGERS"], "a") as file:
            file.write(f"{address}\\n")
        raise OSError("no network in this test")
    connect(self, address)
socket.socket.connect = refuse
"""
"""Loaded by the interpreter of the command: connections to other machines fail, and are written down."""


class Done(NamedTuple):
    """What came of one command."""

    code: int
    told: str
    episodes: list[dict[str, Any]]

    @property
    def traces(self) -> list[dict[str, Any]]:
        return [trace for episode in self.episodes for trace in episode["traces"]]


class Eval:
    """`vf-eval foretrace-env` into one folder, as a user starts it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.strangers = folder, folder / "strangers.txt"
        self.runs = 0

    def __call__(self, url: str, *arguments: object, model: str = "toy") -> Done:
        ours = ["foretrace-env", "-m", model, "--client.base-url", f"{url}/v1", "--client.api-key-var", "NO_KEY"]
        ours += ["--env.agent.harness.allow-weak-isolation", "true", "--env.agent.harness.workers", "1"]
        return self.command([*ours, "--no-push", "--no-rich", "-o", "out", "--run.name", "it", *map(str, arguments)])

    def resume(self) -> Done:
        return self.command(["@", "out/it/configs/resolved/eval.json", "--resume"])

    def command(self, arguments: Sequence[str]) -> Done:
        told = {"STRANGERS": str(self.strangers), "PRIME_API_KEY": "", "COLUMNS": "200"}
        log = self.folder / f"eval-{self.runs}.log"
        self.runs += 1
        module = "verifiers.v1.cli.eval.main:main"
        done = WarmProcess(module, list(arguments), folder=self.folder, log=log, setup=GUARD, environment=told)
        code = done.wait(300)
        assert not self.strangers.exists(), self.strangers.read_text()
        file = self.folder / "out" / "it" / "traces.jsonl"
        episodes = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        return Done(code, log.read_text(), episodes)


@pytest.fixture
def vf_eval(tmp_path: Path) -> Eval:
    return Eval(tmp_path)


def problems(limit: int) -> list[Problem]:
    found = [one for one in load_plugin("problems", "builtin")().load() if isinstance(one, Problem)]
    return found[:limit]


def solve(asked: Asked) -> str:
    """The reference, after an error and a wrong answer for every other problem. It goes on behind each block, if it is
    not stopped there."""
    number, problem = next((n, p) for n, p in enumerate(problems(4)) if p.statement in asked.text)
    wrong = f"<code>\ndef {problem.entry_point}(*given):\n    return None\n</code>"
    turns = ["<think>I look at what is asked.</think><code>\n1 / 0\n</code>", f"<think>Better so.</think>{wrong}"]
    right = f"<think>Now I know it.</think><code>\n{problem.reference}\n</code>"
    said = [*turns[: 2 * (number % 2)], right, "<verify></verify>"]
    return (
        said[asked.turn] + "\n<result>\nAll tests passed.\n</result>" if asked.turn < len(said) else "<answer></answer>"
    )


def own_rollouts(url: str, protocol: str, limit: int) -> dict[str, Trace]:
    """What foretrace itself makes of the same server's replies."""

    async def work() -> dict[str, Trace]:
        settings = SandboxSettings(workers=1, allow_weak_isolation=True)
        async with LocalSandbox(settings) as box, OpenAI("toy", Server(base_url=url)) as model:
            episodes = [Episode(problem, make_protocol(protocol), box) for problem in problems(limit)]
            traces = [await rollout(episode, model, Sampling()) for episode in episodes]
            return {trace.task.id: trace for trace in traces}

    return asyncio.run(work())


def test_rewards_and_metrics_are_those_of_our_own_rollouts(vf_eval: Eval) -> None:
    protocol = "interleaved_tools"
    with serving(ModelServer(say=solve, counts=False)) as server:
        wanted = own_rollouts(server.url, protocol, 4)
        shown = {json.dumps(body["messages"]) for body in server.sent(CHAT)}
        server.requests.clear()
        done = vf_eval(server.url, "-n", 4, "-r", 2, "--env.agent.harness.protocol", protocol)
        assert {json.dumps(body["messages"]) for body in server.sent(CHAT)} == shown
    assert done.code == 0 and "Traceback" not in done.told and "Unclosed" not in done.told
    assert len(done.traces) == 8 and all(episode["ok"] for episode in done.episodes)
    for trace in done.traces:
        own = wanted[trace["task"]["key"]].outcome
        assert trace["rewards"]["reward"]["score"] == own.reward
        metrics = {name: value for name, value in trace["metrics"].items() if name not in SECONDS}
        assert metrics["accuracy"] == float(bool(own.success)) and own.tests is not None
        assert metrics["pass_rate"] == own.tests.passed / own.tests.total
        assert metrics.items() >= {n: v for n, v in own.metrics.items() if n not in SECONDS}.items()
        assert trace["info"]["foretrace"]["protocol"] == protocol
    assert max(trace["metrics"]["turns"] for trace in done.traces) >= 4
    assert {trace["rewards"]["reward"]["score"] for trace in done.traces} >= {1.0}
    hidden = [test.code for problem in problems(4) for test in problem.hidden_tests]
    file = vf_eval.folder / "out" / "it" / "traces.jsonl"
    told = file.read_text()
    imported = read("verifiers_traces", file).traces
    assert len(imported) == 8
    for trace in imported:
        own = wanted[trace.task.id]
        assert (trace.task, trace.tools, trace.outcome.success) == (own.task, own.tools, own.outcome.success)
        assert [(m.role, m.content, m.tool_calls) for m in trace.messages] == [
            (m.role, m.content, m.tool_calls) for m in own.messages
        ]
    assert hidden and not any(json.dumps(code)[1:-1] in told for code in hidden)


def test_the_example_runs(tmp_path: Path) -> None:
    script = Path(__file__).resolve().parents[2] / "examples" / "rl" / "verifiers.sh"
    with serving(ModelServer(say=solve, counts=False)) as server:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        given = {"URL": f"{server.url}/v1", "MODEL": "toy", "PATH": path}
        subprocess.run([script], cwd=tmp_path, env=os.environ | given, check=True)
    episodes = [json.loads(line) for line in (tmp_path / "out" / "it" / "traces.jsonl").read_text().splitlines()]
    assert len(episodes) == 8 and all(episode["ok"] for episode in episodes)


def test_sampling_and_stop_sequences_reach_the_server(vf_eval: Eval) -> None:
    with serving(ModelServer(say=solve, counts=False)) as server:
        vf_eval(server.url, "-n", 1, "--sampling.max-tokens", 200, "--sampling.temperature", 0.1)
        body = server.sent(CHAT)[0]
    assert (body["max_tokens"], body["temperature"], body["top_p"], body["model"]) == (200, 0.1, 1.0, "toy")
    assert body["stop"] == list(make_protocol("interleaved_tools").stop)


def test_own_stop_sequences_are_added_to_the_protocols() -> None:
    from foretrace.envs.verifiers.environment import ForetraceEnvConfig

    agent = {"harness": {"protocol": "structured"}, "sampling": {"stop": ["END"], "top_p": 0.5}}
    made = ForetraceEnvConfig.model_validate({"agent": agent})
    assert made.agent.sampling.model_dump(exclude_unset=True) == {
        "stop": [*make_protocol("structured").stop, "END"],
        "top_p": 0.5,
    }
    assert ForetraceEnvConfig.model_validate_json(made.model_dump_json()) == made  # as a resumed run reads it
    assert ForetraceEnvConfig().agent.sampling.stop == list(make_protocol("interleaved_tools").stop)


def test_a_server_that_dies_and_a_run_that_is_resumed(vf_eval: Eval) -> None:
    """What failed says so, has no reward, and is made again; what was finished stays as it is."""
    with serving(ModelServer(counts=False)) as server:

        def say(asked: Asked) -> str:
            if asked.number == 2:
                server.fault(CHAT, how="drop", times=-1)
            return solve(asked)

        server.say = say
        done = vf_eval(server.url, "-n", 3, "-c", 1, "--env.agent.harness.retries", 0)
        assert done.code == 0
        finished, *failed = done.episodes
        assert finished["ok"] and not any(episode["ok"] for episode in failed) and len(failed) == 2
        for trace in [trace for episode in failed for trace in episode["traces"]]:
            assert [error["type"] for error in trace["errors"]] == ["ProviderError"]
            outcome = trace["info"]["foretrace"]["outcome"]
            assert outcome["status"] == "error" and "cannot be reached" in outcome["error"]["message"]
            assert "reward" not in outcome and not trace["rewards"]
        server.faults.clear()
        server.say = solve
        asked = len(server.requests)
        again = vf_eval.resume()
        assert len(server.requests) > asked
    assert again.code == 0 and [episode["ok"] for episode in again.episodes] == [True] * 3
    assert again.episodes[0] == finished
    assert {trace["task"]["key"] for trace in again.traces} == {p.id for p in problems(3)}


def test_the_librarys_limit_of_turns_is_a_limit_and_no_error(vf_eval: Eval) -> None:
    with serving(ModelServer(say=solve, counts=False)) as server:
        done = vf_eval(server.url, "-n", 2, "-c", 1, "--env.agent.max-turns", 1)
    assert [episode["ok"] for episode in done.episodes] == [True, True]
    outcomes = [trace["info"]["foretrace"]["outcome"] for trace in done.traces]
    assert [(o["status"], o["exit_reason"], o["metrics"]["turns"]) for o in outcomes] == [("limit", "max_turns", 1)] * 2
    assert [trace["rewards"]["reward"]["score"] for trace in done.traces] == [1.0, -1.0]


def test_a_deadline_is_a_limit_and_no_error(vf_eval: Eval) -> None:
    with serving(ModelServer(counts=False)) as server:

        def say(asked: Asked) -> str:
            server.fault(CHAT, how="hang", times=-1)
            return solve(asked)

        server.say = say
        done = vf_eval(server.url, "-n", 1, "--env.agent.timeout.rollout", 4)
        server.faults.clear()
    (trace,) = done.traces
    assert trace["ok"] and trace["is_timeout"]
    outcome = trace["info"]["foretrace"]["outcome"]
    assert (outcome["status"], outcome["exit_reason"]) == ("limit", "agent_timeout")
    assert trace["rewards"]["reward"]["score"] == outcome["reward"]


ABSENT = """
from foretrace.core.errors import SandboxError, Setting
from foretrace.sandbox.local import LocalSandbox
class Absent(LocalSandbox):
    async def start(self):
        raise SandboxError("no engine here: use ", Setting("sandbox", "local"))
"""


def test_what_no_episode_could_do_without_ends_the_run(vf_eval: Eval) -> None:
    """With one line and exit code 1, before any episode."""
    (vf_eval.folder / "absent.py").write_text(ABSENT)
    done = vf_eval("http://127.0.0.1:9", "-n", 3, "--env.agent.harness.sandbox", "absent:Absent")
    (line,) = [line for line in done.told.splitlines() if line.startswith("error: ")]
    assert line.endswith("no engine here: use --env.agent.harness.sandbox local")
    assert done.code == 1 and "Traceback" not in done.told
    assert done.episodes == []


@pytest.mark.parametrize(
    ("part", "name", "value", "told"),
    [
        ("harness", "protocol", "inline", "the verifiers library records whole turns only"),
        ("harness", "sandbox", "nope", "unknown sandbox 'nope'"),
        ("harness", "max_turns", 0, "greater than or equal to 1"),
        ("harness", "nope", 1, "not permitted"),
        ("taskset", "problems", "nope", "unknown problems 'nope'"),
        ("taskset", "problems", "jsonl:absent.jsonl", "path absent.jsonl: no such file or folder"),
        ("taskset", "path", "absent.jsonl", "path absent.jsonl: no such file or folder"),
        ("taskset", "system_prompt", "prompt.txt", "the protocol writes the system prompt"),
    ],
)
def test_a_bad_setting_is_refused(part: str, name: str, value: object, told: str) -> None:
    from foretrace.envs.verifiers.environment import ForetraceEnvConfig

    given: dict[str, Any] = {"taskset": {"id": "foretrace-env"}, "agent": {"harness": {}}}
    (given["taskset"] if part == "taskset" else given["agent"]["harness"])[name] = value
    with pytest.raises(ValueError, match=re.escape(told)):
        ForetraceEnvConfig.model_validate(given)


def test_a_runtime_elsewhere_is_refused() -> None:
    from foretrace.envs.verifiers.environment import ForetraceHarness, ForetraceHarnessConfig

    harness = ForetraceHarness(ForetraceHarnessConfig(id="foretrace-env"))
    with pytest.raises(UsageError, match=r"--env\.agent\.runtime\.type subprocess"):
        asyncio.run(harness.setup(SimpleNamespace(config=SimpleNamespace(type="docker"))))


@pytest.mark.parametrize("form", ["builtin", "jsonl"])
def test_a_row_that_came_over_a_wire_finds_its_problem(form: str, tmp_path: Path) -> None:
    """An environment server gets rows as data, and the data hold no test. A set of a file is named as JSONL:FILE."""
    from foretrace.envs.verifiers.environment import ForetraceTaskset, ProblemData, ProblemsConfig, ProblemTask

    if form == "jsonl":
        form = f"jsonl:{tmp_path / 'mine.jsonl'}"
        lines = [
            {
                "id": p.id,
                "statement": p.statement,
                "entry_point": p.entry_point,
                "tests": [t.code for t in p.hidden_tests],
            }
            for p in problems(3)
        ]
        (tmp_path / "mine.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    config = ProblemsConfig(id="foretrace-env", problems=form)
    tasks = list(ForetraceTaskset(config))
    wired = [json.loads(task.data.model_dump_json()) for task in tasks]
    again = [ProblemTask(ProblemData.model_validate(row), config.task) for row in wired]
    found = [task.data.problem() for task in again]
    assert found == [task.data.problem() for task in tasks]
    assert [(task.key, task.hash) for task in again] == [(task.key, task.hash) for task in tasks]
    assert len({task.key for task in tasks}) == len(tasks)
    wanted = problems(99 if form == "builtin" else 3)
    assert [one.statement for one in found] == [one.statement for one in wanted]
    assert form != "builtin" or found == wanted


def test_the_names_of_settings_are_those_that_vf_eval_takes() -> None:
    import verifiers.v1 as vf
    from verifiers.v1.configs.cli.eval import EvalConfig

    from foretrace.envs.verifiers.environment import ForetraceEnvConfig, ForetraceHarnessConfig, ProblemsConfig
    from foretrace.envs.verifiers.setting_names import OPTIONS

    parts = {
        "env.taskset": ProblemsConfig,
        "env.agent.harness": ForetraceHarnessConfig,
        "env.agent.runtime": vf.SubprocessConfig,
        "client": vf.EvalClientConfig,
        "sampling": vf.SamplingConfig,
    }
    assert isinstance(ForetraceEnvConfig.model_validate({"agent": {"harness": {}}}).agent.harness, vf.HarnessConfig)
    for option in set(OPTIONS.values()) - {"-c"}:
        part, _, name = option.removeprefix("--").replace("-", "_").rpartition(".")
        assert name in parts[part].model_fields, option
    assert "c" in EvalConfig.model_fields["max_concurrent"].validation_alias.choices


def test_the_train_client_gets_one_exact_branch(vf_eval: Eval, tmp_path: Path) -> None:
    """Prompt, reply, result, reply: one list of ids, and only what was sampled is trained on."""
    train = ["--client.type", "train", "--client.renderer.name", "qwen3", "--client.renderer-model-name", "tokenizer"]
    tokenizer = qwen_like_tokenizer(tmp_path / "tokenizer", [problem.statement for problem in problems(4)])
    with serving(Engine(tokenizer, solve)) as engine:
        done = vf_eval(engine.url, "-n", 4, "-c", 1, *train, "--client.renderer.thinking-retention", "all")
    assert done.code == 0 and all(episode["ok"] for episode in done.episodes), done.told
    assert {trace["rewards"]["reward"]["score"] for trace in done.traces} == {1.0}
    assert [trace["metrics"]["turns"] for trace in done.traces] == [2, 4, 2, 4]
    for trace, replies in zip(done.traces, engine.replies, strict=True):
        nodes = trace["nodes"]
        assert [node.get("parent") for node in nodes] == [None, *range(len(nodes) - 1)]  # one branch
        sampled = [node for node in nodes if node["message"]["role"] == "assistant"]
        trained = [[i for i, on in zip(node["token_ids"], node["mask"], strict=True) if on] for node in sampled]
        assert trained == replies
        assert not any(any(node["mask"]) for node in nodes if node not in sampled)
        assert trace["metrics"]["invented_results"] == 0
        assert trace["metrics"]["think_count"] == sum("<think>" in engine.decode(reply) for reply in replies)


def test_a_llama_server_with_the_demo_model(vf_eval: Eval, llama: Running) -> None:
    done = vf_eval(llama.url, "-n", 5, "-r", 2, "--sampling.temperature", 0.0, model=NAME)
    assert done.code == 0 and len(done.traces) == 10 and all(episode["ok"] for episode in done.episodes), done.told
    for trace in done.traces:
        outcome = trace["info"]["foretrace"]["outcome"]
        assert trace["rewards"]["reward"]["score"] == outcome["reward"]
        assert trace["metrics"]["turns"] == len(trace["calls"]) >= 2
    assert sum(trace["metrics"]["accuracy"] for trace in done.traces) >= 5
