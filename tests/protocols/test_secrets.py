"""What a model sees: never a value of a hidden test, in no protocol and with no kind of feedback."""

from __future__ import annotations

import msgspec
import pytest

from foretrace.core.plugins import load_plugin, plugin_names
from foretrace.core.problem import Problem, Test
from foretrace.core.trace import encode_trace
from foretrace.protocols.base import InteractionProtocol
from protocols.play import ADD, RIGHT, SECRET, TWICE, WRONG, Stage

CHECKED = msgspec.structs.replace(
    ADD,
    hidden_tests=(
        Test(
            code=f"def check(candidate):\n    got = candidate(7350900, 14)\n    print('want {SECRET}')\n"
            f"    assert got == {SECRET}, 'want {SECRET}'\n    assert got != {SECRET}, 'not {SECRET}'\n"
        ),
    ),
    reference=f"def add(a, b):\n    return {SECRET}\n",
    extra={"answer": SECRET},
)
SHARED = msgspec.structs.replace(CHECKED, form="together")
NOSY = (
    "import sys, gc\ndef add(a, b):\n    print('called with', a, b, file=sys.stderr)\n"
    "    print([o for o in gc.get_objects() if isinstance(o, (str, dict)) and '7350' in repr(o)][:9])\n"
    "    raise ValueError(f'{a} {b}')\n"
)
PROGRAMS = ("print(int(input()))", "print(open('/proc/self/cmdline').read(), dict(__import__('os').environ))")


def steps(code: str, protocol: InteractionProtocol) -> list[str]:
    """A reply that tries the code in the protocol's own way, then one that verifies it."""
    if protocol.name == "inline":
        body = msgspec.json.encode({"name": "python", "arguments": {"code": code}}).decode()
        return [f"<think>I try this one out.\n<tool_call>{body}</tool_call>"]
    if protocol.name == "interleaved_forced":
        return [f"<code>\n{line}\n</code>" for line in code.splitlines()] + ["<verify>x = 1</verify>"]
    if protocol.name == "structured":
        return [f"<plan>I try this one.</plan>\n<code>\n{code}</code>", "<reflect>I learned from it.</reflect>"]
    check = "" if protocol.name == "tools" else "<verify>x = 1</verify>"
    return [f"<think>I try this one.</think>\n<code>\n{code}</code>\n{check}"]


@pytest.mark.parametrize("feedback", ["public", "counts"])
@pytest.mark.parametrize("protocol", plugin_names("protocol"))
def test_no_hidden_value_reaches_the_model_or_the_trace(stage: Stage, protocol: str, feedback: str) -> None:
    chosen = load_plugin("protocol", protocol)()
    problems: list[tuple[Problem, tuple[str, ...]]] = [
        (ADD, (WRONG, NOSY, RIGHT)),
        (CHECKED, (WRONG, NOSY, RIGHT)),
        (SHARED, (WRONG, NOSY, RIGHT)),
        (TWICE, PROGRAMS),
    ]
    asked = 0
    for problem, codes in problems:
        for code in codes:
            replies = steps(code, chosen)
            how = {"problem": problem, "feedback": feedback, "hints": True, "max_turns": len(replies)}
            played = stage.play(chosen, *replies, **how)
            assert played.episode.done and played.said
            asked += sum("idden tests:" in text for text in played.said)
            episode = played.episode
            shown = [*played.prompts, *played.said, *(m.content for m in episode.messages), episode.prefill]
            shown.append(encode_trace(played.trace).decode())
            assert not any(SECRET in text for text in shown)
    # Code of a call in `inline` is not an answer, and one reply of `interleaved` is not answered in any other way.
    assert (asked > 0) == (feedback == "counts" and protocol != "inline")
