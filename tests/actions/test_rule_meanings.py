"""Every rule that can occur has a sentence that says what it means, and no other."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import foretrace.actions
from foretrace.actions import rules
from foretrace.actions.call_facts import CallKind
from foretrace.actions.confidence import COUNTS
from foretrace.actions.rules import find_rule_meaning
from foretrace.actions.shell.program_tables import BY_ARGUMENTS, PROGRAMS
from foretrace.actions.tool_tables import TOOL_GROUPS, TOOL_KINDS

FOLDER = Path(foretrace.actions.__file__).parent
NAMES = re.compile(
    r"(?:tool|shell|git|python|cell|text|repair|nonstep)\.[a-z_]+|terminal_[a-z_]+|hand_over|ask_call|say_call"
)
NO_RULES = {"rules", "confidence"}
"""Modules that name rules and make none."""


def list_made_rules() -> set[str]:
    """Rules that stand as texts in the code, and those that it puts together from tables."""
    made: set[str] = set()
    for path in FOLDER.rglob("*.py"):
        if path.stem not in NO_RULES:
            texts = [
                node.value for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Constant)
            ]
            made |= {text for text in texts if isinstance(text, str) and NAMES.fullmatch(text)}
    made |= {f"shell.{rule}" for rule in PROGRAMS.values()}
    made |= {f"shell.{rule}" for patterns in BY_ARGUMENTS.values() for _, rule, _ in patterns}
    made |= {f"git.{verb}" for verb in ("diff", "status", "difftool", "show")}
    made |= {f"tool.{tool}" for tool in TOOL_KINDS}
    made |= {f"tool.{tool}" for tool, group in TOOL_GROUPS.items() if group == "code_mode"}
    made |= {f"tool.{command}" for command in ("create", "str_replace", "insert", "write", "edit", "append", "replace")}
    # A cell has the kind of a tool that it calls as a function.
    made |= {f"cell.{kind.name.lower()}" for kind in {kind for kind, _ in TOOL_KINDS.values()} | {CallKind.TERMINAL}}
    made |= {f"nonstep.{reason}" for reason in list_nonstep_reasons()}
    return made


def list_nonstep_reasons() -> set[str]:
    module = ast.parse((FOLDER / "text_message_rules.py").read_text("utf-8"))
    function = next(n for n in module.body if isinstance(n, ast.FunctionDef) and n.name == "find_nonstep_reason")
    returned = [
        n.value.value for n in ast.walk(function) if isinstance(n, ast.Return) and isinstance(n.value, ast.Constant)
    ]
    return {str(reason) for reason in returned if reason}


@pytest.mark.parametrize(
    "rule", sorted(list_made_rules() | {key.split(" ")[0] for key in [*COUNTS.samples, *COUNTS.sources]})
)
def test_a_rule_has_a_sentence(rule: str) -> None:
    meaning = find_rule_meaning(rule)
    assert meaning[0].isupper() and meaning.endswith(".") and "\n" not in meaning and len(meaning) < 120


def test_no_sentence_is_of_a_rule_that_does_not_occur() -> None:
    listed = set({**rules.RULES, **rules.OTHER_MEANINGS})
    assert listed - list_made_rules() == {rules.CORRECTED_RULE}


def test_the_rules_of_the_page_have_sentences() -> None:
    """`docs/actions.md` names every rule that has no tool's name."""
    page = (FOLDER.parents[2] / "docs" / "actions.md").read_text("utf-8")
    named = {rule for text in re.findall(r"`([^`\n]+)`", page) if NAMES.fullmatch(rule := text)}
    assert len(named) > 80
    for rule in named:
        find_rule_meaning(rule)
