"""Rows of `trajectories` in every chat template that TRL ships and that can show tool calls.

transformers ships none: its templates come with each tokenizer.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from integrations.conftest import Built, Say

pytestmark = pytest.mark.integration


SEVERAL = "shows one call of a message at most"
CANNOT = {
    "deepseek_r1_distill": "drops the calls",
    "deepseek_r1_distill_training": "drops the calls",
    "deepseekv3": "takes arguments as JSON text only",
    "gptoss": SEVERAL,
    "gptoss_training": SEVERAL,
    "lfm2_2_5_vl": "shows arguments as Python",
    "lfm2_v2": "shows arguments as Python",
    "lfm2_v2_training": "shows arguments as Python",
    "llama3_1": SEVERAL,
    "llama3_2": SEVERAL,
}
"""What templates of TRL 1.16 cannot do themselves."""


def find_templates() -> dict[str, str]:
    """The templates of the installed TRL that mention tool calls, by name; found without importing it."""
    found = find_spec("trl")
    folders = list(found.submodule_search_locations or ()) if found else []
    files = [path for folder in folders for path in sorted(Path(folder, "chat_templates").glob("*.jinja"))]
    texts = {path.stem: path.read_text(encoding="utf-8") for path in files}
    return {name: text for name, text in texts.items() if "tool_calls" in text}


TEMPLATES = find_templates()


def render(template: str, messages: list[dict[str, Any]], tools: list[Any]) -> str:
    from transformers.utils.chat_template_utils import render_jinja_template

    special: dict[str, Any] = {"bos_token": "<s>", "eos_token": "</s>"}
    shown, _ = render_jinja_template(conversations=[messages], tools=tools, chat_template=template, **special)
    return shown[0]


def leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """The strings and numbers in a JSON value, each with the name of the member that holds it."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, key)
    elif isinstance(value, list):
        for inner in value:
            yield from leaves(inner, name)
    elif value is not None and not isinstance(value, bool):
        yield name, value


def spellings(leaf: Any) -> set[str]:
    """How a value may stand in a text: as it is, or escaped once as in JSON."""
    ascii_too = {json.dumps(leaf, ensure_ascii=False), json.dumps(leaf)}
    return {str(leaf), str(leaf).strip(), *(text[1:-1] if isinstance(leaf, str) else text for text in ascii_too)}


_MARKUP = 60
"""Characters between the name of an argument and its value, at most: quotes, tags, the name of a type."""


def find_lost(text: str, messages: list[dict[str, Any]]) -> list[str]:
    """Calls that the text does not show, in their order: the tool's name, then each argument's name and right behind it
    the value."""
    functions = [call["function"] for message in messages for call in message.get("tool_calls", ())]
    assert functions
    lost: list[str] = []
    for place, function in enumerate(functions):
        begin = text.find(function["name"])
        following = functions[place + 1]["name"] if place + 1 < len(functions) else None
        given = list(leaves(function["arguments"]))
        ends = [end for name, leaf in given if (end := find_argument(text, begin, name, leaf)) >= 0]
        if begin < 0 or len(ends) < len(given):
            lost.append(f"{function['name']} {given}")
            continue
        text = text[max(ends, default=begin + len(function["name"])) if following else 0 :]
    return lost


def find_argument(text: str, begin: int, name: str, leaf: Any) -> int:
    """Where the first value ends that stands right behind the name of its argument; -1 where there is none."""
    at = text.find(name, begin)
    while at >= 0:
        after = at + len(name)
        for spelling in spellings(leaf):
            found = text.find(spelling, after, after + _MARKUP + len(spelling))
            if found >= 0:
                return found + len(spelling)
        at = text.find(name, at + 1)
    return -1


def test_control_what_is_not_a_call_is_seen() -> None:
    call = {"function": {"name": "copy", "arguments": {"source": "a.py", "target": 'say "b"'}}}
    messages = [{"role": "assistant", "tool_calls": [call]}]
    assert not find_lost(json.dumps(call), messages)
    assert find_lost(
        json.dumps({"function": {"name": "copy", "arguments": json.dumps(call["function"]["arguments"])}}), messages
    )
    assert find_lost('copy a.py to say "b"', messages)
    assert find_lost('copy {"source": "say \\"b\\"", "target": "a.py"}', messages)


@pytest.fixture(scope="module")
def rows(built: Built) -> list[dict[str, Any]]:
    """Rows with calls; some have several in one message."""
    return [row for row in built.load("trajectories") if any("tool_calls" in m for m in row["messages"])]


def has_several(row: dict[str, Any]) -> bool:
    return any(len(message.get("tool_calls", ())) > 1 for message in row["messages"])


@pytest.mark.parametrize("name", TEMPLATES or [pytest.param("", marks=pytest.mark.skip("trl is not installed"))])
def test_every_call_is_in_the_text(name: str, rows: list[dict[str, Any]], say: Say) -> None:
    """Calls are searched for in the text as they were written; what a template cannot do is listed."""
    template, failed = TEMPLATES[name], []
    for row in rows:
        try:
            lost = find_lost(render(template, row["messages"], row["tools"]), row["messages"])
        except Exception as error:  # templates raise what they like
            lost = [str(error)]
        if lost:
            failed.append((row, lost[0]))
    limit = CANNOT.get(name)
    if limit == SEVERAL:
        assert failed and all(has_several(row) for row, _ in failed), failed[0][1]
    else:
        assert bool(failed) == (limit is not None), failed[0][1] if failed else "it shows all: take it off the list"
    say(f"{name}: {len(rows) - len(failed)} of {len(rows)} rows" + f" ({limit})" * (limit is not None))
