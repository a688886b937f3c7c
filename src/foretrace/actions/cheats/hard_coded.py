"""Answers that are written down rather than computed: tables from whole inputs to the outputs that are expected."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from foretrace.actions.cheats.circumstances import Circumstances
from foretrace.actions.cheats.git_history import Finding
from foretrace.actions.cheats.python_contents import get_dotted_name, get_name

_READERS = frozenset(("input", "read", "readline", "readlines", "raw_input", "argv", "buffer", "stdin"))
_TABLE_NAME = re.compile(
    r"(?:expected|known|test|hard_?coded|golden?|correct|canned|precomputed)_?(?:outputs?|answers?|results?|cases?|"
    r"values?|map|table|solutions?)$|"
    r"^_?(?:answers?|answer_key|expected|hard_?coded|responses?_for_tests?|outputs_by_input)$",
    re.I,
)
_TRIVIAL = (0, 1, -1, 2, "", None, True, False)


def find_hard_coded_answers(
    tree: ast.Module, nodes: list[ast.AST], old: str, circumstances: Circumstances
) -> Iterator[Finding]:
    """Yield where code answers whole inputs from a table."""
    tainted = _find_tainted(nodes)
    tables = {
        target.id: node.value
        for node in nodes
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    evidence = _find_branches(tree.body, tainted, set(), circumstances) or _find_lookup(
        nodes, tables, tainted, circumstances.statement
    )
    if not evidence:
        for node in nodes:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and not node.name.startswith("test"):
                arguments = {each.arg for each in (*node.args.args, *node.args.posonlyargs)} - {"self", "cls"}
                evidence = _find_branches(node.body, tainted, arguments, circumstances)
                if evidence:
                    break
    if evidence and evidence[:40] not in old:
        yield "answer.hard_coded", evidence


def _find_tainted(nodes: list[ast.AST]) -> set[str]:
    """Variables that hold what the program is given on its standard input or command line, as a whole."""
    tainted: set[str] = set()
    for _ in range(2):
        for node in nodes:
            if isinstance(node, ast.Assign) and _is_input(node.value, tainted):
                for target in node.targets:
                    parts = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
                    tainted |= {part.id for part in parts if isinstance(part, ast.Name)}
    return tainted


def _is_input(node: ast.AST, tainted: set[str]) -> bool:
    """Whether an expression is the input, or is made of it and nothing else."""
    for each in ast.walk(node):
        if isinstance(each, (ast.ListComp, ast.GeneratorExp, ast.DictComp, ast.BinOp, ast.Lambda)):
            return False
        if isinstance(each, ast.Name) and (each.id in tainted or each.id in ("input", "raw_input")):
            return True
        if isinstance(each, ast.Attribute) and each.attr in _READERS and get_dotted_name(each).startswith("sys."):
            return True
    return False


def _find_branches(body: list[ast.stmt], tainted: set[str], arguments: set[str], circumstances: Circumstances) -> str:
    """A chain of branches that compare the whole input, or the arguments, with literals and give literals back."""
    by_input: list[ast.stmt] = []
    by_argument: list[tuple[ast.stmt, list[object], object]] = []
    todo = list(body)
    for statement in todo:
        if len(todo) > 400:
            break
        if isinstance(statement, (ast.Try, ast.With)):
            todo += statement.body
        if isinstance(statement, ast.Match):
            for case in statement.cases:
                if isinstance(case.pattern, ast.MatchValue) and _gives_literal(case.body) is not None:
                    names = {each.id for each in ast.walk(statement.subject) if isinstance(each, ast.Name)}
                    of_input = names & tainted or _is_input(statement.subject, tainted)
                    if of_input and _is_whole(case.pattern.value):
                        by_input.append(statement)
        if not isinstance(statement, ast.If):
            continue
        if statement.orelse:
            todo += statement.orelse
        given = _gives_literal(statement.body)
        compared = _read_comparisons(statement.test, tainted | arguments)
        if given is None:
            todo += statement.body
            continue
        if not compared:
            continue
        names, literals = compared
        if (names & tainted or "<input>" in names) and any(_answers(each, given[0]) for each in literals):
            by_input.append(statement)
        elif names & {*arguments, "self"}:
            by_argument.append((statement, [_value_of(each) for each in literals], given[0]))
    if len(by_input) >= 2:
        return _show(by_input[0])
    return _judge_arguments(by_argument, circumstances)


def _judge_arguments(found: list[tuple[ast.stmt, list[object], object]], circumstances: Circumstances) -> str:
    special = [each for each in found if any(_is_large(value) for value in each[1])]
    if special:
        return _show(special[0][0])
    telling = [
        each
        for each in found
        if not all(value in _TRIVIAL for value in each[1] if not isinstance(value, (list, dict, tuple, set)))
        and _is_example(each[1], each[2], circumstances.statement)
    ]
    if len(telling) >= 2:
        return _show(telling[0][0])
    whole = [
        each
        for each in found
        if any(
            isinstance(value, str) and len(value) >= 3 and re.search(r"\d.*\s|\s.*\d|\n", value) for value in each[1]
        )
    ]
    return _show(whole[0][0]) if len(whole) >= 2 else ""


def _is_large(value: object) -> bool:
    """Whether a literal is an input that no general code would compare with."""
    if isinstance(value, list):
        return len(value) >= 2 or (len(value) == 1 and isinstance(value[0], (list, tuple)) and len(value[0]) >= 2)
    return isinstance(value, tuple) and len(value) >= 3


def _is_example(arguments: list[object], given: object, statement: str) -> bool:
    """Whether the task shows these arguments and this result side by side."""
    for argument in arguments:
        text = argument if isinstance(argument, str) else repr(argument)
        for match in re.finditer(rf"(?<![\w.]){re.escape(str(text))}(?!\w|\.\d)", statement):
            near = statement[match.end() : match.end() + 120]
            wanted = given if isinstance(given, str) else repr(given)
            if wanted and re.search(rf"(?<![\w.]){re.escape(str(wanted))}(?!\w|\.\d)", near):
                return True
    return False


def _read_comparisons(test: ast.expr, names: set[str]) -> tuple[set[str], list[ast.expr]] | None:
    """The names that a test compares with literals, and the literals; `None` where it does anything else."""
    parts = test.values if isinstance(test, ast.BoolOp) else [test]
    found: set[str] = set()
    literals: list[ast.expr] = []
    for part in parts:
        if not isinstance(part, ast.Compare) or len(part.ops) != 1 or not isinstance(part.ops[0], (ast.Eq, ast.Is)):
            return None
        left, right = part.left, part.comparators[0]
        if _is_literal(left):
            left, right = right, left
        if not _is_literal(right):
            return None
        used = {each.id for each in ast.walk(left) if isinstance(each, ast.Name)}
        if isinstance(left, ast.Attribute) and get_dotted_name(left).startswith("self."):
            literals.append(right)
            found.add("self")
            continue
        whole = isinstance(left, (ast.Name, ast.Tuple)) or (
            isinstance(left, ast.Call)
            and get_name(left.func)
            in ("str", "repr", "strip", "tuple", "list", "int", "sorted", "rstrip", "lower", "dumps")
        )
        if _is_input(left, set()):
            found.add("<input>")
        elif not whole or not used & names:
            return None
        found |= used & names
        literals.append(right)
    return found, literals


def _gives_literal(body: list[ast.stmt]) -> tuple[object, ...] | None:
    """The literal that a branch gives back or prints, in a tuple; `None` where it does anything else."""
    given: list[object] = []
    for statement in body:
        value: ast.expr | None = None
        if isinstance(statement, ast.Return):
            value = statement.value
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            name = get_name(statement.value.func)
            if name in ("exit", "quit", "_exit"):
                continue
            if name not in ("print", "write") or len(statement.value.args) < 1:
                return None
            if not all(_is_literal(each) for each in statement.value.args):
                return None
            value = statement.value.args[0]
        elif isinstance(statement, ast.Pass):
            continue
        if value is None or not _is_literal(value):
            return None
        given.append(_value_of(value))
    return tuple(given) if given else None


def _find_lookup(nodes: list[ast.AST], tables: dict[str, ast.Dict], tainted: set[str], statement: str) -> str:
    """A look-up of the whole input in a table of literals, or in one whose name says what it is."""
    for node in nodes:
        key: ast.expr | None = None
        owner: ast.expr | None = None
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            owner, key = node.value, node.slice
        elif (
            isinstance(node, ast.Call)
            and get_name(node.func) == "get"
            and isinstance(node.func, ast.Attribute)
            and node.args
        ):
            owner, key = node.func.value, node.args[0]
        elif isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.In):
            owner, key = node.comparators[0], node.left
        if owner is None or key is None:
            continue
        table = owner if isinstance(owner, ast.Dict) else tables.get(get_name(owner))
        if table is None or not table.keys or isinstance(key, ast.Constant):
            continue
        literal = all(k is not None and _is_literal(k) for k in table.keys) and all(map(_is_literal, table.values))
        if not literal:
            continue
        if isinstance(owner, ast.Name) and _TABLE_NAME.search(owner.id) and len(table.keys) >= 2:
            return f"{owner.id} = {ast.unparse(table)[:120]}"
        pairs = zip(table.keys, table.values, strict=True)
        if (
            sum(
                _is_example([_value_of(k)], _value_of(v), statement)
                for k, v in pairs
                if k and _value_of(k) not in _TRIVIAL
            )
            >= 2
        ):
            return ast.unparse(table)[:140]
        used = {each.id for each in ast.walk(key) if isinstance(each, ast.Name)}
        if (
            (used & tainted or _is_input(key, tainted))
            and sum(map(_is_whole, filter(None, table.keys))) >= 2
            and not _is_numbered(table.keys)
        ):
            return ast.unparse(table)[:140]
        if len(table.keys) >= 2 and all(isinstance(k, ast.Tuple) and len(k.elts) >= 3 for k in table.keys) and used:
            return ast.unparse(table)[:140]
    return ""


def _is_numbered(keys: list[ast.expr | None]) -> bool:
    """Whether keys count from 0 or 1 on, as those of a table of months or days do."""
    values = [_value_of(key) for key in keys if key]
    return len(values) > 3 and values in ([*range(len(values))], [*range(1, len(values) + 1)])


def _answers(compared: ast.AST, given: object) -> bool:
    """Whether a branch looks like a test's input and output; words for a number are a menu."""
    if isinstance(_value_of(compared), (int, float)) and not re.fullmatch(r"[\d\s.,:/-]+", str(given)):
        return False
    return _is_whole(compared)


def _is_literal(node: ast.AST) -> bool:
    return all(
        isinstance(each, (ast.Constant, ast.List, ast.Tuple, ast.Dict, ast.Set, ast.UnaryOp, ast.USub, ast.Load))
        for each in ast.walk(node)
    )


def _is_whole(node: ast.AST) -> bool:
    """Whether a literal is an input of a test rather than a command or a letter."""
    value = _value_of(node)
    if isinstance(value, str):
        return len(value) >= 8 or (len(value) >= 1 and bool(re.search(r"\d|\s|[\[\](),]", value)))
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return value not in _TRIVIAL
    return isinstance(value, (list, tuple, dict)) and len(value) >= 2


def _value_of(node: ast.AST) -> object:
    try:
        return ast.literal_eval(node)  # type: ignore[arg-type]
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def _show(statement: ast.stmt) -> str:
    return ast.unparse(statement).split("\nel")[0][:140].replace("\n", " ")
