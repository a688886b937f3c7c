"""Many wrong and odd answers to HumanEval: the verdict is that of its own `check`, run by plain Python."""

from __future__ import annotations

import ast
import asyncio
import copy
import gzip
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from foretrace.core.problem import Test
from foretrace.registry import make_sandbox
from foretrace.sandbox.base import Limits, SandboxSettings
from sandbox.plain_python import verdicts

pytestmark = pytest.mark.integration
MUTANTS = 12
"""Mutants of each problem, where so many can be made."""
WRAPPERS = """
[{}] ({},) str({}) float({}) list({}) tuple({}) iter({}) bool({}) -({}) sorted({}) None {{{}}}
"""
COMPARISONS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq)
OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod)


class Mutator(ast.NodeTransformer):
    """Changes the node of one number, where there is something to change."""

    def __init__(self, at: int, choice: random.Random) -> None:
        self._left, self._choice = at, choice

    def visit(self, node: ast.AST) -> Any:
        node = self.generic_visit(node)
        self._left -= 1
        if self._left:
            return node
        if isinstance(node, ast.Compare):
            node.ops[0] = self._choice.choice(COMPARISONS)()
        elif isinstance(node, ast.BinOp):
            node.op = self._choice.choice(OPERATORS)()
        elif isinstance(node, ast.Constant) and type(node.value) is int:
            node.value += self._choice.choice((-1, 1, 2))
        elif isinstance(node, ast.Constant) and type(node.value) is bool:
            node.value = not node.value
        elif isinstance(node, ast.If):
            node.test = ast.UnaryOp(ast.Not(), node.test)
        elif isinstance(node, ast.BoolOp):
            node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        elif isinstance(node, ast.Return) and node.value is not None:
            wrapped = self._choice.choice(WRAPPERS.split()).format(f"({ast.unparse(node.value)})")
            node.value = ast.parse(wrapped, mode="eval").body
        return node


def mutants(code: str, entry_point: str, seed: str) -> Iterator[str]:
    """Different mutants of the function asked for: the prompt's helpers are the tests' own, whatever an answer makes of
    them."""
    choice, whole = random.Random(seed), ast.parse(code)
    tree = next(node for node in whole.body if getattr(node, "name", "") == entry_point)
    size, seen = sum(1 for _ in ast.walk(tree)), {ast.unparse(tree)}
    for _ in range(40 * MUTANTS):
        mutant = ast.unparse(
            ast.fix_missing_locations(Mutator(choice.randrange(1, size + 1), choice).visit(copy.deepcopy(tree)))
        )
        if mutant not in seen:
            seen.add(mutant)
            yield mutant
        if len(seen) > MUTANTS:
            return


def test_verdicts_on_mutants_are_those_of_plain_python(shared: Path) -> None:
    with gzip.open(shared / "data/problems/HumanEval.jsonl.gz") as file:
        rows = [json.loads(line) for line in file]
    jobs = [
        {
            "code": mutant,
            "tests": [row["test"]],
            "prompt": row["prompt"],
            "entry_point": row["entry_point"],
            "seconds": 2,
        }
        for row in rows
        for mutant in mutants(row["prompt"] + row["canonical_solution"], row["entry_point"], row["task_id"])
    ]
    found, expected = asyncio.run(judge_all(jobs, 2)), verdicts(jobs)
    differ = [job | {"seconds": 30} for job, plain, ours in zip(jobs, expected, found, strict=True) if plain != ours]
    # Once more with more time: a mutant may be as slow as the limit.
    again = zip(differ, verdicts(differ), asyncio.run(judge_all(differ, 30)), strict=True)
    wrong = [(job["entry_point"], job["code"], plain, ours) for job, plain, ours in again if plain != ours]
    print(f"{len(jobs):,} mutants, {sum(expected):,} pass, {len(wrong)} verdicts differ", file=sys.stderr)
    assert len(jobs) > 1_500 and wrong == []


async def judge_all(jobs: list[dict[str, Any]], seconds: int) -> list[bool]:
    gate = asyncio.Semaphore(2)
    async with make_sandbox("local", SandboxSettings(workers=2)) as sandbox:

        async def one(job: dict[str, Any]) -> bool:
            async with gate:
                tests = [Test(code=test) for test in job["tests"]]
                limits = Limits(wall_s=seconds, cpu_s=seconds)
                named = {key: job[key] for key in ("entry_point", "prompt")}
                return (await sandbox.judge(job["code"], tests, limits=limits, **named)).passed

        return await asyncio.gather(*(one(job) for job in jobs))
