"""An episode by itself: its states, tokens, metrics and reward, and a trace that serves like an imported one."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from foretrace.core.completion import Completion
from foretrace.core.errors import ProblemError
from foretrace.core.plugins import load_plugin
from foretrace.core.problem import Problem, Test, TestResult, Verdict
from foretrace.core.trace import Isolation, Usage
from foretrace.episodes.episode import Episode
from foretrace.episodes.identity import Identity, make_key, make_run_name
from foretrace.episodes.metrics import compute_reward, describe_reward
from foretrace.episodes.settings import EpisodeSettings
from foretrace.episodes.workspace import Evaluation
from foretrace.protocols.tools import Tools
from foretrace.registry import make_protocol
from protocols.play import ADD, RIGHT, TWICE, WRONG, Stage

THINK = "<think>Let me think of it.</think>\n"
BAD, GOOD = (f"{THINK}<code>\n{code}</code>" for code in (WRONG, RIGHT))
DONE = "<verify>It adds.</verify>"
MODEL = Identity(
    model="scripted:x", sampling={"temperature": 0.5, "seed": 3}, seed=3, sample=1, created_at="2026-01-01"
)


def pieces_of(text: str, size: int = 5) -> tuple[str, ...]:
    return tuple(text[at : at + size] for at in range(0, len(text), size))


def tokens(text: str, pieces: tuple[str, ...] | None = None, **more: Any) -> Completion:
    """A completion with a token for every few characters, numbered from 100 on."""
    pieces = pieces_of(text) if pieces is None else pieces
    given: dict[str, Any] = {
        "token_ids": tuple(range(100, 100 + len(pieces))),
        "logprobs": tuple(-n / 8 for n in range(len(pieces))),
        "pieces": pieces,
        "exact": "token",
        "usage": Usage(prompt_tokens=7, completion_tokens=len(pieces)),
        "prompt_token_ids": (1, 2, 3),
        "seconds": 0.5,
    }
    return Completion(text=text, **given | more)


def sampled(stage: Stage, reply: Completion) -> list[Any]:
    """What was sampled for each message of one reply."""
    return [m.sampled for m in stage.play("tools", reply, max_turns=1).models]


# --- its states


def test_it_is_fed_from_outside_and_ends_once(stage: Stage) -> None:
    async def live() -> None:
        async with Episode(ADD, Tools(), stage.sandbox) as episode:
            opening = await episode.start()
            assert episode.messages == opening and not episode.done and episode.turns == 0
            with pytest.raises(ValueError, match="not done"):
                episode.trace()
            await episode.step(Completion(text=GOOD))
            assert [m.role for m in episode.messages] == ["system", "user", "assistant", "user"]
            await episode.step(Completion(text=DONE))
            assert episode.done and episode.reward == 1.0 and episode.turns == 2
            with pytest.raises(ValueError, match="done"):
                await episode.step(Completion(text=DONE))
            await episode.close()

    stage.runner.run(live())


def test_a_problem_without_tests_is_refused() -> None:
    with pytest.raises(ProblemError, match="p has no tests"):
        Episode(Problem(id="p", statement="Add."), Tools(), sandbox=None)  # type: ignore[arg-type]


def test_the_turn_limit_is_the_protocols_own_or_the_users(stage: Stage) -> None:
    assert Episode(ADD, Tools(), stage.sandbox).max_turns == Tools.max_turns
    played = stage.play("tools", *[BAD] * 3, max_turns=3)
    assert played.episode.done and played.trace.outcome.status == "limit"
    played = stage.play("tools", GOOD, DONE, max_turns=2)
    assert played.trace.outcome.status == "done"


# --- its messages


def test_reasoning_that_comes_apart_is_kept_and_counts_as_a_thought(stage: Stage) -> None:
    reply = Completion(text=f"<code>\n{RIGHT}</code>", reasoning="A sum.")
    played = stage.play("tools", reply, Completion(text=DONE, reasoning="It passed."))
    assert [m.reasoning for m in played.models] == ["A sum.", "It passed."]
    assert played.counted("think_count", "is_interleaved") == (2, 1)
    assert "A sum." not in played.prompts[1]


def test_messages_of_a_turn_give_the_reply_and_spans_the_blocks_with_their_tokens(stage: Stage) -> None:
    text = f"First.\n{BAD}\nThen I saw it:\n```python\n{RIGHT}```\nand so it ends.\n{DONE} Bye."
    reply = tokens(text)
    played = stage.play("tools", reply, max_turns=1)
    assert "".join(m.content for m in played.models) == text
    assert [m.content[slice(*m.tool_calls[0].span)] for m in played.models] == [  # type: ignore[misc]
        f"<code>\n{WRONG}</code>",
        f"```python\n{RIGHT}```",
        DONE,
    ]
    results = [m for m in played.trace.messages if m.author == "environment"]
    assert [m.tool_call_ids for m in results] == [("call_0",), ("call_1",), ("call_2",)]
    assert {(m.author, m.train, m.injected, m.raw_role) for m in results} == {("environment", False, False, "user")}
    first, *_, last = found = [m.sampled for m in played.models if m.sampled]
    assert sum((one.token_ids for one in found), ()) == reply.token_ids
    assert sum((one.logprobs for one in found), ()) == reply.logprobs
    assert len(first.token_ids) == -(-len(played.models[0].content) // 5)  # to the span in which they start
    assert {one.exact for one in found} == {"token"}
    assert [one.prompt_token_ids for one in found] == [(1, 2, 3), None, None]
    assert (first.usage, first.finish_reason, last.usage, last.finish_reason) == (None, None, reply.usage, "stop")


CUT = "<result>\nAll 2 public tests passed.\n</result>"
OPEN = f"<code>\n{RIGHT}"
PLAIN: dict[str, Any] = {"pieces": (), "token_ids": (1, 2), "logprobs": (-1.0, -2.0)}


@pytest.mark.parametrize(
    ("reply", "kept", "exact"),
    [
        (tokens(f"{BAD}\n{CUT}", (*pieces_of(f"{BAD}\n"), *pieces_of(CUT))), len(pieces_of(f"{BAD}\n")), ["token"]),
        (tokens(f"{BAD}\n{CUT}", pieces_of(f" {BAD}\n{CUT}")), None, ["text"]),  # cut in the middle of a token
        (tokens(OPEN, (*pieces_of(OPEN), "</code>")), len(pieces_of(OPEN)) + 1, ["token"]),  # the tag is put back
        (tokens(OPEN), len(pieces_of(OPEN)), ["text"]),
        (tokens(OPEN, **PLAIN), 2, ["text"]),
        (tokens(GOOD, **PLAIN), 2, ["token"]),  # ids without pieces are exact for one message only
        (tokens(f"{BAD}{GOOD}", **PLAIN), 2, ["text", "text"]),
        (tokens(BAD + GOOD, (*pieces_of(f"{BAD}{GOOD}"[:-6]), *"\ufffd" * 30)), None, ["token", "text"]),
    ],
)
def test_tokens_are_exact_only_where_they_spell_the_text(
    stage: Stage, reply: Completion, kept: int | None, exact: list[str]
) -> None:
    found = sampled(stage, reply)
    assert [one.exact for one in found] == exact
    ids = sum((one.token_ids for one in found), ())
    assert ids == reply.token_ids[: len(ids)] and kept in (None, len(ids))


def test_times_say_who_measured_them_and_when(stage: Stage) -> None:
    played = stage.play("tools", tokens(f"{BAD}\n{GOOD}"), Completion(text=DONE), max_turns=2)
    assert [(m.model_s, m.model_s_source) for m in played.models] == [(0.5, "runner"), (None, None), (None, None)]
    results = [m for m in played.trace.messages if m.role == "tool"]
    assert len(results) == 2 and all(m.tool_s and m.tool_s_source == "runner" for m in results)
    stamps = [datetime.fromisoformat(m.started or "") for m in (played.models[0], *results)]
    assert stamps == sorted(stamps) and stamps[2] - stamps[1] >= timedelta(seconds=(results[0].tool_s or 0) - 0.01)
    assert played.models[2].started is None, "a completion that was not timed has no time"


# --- what it is worth

METRICS = (
    *("turns", "think_count", "code_block_count", "execution_count", "code_iterations", "had_errors", "recovered"),
    *("has_verify", "is_interleaved", "has_tool_feedback", "invented_results", "repairs", "is_ideal"),
)
LIMIT = Completion(text=f"{THINK}<code>\ndef add(a, b", finish="length")
CASES: dict[str, tuple[list[Any], list[float]]] = {
    "mended": ([BAD, GOOD, THINK + DONE], [3, 3, 2, 2, 2, 1, 1, 1, 1, 1, 0, 0, 1]),
    "at once": ([GOOD, f"{THINK}{DONE}"], [2, 2, 1, 1, 1, 0, 0, 1, 1, 1, 0, 0, 1]),
    "not seen": ([f"{GOOD}\n{THINK}{DONE}"], [1, 2, 1, 1, 1, 0, 0, 1, 1, 0, 0, 0, 0]),
    "the same code twice": ([GOOD, GOOD, DONE], [3, 2, 2, 2, 1, 0, 0, 1, 1, 1, 0, 0, 1]),
    "without thoughts": ([f"<code>\n{RIGHT}</code>", DONE], [2, 0, 1, 1, 1, 0, 0, 1, 0, 1, 0, 0, 0]),
    "wrong to the end": ([BAD, THINK + DONE], [2, 2, 1, 1, 1, 1, 0, 1, 1, 1, 0, 0, 0]),
    "invented": ([f"{GOOD}<error>\nno\n</error><result>\nx\n</result>", DONE], [2, 1, 1, 1, 1, 0, 0, 1, 0, 1, 2, 0, 0]),
    "cut twice": ([LIMIT, LIMIT, GOOD, DONE], [4, 3, 1, 1, 1, 1, 1, 1, 0, 1, 0, 0, 0]),
    "with tokens": ([tokens(GOOD), tokens(DONE)], [2, 1, 1, 1, 1, 0, 0, 1, 0, 1, 0, 0, 0]),
    "no code": (["What do you mean by that?"], [1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
}


@pytest.mark.parametrize("case", CASES)
def test_metrics_are_counted_as_they_are_defined(stage: Stage, case: str) -> None:
    replies, wanted = CASES[case]
    played = stage.play("tools", *replies, max_turns=len(replies))
    timed = {"model_s", "tool_s", "cut_replies", "prompt_tokens", "completion_tokens"}
    assert {k: v for k, v in played.metrics.items() if k not in timed} == dict(zip(METRICS, wanted, strict=True))
    assert (played.metrics["tool_s"] > 0) == (wanted[3] > 0)
    assert played.metrics["cut_replies"] == sum(reply is LIMIT for reply in replies)
    if case == "with tokens":
        length = len(pieces_of(GOOD)) + len(pieces_of(DONE))
        assert played.counted("model_s", "prompt_tokens", "completion_tokens") == (1.0, 14, length)


def test_what_was_different_about_a_completion_stands_in_its_first_message(stage: Stage) -> None:
    """Fewer tokens than the run asks for, logprobs left out; retries would make equal attempts unequal."""
    told = {"max_tokens": 70, "logprobs": "left out: 2 for 3 tokens"}
    reply = f"<code>\n{RIGHT}</code><code>\n{RIGHT}</code>"
    played = stage.play("tools", Completion(text=reply, extra=told | {"retried": ["busy"]}), Completion(text=DONE))
    own = [message.extra for message in played.trace.messages if message.author == "model"]
    assert own == [told, *[{}] * (len(own) - 1)] and len(own) > 2


def test_the_reward_counts_hidden_tests(stage: Stage) -> None:
    def reward(code: str, problem: Problem = ADD, **settings: Any) -> float | None:
        return stage.play(
            "tools", f"{THINK}<code>\n{code}\n</code>", problem=problem, max_turns=1, **settings
        ).episode.reward

    assert reward(RIGHT) == 1.0
    assert reward(f"{RIGHT}\nreal = add\ndef add(a, b):\n    return real(a, b) if a > 0 else 0") == pytest.approx(1 / 3)
    assert reward("def add(a, b):\n    return {1: 3, 0: 0}[a]") == -1.0, "public tests are not a reward"
    assert reward("def add(a, b) return") == -1.0
    assert reward("print(int(input()) * 2 or 1)", TWICE) == 0.0
    assert reward(WRONG, msgspec.structs.replace(ADD, hidden_tests=())) == 0.0
    strict = msgspec.structs.replace(ADD, public_tests=(Test(code="assert add(1, 2) == 4"),))
    played = stage.play("tools", GOOD, DONE, problem=strict)
    assert (played.episode.reward, played.trace.outcome.success) == (1.0, False), "success needs public tests too"


def test_the_structure_bonus_is_an_option_and_counts_at_full_pass_too(stage: Stage) -> None:
    full = stage.play("tools", GOOD, f"{THINK}{DONE}", structure_bonus=True)
    assert full.episode.reward == pytest.approx(1.2)
    assert stage.play("tools", GOOD, DONE, structure_bonus=True).episode.reward == pytest.approx(1.1)
    none = stage.play("tools", "I do not know it yet.", max_turns=1, structure_bonus=True)
    assert none.episode.reward == -1.0
    assert full.trace.extra["reward_formula"] == describe_reward(EpisodeSettings(structure_bonus=True))


def test_counts_say_nothing_of_hidden_tests_where_there_are_none(stage: Stage) -> None:
    bare = msgspec.structs.replace(ADD, hidden_tests=())
    for problem in (ADD, bare):
        said = stage.play("tools", BAD, GOOD, DONE, problem=problem, feedback="counts").said
        assert any("idden" in text for text in said) == (problem is ADD)


# --- whose it is


def test_the_key_names_the_attempt_and_nothing_else(stage: Stage) -> None:
    def key(identity: Identity = MODEL, problem: Problem = ADD, protocol: str = "tools", **settings: Any) -> str:
        episode = Episode(
            problem,
            load_plugin("protocol", protocol)(),
            stage.sandbox,
            identity=identity,
            settings=EpisodeSettings(**settings),
        )
        return episode.key

    same = msgspec.structs.replace(
        MODEL, run="other", created_at="2030-01-01", tool_versions={"x": "1"}, sampling={"temperature": 0.5, "seed": 9}
    )
    assert key() == key(same)
    others = {
        key(),
        key(msgspec.structs.replace(MODEL, model="scripted:y")),
        key(msgspec.structs.replace(MODEL, sampling={"temperature": 0.7})),
        key(msgspec.structs.replace(MODEL, seed=4)),
        key(msgspec.structs.replace(MODEL, sample=2)),
        key(problem=TWICE),
        key(protocol="inline"),
        key(feedback="counts"),
        key(hints=True),
        key(max_turns=3),
    }
    assert len(others) == 10


@pytest.mark.parametrize("protocol", ["tools", "interleaved_tools", "structured"])
def test_two_runs_of_one_attempt_have_one_id(stage: Stage, protocol: str) -> None:
    code = "print(object(), {'a', 'b', 'c'})\ndef add(a, b):\n    return a + c\nadd(1, 2)\n"
    replies = [f"{THINK}<code>\n{code}</code>", BAD, GOOD, DONE]
    one, two = (
        stage.play(
            protocol,
            *(tokens(reply, seconds=seconds) for reply in replies),
            identity=msgspec.structs.replace(MODEL, created_at=created),
            max_turns=4,
        ).trace
        for seconds, created in ((0.1, "2026-01-01"), (0.2, "2026-01-02"))
    )
    assert one.id == two.id and one.key == two.key and one != two
    assert any("0x..." in m.content for m in one.messages)


def test_the_trace_says_how_it_was_made(stage: Stage) -> None:
    trace = stage.play("tools", GOOD, DONE, identity=MODEL, hints=True).trace
    about = trace.provenance
    assert (about.origin, about.source, about.raw_id, about.license) == ("generated", "little", "add", "MIT")
    assert (about.model, about.protocol, about.seed, about.sample) == ("scripted:x", "tools", 3, 1)
    assert about.sampling == {"temperature": 0.5, "seed": 3, "feedback": "public", "hints": True, "max_turns": 10}
    assert (trace.task.id, trace.task.group, trace.task.statement) == ("little/add", "little/add", ADD.statement)
    assert [tool.name for tool in trace.tools] == ["run_tests", "submit"]


def test_code_that_is_flagged_earns_what_passes_nothing_unless_it_is_only_reported() -> None:
    passed = TestResult(name="0", passed=True)
    verdict = Verdict(tests=(passed,), integrity="together", flags=("peeked",), isolation=Isolation(level=3))
    evaluation = Evaluation("def f(): pass", hidden=verdict)
    metrics = {"think_count": 2.0, "has_verify": 1.0}
    zero, report = (EpisodeSettings(structure_bonus=True, flagged=flagged) for flagged in ("zero", "report"))
    assert compute_reward(evaluation, metrics, zero) == -1.0
    assert compute_reward(evaluation, metrics, report) == pytest.approx(1.2)
    assert "flagged" in describe_reward(zero) and "flagged" not in describe_reward(report)


PROBLEM = Problem(
    id="sum",
    source="handmade",
    statement="Add two numbers.",
    entry_point="add",
    public_tests=(Test(code="assert add(1, 2) == 3"),),
)
IDENTITY = Identity(model="demo", sampling={"temperature": 0.7}, seed=7, sample=2)
SMALL_STEPS = EpisodeSettings(max_turns=4, hints=True, feedback="counts")


@pytest.mark.parametrize(
    ("protocol", "settings", "key"),
    [
        ("tools", EpisodeSettings(), "generated/handmade/sum/087a5dddc1bc9211/2"),
        ("tools", EpisodeSettings(structure_bonus=True), "generated/handmade/sum/0d5059446b561bfc/2"),
        ("interleaved_forced", SMALL_STEPS, "generated/handmade/sum/0cccf6b6aa57a956/2"),
    ],
)
def test_a_key_is_what_it_was_in_earlier_versions(protocol: str, settings: EpisodeSettings, key: str) -> None:
    """Keys of traces that were stored before `structure_bonus` and `interleaved_forced` had these names."""
    assert make_key(PROBLEM, make_protocol(protocol), IDENTITY, settings) == key


def test_the_name_of_a_run_is_what_it_was_in_earlier_versions() -> None:
    assert make_run_name(make_protocol("tools"), IDENTITY, EpisodeSettings(structure_bonus=True)) == "302c9076092b0c77"
