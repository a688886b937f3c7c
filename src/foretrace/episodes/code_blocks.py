"""The blocks of one episode: the code that stands so far, and the session in which it ran."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from foretrace.core.errors import SandboxError
from foretrace.core.problem import RunResult
from foretrace.core.python_source import try_parse
from foretrace.sandbox.base import Sandbox, Session


class _Block(NamedTuple):
    """One block that stands, and the state of the session after it (null where it was not run)."""

    code: str
    state: int | None = None


class Blocks:
    """Blocks accumulate; one that fails is no part of them, and a fix takes the place of what it fixes."""

    def __init__(self, sandbox: Sandbox, prelude: str = "") -> None:
        self._sandbox = sandbox
        self._prelude = prelude
        """Code that a session starts with and that is no part of the answer."""
        self._session: Session | None = None
        self._start = 0
        self._blocks: list[_Block] = []

    @property
    def code(self) -> str:
        """All that stands, in order."""
        return "\n\n".join(block.code.strip("\n") for block in self._blocks) + "\n" * bool(self._blocks)

    @property
    def ran(self) -> bool:
        """Whether all that stands was run in the session."""
        return all(block.state is not None for block in self._blocks)

    def keep(self, code: str) -> None:
        """Add a block without running it."""
        mended = kept_in_place(self.code, code)
        self._blocks = [*self._blocks, _Block(code)] if mended is None else [_Block(mended)]

    async def run(self, code: str) -> RunResult:
        """Run the next block on all that stands; what it defines anew takes the place of what it replaces.

        The answer is that of the block as it was written, run on the session as it is: the model sees what it would
        see in a notebook. Where it replaces something, what follows is run again behind it, so that nothing is left
        of what the old code had computed; where that fails, the block stands last instead.
        """
        result = await self.peek(code)
        if not result.ok:
            return result
        session = self._session
        for plan in plans([block.code for block in self._blocks], code):
            if made := await self._again(plan.place, plan.blocks):
                self._blocks[plan.place :] = made
                return result
        if self._session is not session:  # lost on the way, and its states with it
            result = await self.peek(code)
        if result.ok:
            self._blocks.append(_Block(code, result.step))
        return result

    async def peek(self, code: str) -> RunResult:
        """Run code on all that stands, and leave it as it was."""
        session = await self._open()
        try:
            return await session.run(code, at=self._state_before(len(self._blocks)))
        except SandboxError:  # code can end its own session
            session = await self._reopen()
            return await session.run(code, at=self._state_before(len(self._blocks)))

    async def close(self) -> None:
        """End the session."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _state_before(self, place: int) -> int:
        states = [block.state for block in self._blocks[:place] if block.state is not None]
        return states[-1] if states else self._start

    async def _again(self, place: int, codes: list[str]) -> list[_Block] | None:
        """The blocks run one after the other from a place on, null where one fails."""
        session = await self._open()
        made: list[_Block] = []
        state = self._state_before(place)
        for code in codes:
            try:
                result = await session.run(code, at=state)
            except SandboxError:
                await self._reopen()
                return None
            if result.step is None:
                return None
            state = result.step
            made.append(_Block(code, state))
        return made

    async def _open(self) -> Session:
        if self._session is None:
            self._session = session = await self._sandbox.session()
            self._start = 0
            if self._prelude:
                self._start = (await session.run(self._prelude)).step or 0
        return self._session

    async def _reopen(self) -> Session:
        """A new session in which all that stands was run again.

        Raises:
            SandboxError: there is none to be had, or a block does not run again.
        """
        await self.close()
        session = await self._open()
        codes, self._blocks = [block.code for block in self._blocks], []
        for code in codes:
            result = await session.run(code, at=self._state_before(len(self._blocks)))
            if result.step is None:
                raise SandboxError("the session was lost, and its blocks did not run again")
            self._blocks.append(_Block(code, result.step))
        return session


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DEFINITIONS = (*_FUNCTIONS, ast.ClassDef)
_DEFINES = re.compile(r"(?:async[ \t]+)?(?:def|class)[ \t]+(\w+)")
_LINE = re.compile(r"\r\n?|\n")


class Plan(NamedTuple):
    """One way to put a fix in its place."""

    place: int
    """Index of the first block that changes."""
    blocks: list[str]
    """What stands there from then on."""


def plans(blocks: Sequence[str], fix: str) -> list[Plan]:
    """Ways to put `fix` in the place of what it defines anew, the best first; empty where it is none, or unsafe.

    The definitions of the fix take the place of the first one that they replace; other definitions of these names go,
    and all else of the earlier blocks stays. What the fix does beside defining comes last, as it did when it ran.
    A fix that needs what it replaces (`old = f` before a new `f`), or a name that was given away (`old = f` in a later
    block), has no plan: the later definition then simply stands behind the earlier one.
    """
    tree = parsed(fix)
    if tree is None:
        return []
    names = _names(tree)
    trees = [parsed(block) for block in blocks]
    hits = [index for index, found in enumerate(trees) if found is not None and _names(found) & names]
    if not hits:
        return []
    place = hits[0]
    behind = [found for found in trees[place:] if found is not None]
    if _needs_old(tree, names) or any(_gives_away(found, names) for found in (tree, *behind)):
        return []
    before, after = _around(blocks[place], names)
    later = [_without(block, names) for block in blocks[place + 1 :]]
    head, tail = _parted(fix, tree)
    whole = Plan(place, _kept([before, fix, after, *later]))
    if not tail.strip():
        return [whole]
    best = Plan(place, _kept([before, head, after, *later, tail]))
    sets = _bound(tree) - names
    return [best] if any(_bound(found) & sets for found in behind) else [best, whole]


@lru_cache(maxsize=64)
def parsed(code: str) -> ast.Module | None:
    """The code's syntax tree, null when it is no Python."""
    return try_parse(code)


def kept_in_place(code: str, fix: str) -> str | None:
    """Code that is not run between its blocks, with a fix in the place of what it defines anew; null where it is none,
    or where that could leave a name looked up before it is set.

    Code that is no Python as it stands loses the lines of the old definitions too, where it is Python without them.
    """
    for plan in plans([code], fix):
        text = "\n\n".join(plan.blocks)
        if (tree := parsed(text)) is not None and not _early(tree):
            return text
    tree = parsed(fix)
    if tree is None or parsed(code) is not None:
        return None
    left = _without_lines(code, _names(tree))
    return f"{left}\n\n{fix}" if left != code and parsed(f"{left}\n\n{fix}") is not None else None


def _early(tree: ast.Module) -> bool:
    """Whether a statement looks a name up that only a later one sets."""
    later = _bound(tree)
    for node in tree.body:
        if _looked_up(node) & (later - _bound(node)):
            return True
        later -= _bound(node)
    return False


def _without_lines(code: str, names: set[str]) -> str:
    """The code without the lines that begin to define one of the names and the indented ones behind them."""
    kept: list[str] = []
    gone = False
    for line in _lines(code):
        begins = _DEFINES.match(line)
        if begins:
            gone = begins.group(1) in names
        elif line.strip() and not line.startswith((" ", "\t", ")")):
            gone = False
        if not gone:
            kept.append(line)
    return "\n".join(kept)


def _names(tree: ast.Module) -> set[str]:
    """Functions and classes defined at the top."""
    return {node.name for node in tree.body if isinstance(node, _DEFINITIONS)}


def _needs_old(tree: ast.Module, names: set[str]) -> bool:
    """Whether running it looks up one of the names before it has defined that name itself."""
    made: set[str] = set()
    for node in tree.body:
        if _looked_up(node) & (names - made):
            return True
        if isinstance(node, _DEFINITIONS):
            made.add(node.name)
    return False


def _gives_away(tree: ast.Module, names: set[str]) -> bool:
    """Whether one of the functions gets a second name, under which the new one may call the old one."""
    values = (node.value for statement in tree.body for node in _run(statement) if isinstance(node, ast.Assign))
    return any(isinstance(value, ast.Name) and value.id in names for value in values)


def _looked_up(node: ast.AST) -> set[str]:
    return {n.id for n in _run(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


def _bound(tree: ast.AST) -> set[str]:
    """Names that running it sets."""
    found: set[str] = set()
    for node in _run(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, _DEFINITIONS):
            found.add(node.name)
        elif isinstance(node, ast.alias):
            found.add(node.asname or node.name.partition(".")[0])
    return found


def _run(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes that run when a statement does: all but the bodies of functions."""
    todo = [node]
    while todo:
        node = todo.pop()
        yield node
        if isinstance(node, _FUNCTIONS):
            todo += [*node.decorator_list, node.args, *([node.returns] if node.returns else [])]
        elif isinstance(node, ast.Lambda):
            todo.append(node.args)
        else:
            todo += ast.iter_child_nodes(node)


def _lines(code: str) -> list[str]:
    return _LINE.split(code)


def _rows(node: ast.stmt) -> range:
    """0-based lines of a statement, decorators included."""
    marks = node.decorator_list if isinstance(node, _DEFINITIONS) else []
    return range(min(n.lineno for n in (node, *marks)) - 1, node.end_lineno or node.lineno)


def _around(code: str, names: set[str]) -> tuple[str, str]:
    """What stands before the first definition of the names, and what stands behind it, without the others."""
    tree = parsed(code) or ast.Module([], [])
    first = next(_rows(n) for n in tree.body if isinstance(n, _DEFINITIONS) and n.name in names)
    lines = _lines(code)
    cut = "\n".join(lines[: first.start])
    return cut, _without("\n" * first.start + "\n".join(lines[first.start :]), names)


def _without(code: str, names: set[str]) -> str:
    """The code without its definitions of the names."""
    tree = parsed(code)
    if tree is None:
        return code
    gone = {row for n in tree.body if isinstance(n, _DEFINITIONS) and n.name in names for row in _rows(n)}
    return "\n".join(line for row, line in enumerate(_lines(code)) if row not in gone) if gone else code


def _parted(code: str, tree: ast.Module) -> tuple[str, str]:
    """Imports and definitions, and all else; comments go with what follows them."""
    head: list[str] = []
    tail: list[str] = []
    lines, at = _lines(code), 0
    kinds = (*_DEFINITIONS, ast.Import, ast.ImportFrom)
    for node in tree.body:
        end = _rows(node).stop
        (head if isinstance(node, kinds) else tail).extend(lines[at:end])
        at = max(at, end)
    tail += lines[at:]
    return "\n".join(head), "\n".join(tail)


def _kept(blocks: Sequence[str]) -> list[str]:
    """The blocks that hold a statement."""
    return [b.strip("\n") for b in blocks if (tree := parsed(b)) is None or tree.body]
