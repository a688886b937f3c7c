"""`foretrace doctor`: what it finds on this machine or about a model server, and what it says where nothing serves."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cli.conftest import Result, Run, write_rows
from fakes.model_server import Asked, ModelServer, serving
from foretrace.core.plugins import plugin_names

HERE = "--allow-weak-isolation"  # whatever this machine offers


@pytest.mark.usefixtures("short_measuring")
def test_what_serves_here(run: Run) -> None:
    done = run(f"doctor {HERE} --json --workers 1")
    assert (done.code, done.json["ok"], done.json["error"]) == (0, True, None)
    found = done.json["sandbox"]
    assert (found["name"], found["workers"]) == ("local", 1) and found["level"] in (0, 1, 2, 3)
    assert found["python"] == ".".join(map(str, sys.version_info[:3]))
    assert found["runs_per_s"] > 10 and 0 < found["ms_per_run"] < 1000
    assert sys.platform != "linux" or found["limits"]["memory_mb"] == 512
    guards = {guard["name"]: guard for guard in found["guards"]}
    assert guards["limits"]["on"]
    assert sorted(found["missing"]) == sorted(name for name, guard in guards.items() if not guard["on"])


@pytest.mark.usefixtures("short_measuring", "no_container")
def test_an_ordered_list_says_why_the_first_does_not_serve(run: Run) -> None:
    done = run(f"doctor {HERE} --quiet --json --sandbox docker,local")
    assert (done.code, done.json["sandbox"]["name"]) == (0, "local")
    assert "no container engine here" in done.json["sandbox"]["refused"]["docker"]
    assert done.err == ""  # it is in the report
    shown = run(f"doctor {HERE} --sandbox docker,local").out
    for wanted in ("not docker", "isolation", "level ", "runs/s", "limits of a run", "filesystem_read", "network"):
        assert wanted in shown


@pytest.mark.usefixtures("no_container")
def test_no_sandbox_serves(run: Run, doctor: Run) -> None:
    done = run("doctor --quiet --sandbox docker")
    assert (done.code, done.out) == (1, "")
    assert done.err == ("foretrace: no container engine here: install Docker or Podman, or give --sandbox local\n")
    told = run("doctor --sandbox docker --json")
    assert (told.code, told.json["ok"], told.json["sandbox"]) == (1, False, None)
    assert "no container engine" in told.json["error"]
    of_model = doctor("--model", script(*TURNS), "--sandbox docker --json")
    assert of_model.code == 1 and "no container engine" in of_model.err
    assert of_model.json["protocols"] and of_model.json["sandbox"] is None


@pytest.mark.usefixtures("short_measuring")
def test_below_the_level_that_must_be_had_the_guards_are_shown_all_the_same(run: Run) -> None:
    done = run("doctor --quiet --min-level 4")
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert "the local sandbox reaches level 3, and 4 was asked for" in done.err
    assert "filesystem_read" in done.out


CODE = """
def two_sum(numbers, target):
    first = {}
    for j, number in enumerate(numbers):
        if target - number in first:
            return (first[target - number], j)
        first.setdefault(number, j)
    return None
"""
TURNS = [f"<think>I look back.</think><code>{CODE}</code>", "<verify></verify>"]


@pytest.fixture
def no_container(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")


@pytest.fixture
def doctor(run: Run) -> Run:
    def call(*words: str) -> Result:
        return run(f"doctor {HERE} --workers 1 -q {' '.join(words)}")

    return call


def script(*turns: str) -> str:
    write_rows(Path("s.jsonl"), [list(turns)])
    return "scripted:s.jsonl"


def say(asked: Asked) -> str:
    return TURNS[CODE in asked.text]


def at(server: ModelServer, kind: str = "openai") -> str:
    return f"--model {kind}:toy --base-url {server.url} --model-option backoff_s=0.01 --retries 0"


def test_the_demo_model_as_text(doctor: Run) -> None:
    done = doctor("--model", "demo")
    assert (done.code, done.err) == (0, "")
    lines = [" ".join(line.split()) for line in done.out.splitlines()]
    for line in (
        "model demo-model",
        "endpoint in this process",
        "token prompts yes -",
        "thinking apart no it thinks inside of the text",
        "context length 4,096 tokens -",
        "inline yes -",
        "problem builtin/two_sum",
        "protocol interleaved_tools",
        "logprobs ids and logprobs of the sampled tokens (token-exact)",
    ):
        assert line in lines
    assert any(line.startswith("tests ") and line.endswith(" passed") for line in lines)
    assert any(line.startswith("tokens/s ") and "-" not in line for line in lines)


def test_a_script_as_an_object(doctor: Run) -> None:
    done = doctor("--model", script(*TURNS), "--json")
    assert (done.code, done.err) == (0, "")
    found = done.json
    assert (found["ok"], found["error"], found["model"], found["endpoint"]) == (True, None, "scripted:s.jsonl", "")
    assert found["capabilities"]["token_ids"] == {
        "yes": False,
        "reason": "a script has no tokens: give the option tokens=bytes to simulate them",
    }
    assert found["capabilities"]["continuation"] == {"yes": True, "reason": None}
    assert sorted(found["protocols"]) == plugin_names("protocol")
    episode = found["episode"]
    assert (episode["problem"], episode["protocol"]) == ("builtin/two_sum", "interleaved_tools")
    assert (episode["turns"], episode["success"], episode["reward"]) == (2, True, 1.0)
    assert episode["tests"]["passed"] == episode["tests"]["total"] > 3
    assert (episode["logprobs"], episode["tokens_per_s"], episode["cut_off"]) == ("none", None, 0)
    assert episode["sandbox_s"] > 0


@pytest.mark.parametrize(
    ("kind", "exact", "ids"), [("ollama", "text", False), ("openai", "text", False), ("llamacpp", "token", True)]
)
def test_servers(doctor: Run, kind: str, exact: str, ids: bool) -> None:
    with serving(ModelServer(say=say)) as server:
        done = doctor(at(server, kind), "--json")
        assert (done.code, done.err, done.json["endpoint"]) == (0, "", server.url)
    assert done.json["capabilities"]["token_ids"]["yes"] is ids
    assert done.json["protocols"]["inline"] == {"offered": True, "reason": None}
    episode = done.json["episode"]
    assert (episode["success"], episode["logprobs"], episode["turns"]) == (True, exact, 2)
    assert episode["prompt_tokens"] > 0 and episode["tokens_per_s"] > 0


@pytest.mark.slow
def test_what_is_refused_is_what_generate_refuses(doctor: Run, run: Run) -> None:
    with serving(ModelServer(say=say, continues=False)) as server:
        done = doctor(at(server), "--json")
        inline = done.json["protocols"]["inline"]
        assert not inline["offered"] and "opens a new turn" in inline["reason"]
        assert done.json["capabilities"]["continuation"]["reason"] in inline["reason"]
        assert done.code == 0 and done.json["episode"]["protocol"] == "interleaved_tools"
        for name, told in done.json["protocols"].items():
            line = f"generate --problems builtin --protocol {name} --limit 1 --max-turns 1 --out t-{name} -q"
            made = run(f"{line} {at(server)}")
            assert made.code == (0 if told["offered"] else 2), made.err
            assert told["offered"] or f"the protocol {name} {told['reason'].partition(':')[0]}" in made.err


def test_replies_that_are_cut_off_are_counted(doctor: Run) -> None:
    with serving(ModelServer(say=lambda asked: TURNS[0])) as server:
        done = doctor(at(server), "--max-tokens 5")
    assert done.code == 1 and "16 replies at 5 tokens: give more with --max-tokens" in done.out


def test_a_server_that_refuses_after_the_probe(doctor: Run) -> None:
    server = ModelServer()

    def locked_out(asked: Asked) -> str:
        if "two_sum" in asked.text:
            server.key = "another"
        return say(asked)

    server.say = locked_out
    with serving(server):
        done = doctor(at(server, "ollama"), "--json")
    assert done.code == 1 and "HTTP 401" in done.err and done.err.count("\n") == 1
    assert done.json["capabilities"]["logprobs"]["yes"] and done.json["sandbox"]
    assert (done.json["ok"], done.json["episode"]) == (False, None)


@pytest.mark.parametrize(
    ("turns", "told"),
    [
        (TURNS[:1], "the episode ended in an error, script: scripted:s.jsonl: the script has 1 turns"),
        (["I would rather talk."] * 16, "had no code run in 16 turns"),
    ],
)
def test_an_episode_that_goes_wrong_is_one_line_and_still_shown(doctor: Run, turns: list[str], told: str) -> None:
    done = doctor("--model", script(*turns))
    assert done.code == 1
    assert told in done.err and done.err.count("\n") == 1
    assert "builtin/two_sum" in done.out
