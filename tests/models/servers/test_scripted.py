"""The scripted model: what it says depends on the request, not on when it is asked."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from foretrace.core.completion import ChatMessage, Completion, Request, Sampling
from foretrace.core.errors import ModelError, UsageError
from foretrace.models.base import ChatModel, Server, TokenModel
from foretrace.models.servers.scripted import Script, Scripted
from foretrace.registry import make_model, split_spec


def said(model: ChatModel, request: Request) -> str:
    return asyncio.run(model.complete(request)).text


def chat(*texts: str, seed: int | None = 0, **more: object) -> Request:
    roles = ["user", "assistant"]
    messages = tuple(ChatMessage(roles[n % 2], text) for n, text in enumerate(texts))  # type: ignore[arg-type]
    return Request(messages=messages, sampling=Sampling(seed=seed), **more)  # type: ignore[arg-type]


def test_turns_come_in_order_and_seeds_choose_the_episode() -> None:
    model = Scripted.of(["a1", "a2"], ["b1", "b2"])
    assert said(model, chat("do f")) == "a1"
    assert said(model, chat("do f", "a1", "go on")) == "a2"
    assert said(model, chat("do f", seed=1)) == "b1"
    assert said(model, chat("do f", "b1", "go on", seed=3)) == "b2"


def test_without_a_seed_the_task_chooses() -> None:
    model = Scripted.of(*([f"{n}"] for n in range(50)))
    first = [said(model, chat(f"task {n}", seed=None)) for n in range(30)]
    assert first == [said(model, chat(f"task {n}", seed=None)) for n in range(30)] and len(set(first)) > 10


def test_a_script_may_name_its_problem() -> None:
    scripts = [Script(turns=["for f"], match="def f("), Script(turns=["for g"], match="def g(")]
    model = Scripted("x", scripts=scripts)
    assert [said(model, chat(f"write def {name}(x)", seed=5)) for name in "fg"] == ["for f", "for g"]
    with pytest.raises(ModelError, match="no script matches") as caught:
        said(model, chat("write def h(x)"))
    assert (caught.value.kind, caught.value.retryable) == ("script", False)


def test_the_end_of_a_script() -> None:
    with pytest.raises(ModelError, match="has 1 turns, and turn 2 is asked for"):
        said(Scripted.of(["only"]), chat("x", "only", "y"))
    model = Scripted("x", scripts=[Script(turns=["a", "b"], repeat=True)])
    assert said(model, chat("x", "a", "y", "b", "z", "b", "z")) == "b"


def test_stops_cut_and_a_prefill_tells_the_turn() -> None:
    model = Scripted.of(["think <call>1</call> never said", "more <call>2</call>", "done"])
    stop = ("</call>",)
    begun, spoken = "<think>", []
    for _ in range(3):
        found = asyncio.run(model.complete(chat("x", prefill=begun, stop=stop)))
        spoken.append((found.text, found.finish, found.stop))
        begun += found.text + "</call>[injected]"
    assert spoken == [
        ("think <call>1", "stop_sequence", "</call>"),
        ("more <call>2", "stop_sequence", "</call>"),
        ("done", "stop", None),
    ]


def test_simulated_tokens_are_bytes_and_prompts_may_be_ids() -> None:
    model = Scripted.of(["größe <call>", "end"], tokens=True)
    assert isinstance(model, TokenModel)

    async def run() -> list[Completion]:
        prompt = await model.render([ChatMessage("user", "x")])
        first = await model.complete(Request(prompt_ids=tuple(prompt), stop=("<call>",)))
        prompt += [*first.token_ids, *await model.tokenize("<call>[injected]")]
        return [first, await model.complete(Request(prompt_ids=tuple(prompt), stop=("<call>",)))]

    first, second = asyncio.run(run())
    assert (first.text, second.text) == ("größe ", "end")
    assert bytes(first.token_ids).decode() == first.text and first.exact == "token"
    assert len(first.logprobs) == len(first.token_ids)
    assert asyncio.run(model.probe()).token_prompts and not asyncio.run(Scripted.of(["a"]).probe()).token_prompts


def test_a_file_of_scripts_from_the_command_line(tmp_path: Path) -> None:
    path = tmp_path / "says.jsonl"
    path.write_text('["a1", {"text": "a2", "reasoning": "r"}]\n\n{"text": "b"}\n{"turns": ["c"], "match": "zeta"}\n')
    model = make_model(f"scripted:{path}", Server())
    assert model.spec == f"scripted:{path}" and model.endpoint == ""
    assert said(model, chat("x")) == "a1" and said(model, chat("x", seed=1)) == "b"
    second = asyncio.run(model.complete(chat("x", "a1", "y")))
    assert (second.text, second.reasoning, second.seconds) == ("a2", "r", 0.0)
    assert said(model, chat("zeta", seed=2)) == "c"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "cannot read"),
        ("", "has no line"),
        ('["a"]\n{"txt": 1}\n', "line 2"),
        ('["a"', "line 1"),
        ("\xff", "line 1"),
    ],
)
def test_a_file_that_is_no_script(tmp_path: Path, content: str | None, words: str) -> None:
    path = tmp_path / "says.jsonl"
    if content is not None:
        path.write_bytes(content.encode("latin-1"))
    with pytest.raises(UsageError, match=words):
        make_model(f"scripted:{path}")
    with pytest.raises(UsageError, match="scripted:FILE"):
        make_model("scripted")


def test_names_of_models() -> None:
    kinds = {"ollama", "openai", "demo"}
    assert split_spec("ollama:qwen3-coder:30b", kinds) == ("ollama", "qwen3-coder:30b")
    assert split_spec("openai:org/name", kinds) == ("openai", "org/name")
    assert split_spec(" demo ", kinds) == ("demo", "")
    assert split_spec("my.models:Mine:x:y", kinds) == ("my.models:Mine", "x:y")
    for bad in ("", "gpt-4", "olama:x", ":x", "a b:C"):
        with pytest.raises(UsageError, match=r"give KIND:NAME, with one of demo, ollama, openai"):
            split_spec(bad, kinds)
    with pytest.raises(UsageError, match="name the model: ollama:NAME"):
        make_model("ollama:")
