"""Takes asserts apart into leaves, which are evaluated where the tests run, and a skeleton, which must hold for them.

`assert abs(c.area() - 12.57) < 1e-2` has the leaf `c.area()` and the skeleton `abs(sub(t0, c0)) < c1`. The constants
stay in this process: in the test code that is sent, each assert is replaced by a call with its leaves.
"""

from __future__ import annotations

import ast
import contextlib
import random
import re
from collections.abc import Generator, Sequence
from typing import Any

import msgspec

from foretrace.core.python_source import PARSE_ERRORS
from foretrace.sandbox.inside.recorder import NoDecoyError, vary
from foretrace.sandbox.judging.test_reading import ALIAS, AnswerUses

RECORDER = "__check__"
_ORDERS = {"Lt": "<", "LtE": "<=", "Gt": ">", "GtE": ">="}
_COMPARISONS = {"Eq": "==", "NotEq": "!=", "In": "in", "NotIn": "not in", **_ORDERS}
_ARITHMETIC = {"Add": "add", "Sub": "sub", "Mult": "mul", "Div": "truediv", "FloorDiv": "floordiv", "Mod": "mod"}
_FUNCTIONS = {
    **{name: name for name in ("abs", "round", "isclose", "approx")},
    "math.isclose": "isclose",
    "pytest.approx": "approx",
    "__same_items__": "same_items",
}
_EMPTY = {"set": set, "frozenset": frozenset, "dict": dict, "list": list, "tuple": tuple}
_EQUAL = ("Equal", "Equals", "ListEqual", "TupleEqual", "DictEqual", "SetEqual", "MultiLineEqual")
_UNITTEST_ORDERS = {"Greater": ">", "GreaterEqual": ">=", "Less": "<", "LessEqual": "<="}
_UNITTEST_OPERATORS = {"NotEqual": "!=", "Is": "is", "IsNot": "is not", "In": "in", "NotIn": "not in"}
_UNITTEST = {
    **dict.fromkeys(_EQUAL, "{0} == {1}"),
    "SequenceEqual": "list({0}) == list({1})",
    **{name: f"{{0}} {operator} {{1}}" for name, operator in (_UNITTEST_OPERATORS | _UNITTEST_ORDERS).items()},
    "True": "{0}",
    "False": "not {0}",
    "IsNone": "{0} is None",
    "IsNotNone": "{0} is not None",
    "AlmostEqual": "round(abs({0} - {1}), {2}) == 0",
    "NotAlmostEqual": "round(abs({0} - {1}), {2}) != 0",
    "CountEqual": "__same_items__({0}, {1})",
}
"""By name of a unittest method (`assert...`): the equivalent expression. The third argument is `places`."""


def find_asserts(tree: ast.Module) -> list[ast.Assert]:
    """The asserts in source order, without those that cannot fail (`assert True`)."""
    asserts = (node for node in ast.walk(tree) if isinstance(node, ast.Assert))
    found = (node for node in asserts if find_constant_truth(node) is not True)
    return sorted(found, key=lambda node: (node.lineno, node.col_offset))


def find_constant_truth(node: ast.Assert) -> bool | None:
    """Truth of an assert of a constant, else None; `assert False` marks a place that must not be reached."""
    return bool(node.test.value) if isinstance(node.test, ast.Constant) else None


def name_asserts(number: int, tree: ast.Module, found: list[ast.Assert]) -> list[str]:
    """A name for each assert: the number of the test, with the line unless the test has a single top-level assert. A
    test without asserts has one name: it passes if nothing is raised."""
    if not found or (len(found) == 1 and found[0] in tree.body):
        return [str(number)]
    seen: dict[str, int] = {}
    out: list[str] = []
    for node in found:
        name = f"{number}:{node.lineno}"
        seen[name] = seen.get(name, 0) + 1
        out.append(name if seen[name] == 1 else f"{name}.{seen[name]}")
    return out


class Check(msgspec.Struct):
    """One assert, or one part of a conjunction."""

    result: int
    """The result that it belongs to."""
    skeleton: str = ""
    """An expression over leaves `t0`, `t1`, ... and constants `c0`, `c1`, ..."""
    sides: tuple[str, str] | None = None
    """For a comparison: the actual and the expected side, as such expressions."""
    leaves: list[ast.expr] = []
    constants: list[Any] = []
    kinds: set[str] = set()
    """Names of its comparisons (`Eq`), functions and other operations (`is`, `not`, `arithmetic`)."""
    tolerances: set[int] = set()
    """Numbers of the constants that are only tolerances."""
    required: bool = False
    """Whether the tests must reach it."""
    path: str = ""
    """The function that it stands in, such as `TestAdd.test_zero`; empty outside of functions."""
    is_method: bool = False
    """Whether it is an assert method of unittest, which shares its result with those of its class."""

    @property
    def parameters(self) -> str:
        return ", ".join([f"t{n}" for n in range(len(self.leaves))] + [f"c{n}" for n in range(len(self.constants))])

    @property
    def hides(self) -> bool:
        """Whether it has a constant other than tolerances, which the answer must not know."""
        return len(self.constants) > len(self.tolerances)

    @property
    def is_strict(self) -> bool:
        """Whether it is `<` or `>` of two leaves."""
        return self.skeleton in ("(t0 < t1)", "(t0 > t1)")

    @property
    def claims_sameness(self) -> bool:
        """Whether it asserts that something equals, is near to, or contains something."""
        near = self.kinds <= {"Lt", "LtE", "abs", "round", "arithmetic"} and bool(self.tolerances)
        compared = self.kinds & {"Eq", "In", "isclose", "same_items"}
        others = self.kinds - {"Eq", "In", "isclose", "same_items", "arithmetic", "abs", "round", "approx"}
        return "not" not in self.kinds and (near or (bool(compared) and not others))


class _Hoister:
    """Finds the leaves and constants of an expression."""

    def __init__(self, check: Check, shadowed: frozenset[str]) -> None:
        self.check, self._shadowed = check, shadowed

    def hoist(self, node: ast.expr) -> str:
        """The expression, with names for its leaves and constants."""
        found, value = _read_constant(node, self._shadowed)
        if found:
            self.check.constants.append(value)
            return f"c{len(self.check.constants) - 1}"
        if isinstance(node, ast.Compare):
            return self._hoist_comparison(node)
        if isinstance(node, ast.BinOp) and type(node.op).__name__ in _ARITHMETIC and "Decimal" not in ast.unparse(node):
            self.check.kinds.add("arithmetic")
            return f"{_ARITHMETIC[type(node.op).__name__]}({self.hoist(node.left)}, {self.hoist(node.right)})"
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub)):
            self.check.kinds.add("not" if isinstance(node.op, ast.Not) else "arithmetic")
            return f"({'not ' if isinstance(node.op, ast.Not) else '-'}{self.hoist(node.operand)})"
        if isinstance(node, ast.Call) and (name := _FUNCTIONS.get(ast.unparse(node.func))):
            known = all(keyword.arg for keyword in node.keywords) and not _has_star(node.args)
            if known and ast.unparse(node.func).partition(".")[0] not in self._shadowed:
                return self._hoist_call(name, node)
        return self._leaf(node)

    def _hoist_comparison(self, node: ast.Compare) -> str:
        if any(isinstance(op, (ast.Is, ast.IsNot)) for op in node.ops):
            right = node.comparators[0]
            single = isinstance(right, ast.Constant) and (right.value is None or type(right.value) is bool)
            if len(node.ops) > 1 or not single:
                return self._leaf(node)
            self.check.kinds.add("is")
            word = "is" if isinstance(node.ops[0], ast.Is) else "is not"
            return f"({self._leaf(node.left)} {word} {ast.unparse(right)})"
        before = len(self.check.leaves)
        parts = [self.hoist(node.left)]
        is_left = len(self.check.leaves) > before
        near = len(node.ops) == 1 and isinstance(node.ops[0], (ast.Lt, ast.LtE)) and parts[0].startswith("abs(")
        for op, right in zip(node.ops, node.comparators, strict=True):
            self.check.kinds.add(type(op).__name__)
            if near:
                self.check.tolerances.add(len(self.check.constants))
            parts += [_COMPARISONS[type(op).__name__], self.hoist(right)]
        self.check.sides = (parts[0], parts[-1]) if is_left else (parts[-1], parts[0])
        if near and (difference := re.fullmatch(r"abs\(sub\((\w+), (\w+)\)\)", parts[0])):
            self.check.sides = (difference[1], difference[2])
        return f"({' '.join(parts)})"

    def _hoist_call(self, name: str, node: ast.Call) -> str:
        check = self.check
        check.kinds.add(name)
        args = []
        given = [("", arg) for arg in node.args] + [(f"{keyword.arg}=", keyword.value) for keyword in node.keywords]
        for word, arg in given:
            if word or (name == "round" and len(args) == 1):
                if not _read_constant(arg, self._shadowed)[0]:
                    raise _NotHoistableError  # tolerances must be constants of the tests
                check.tolerances.add(len(check.constants))
            args.append(word + self.hoist(arg))
        return f"{name}({', '.join(args)})"

    def _leaf(self, node: ast.expr) -> str:
        self.check.leaves.append(node)
        return f"t{len(self.check.leaves) - 1}"


class _NotHoistableError(Exception):
    pass


def take_apart(test: ast.expr, result: int = 0, shadowed: frozenset[str] = frozenset()) -> Check:
    """The leaves and the skeleton of an asserted expression; `shadowed` names do not have their usual Python meaning
    here."""
    check = Check(result)
    try:
        check.skeleton = _Hoister(check, shadowed).hoist(test)
    except (_NotHoistableError, RecursionError):
        check = Check(result, "t0", leaves=[test])
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        check.sides = None
    return check


def _read_constant(node: ast.expr, shadowed: frozenset[str]) -> tuple[bool, Any]:
    with contextlib.suppress(TypeError, *PARSE_ERRORS):
        return True, ast.literal_eval(node)
    if isinstance(node, ast.Call) and not node.args and not node.keywords:
        name = getattr(node.func, "id", "")
        if name in _EMPTY and name not in shadowed:
            return True, _EMPTY[name]()
    return False, None


def _has_star(nodes: Sequence[ast.expr]) -> bool:
    return any(isinstance(node, ast.Starred) for node in nodes)


class TestRewriter(ast.NodeTransformer):
    """Replaces each assert of a test by a call with its leaves.

    Args:
        number: number of the test.
        uses: what the tests use of the answer.
        checks: list to which the checks are added.
        results: number of results of earlier tests.
    """

    __test__ = False

    def __init__(self, number: int, tree: ast.Module, uses: AnswerUses, checks: list[Check], results: int) -> None:
        self._checks, self._names, self._shadowed = checks, {*uses.callees, ALIAS}, uses.shadowed
        found = find_asserts(tree)
        self.results = name_asserts(number, tree, found)
        self._result_of = {id(node): results + n for n, node in enumerate(found)}
        self._last = results + len(self.results) - 1
        froms = (node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "unittest")
        main = "|main" * any(alias.name == "main" for node in froms for alias in node.names)
        self._runs_tests = re.compile(
            rf"^(raise SystemExit\(|(sys\.)?exit\()?(unittest\.main|pytest\.main{main})\(|exit\(.*wasSuccessful"
        )
        """Matches statements that run tests or exit with their result."""
        self._native = 0
        """Above 0 inside code that may expect a failing assert: such asserts are left to Python."""
        self._inside = 0
        """Above 0 inside code that may expect an exception of an assert."""
        self._required = True
        self._path = ""
        """Names of the classes and functions around a statement."""

    @contextlib.contextmanager
    def _enter(self, required: bool, *, native: bool = False, inside: bool = True, name: str = "") -> Generator[None]:
        before = self._required, self._native, self._inside, self._path
        self._required &= required
        self._native += native
        self._inside += inside
        self._path += f".{name}" if name else ""
        yield
        self._required, self._native, self._inside, self._path = before

    def _visit_in(self, node: Any, required: bool, **state: Any) -> Any:
        with self._enter(required, **state):
            return self.generic_visit(node)

    def visit_If(self, node: Any) -> Any:
        """The code inside may be skipped."""
        return self._visit_in(node, False, inside=False)

    visit_For = visit_AsyncFor = visit_While = visit_Match = visit_If  # noqa: N815 - ast's names

    def visit_FunctionDef(self, node: Any) -> Any:
        """A test must be run unless its decorators skip it, and these must not depend on the answer."""
        texts = [ast.unparse(decorator) for decorator in node.decorator_list]
        required = (node.name.startswith("test") or node.name == "check") and not self._is_left_out(node)
        native = any(re.search(r"xfail|expectedFailure", text) for text in texts)
        top = node.name == "check" or (node.name.startswith("test") and not self._inside and not texts)
        return self._visit_in(node, required, native=native, inside=not top, name=node.name)

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_ClassDef(self, node: ast.ClassDef) -> Any:
        """Only the tests of a test class must be run."""
        is_tests = node.name.startswith("Test") or any("TestCase" in ast.unparse(base) for base in node.bases)
        return self._visit_in(node, is_tests and not self._is_left_out(node), name=node.name)

    def _is_left_out(self, node: Any) -> bool:
        """Whether decorators say that a test need not be run, independently of the answer."""
        named = (part for decorator in node.decorator_list for part in ast.walk(decorator))
        asks = any(isinstance(part, ast.Name) and part.id in self._names for part in named)
        texts = map(ast.unparse, node.decorator_list)
        return not asks and any(re.search(r"skip|xfail|expectedFailure|fixture|property|overload", t) for t in texts)

    def visit_Try(self, node: Any) -> Any:
        """An assert in the body may be caught."""
        caught = ("BaseException" if one.type is None else ast.unparse(one.type) for one in node.handlers)
        catches = any(re.search(r"\b(AssertionError|Exception|BaseException)\b", text) for text in caught)
        with self._enter(not node.handlers, native=catches):
            self._visit_all(node.body)
        with self._enter(False):
            self._visit_all(node.handlers)
            self._visit_all(node.orelse)
        with self._enter(True):
            self._visit_all(node.finalbody)
        return node

    visit_TryStar = visit_Try  # noqa: N815

    def visit_With(self, node: Any) -> Any:
        """Some `with` blocks expect or suppress exceptions."""
        text = " ".join(ast.unparse(item.context_expr) for item in node.items)
        native = re.search(r"(raises|suppress|Raises\w*)\(.*\b(AssertionError|Exception|BaseException)\b", text)
        takes = "aises" in text or "suppress" in text
        return self._visit_in(node, not takes, native=bool(native))

    visit_AsyncWith = visit_With  # noqa: N815

    def _visit_all(self, nodes: list[Any]) -> None:
        """Rewrite a list of nodes in place."""
        self.generic_visit(ast.Module(nodes, []))

    def visit_Expr(self, node: ast.Expr) -> Any:
        """Asserts of unittest and mocks, and `fail`. Removes statements that would run the tests, which run later."""
        call = node.value
        if self._runs_tests.search(ast.unparse(node)):
            return ast.copy_location(ast.Pass(), node)
        self.generic_visit(node)
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            return node
        name, owner = call.func.attr, ast.unparse(call.func.value)
        if (owner, name) in (("self", "fail"), ("pytest", "fail")) and not self._native:
            return [self._call(node, "fail", self._last), node]
        if re.match(r"assert_(called|any_call|has_calls|not_called|awaited)", name):
            call.args = [call.func.value, ast.Constant(name), *call.args]
            call.func = ast.Attribute(ast.Name(RECORDER, ast.Load()), "mock", ast.Load())
            return ast.fix_missing_locations(node)
        if owner == "self" and name.startswith("assert") and not self._native:
            test = _read_unittest(call, name.removeprefix("assert"))
            if test is not None:
                return self._make(node, ast.copy_location(test, call), self._last, is_method=True)
        return node

    def visit_Assert(self, node: ast.Assert) -> Any:
        """Each part of a conjunction is a separate check."""
        truth = find_constant_truth(node)
        if truth is not None:
            if truth:
                return ast.copy_location(ast.Pass(), node)
            return node if self._native else [self._call(node, "fail", self._result_of[id(node)]), node]
        if self._native:
            return node
        parts = node.test.values if isinstance(node.test, ast.BoolOp) and isinstance(node.test.op, ast.And) else None
        result = self._result_of[id(node)]
        return [made for part in parts or [node.test] for made in self._make(node, part, result)]

    def visit_Raise(self, node: ast.Raise) -> Any:
        """`raise AssertionError` counts as `assert False`."""
        if self._runs_tests.search(ast.unparse(node)):
            return ast.copy_location(ast.Pass(), node)
        if self._native or node.exc is None or not re.match(r"AssertionError\b", ast.unparse(node.exc)):
            return node
        return [self._call(node, "fail", self._last), node]

    def _make(self, node: ast.stmt, test: ast.expr, result: int, *, is_method: bool = False) -> list[ast.stmt]:
        check = take_apart(test, result, self._shadowed)
        check.required, check.path, check.is_method = self._required, self._path[1:], is_method
        self._checks.append(check)
        number = len(self._checks) - 1
        made = self._call(node, None, number, *check.leaves)
        if not check.hides and len(check.leaves) > 1:
            variants, place = find_variants(check.leaves)
            lambdas = "".join(f"lambda: {variant}, " for variant in variants)
            given = ast.parse(f"({place}, ({lambdas}))", mode="eval").body
            made.value.keywords.append(ast.keyword("variants", given))  # type: ignore[attr-defined]
            _place(made, node)
        if self._inside:
            return [made]
        handler = ast.ExceptHandler(None, None, [self._call(node, "raised", number)])
        return [_place(ast.Try(body=[made], handlers=[handler], orelse=[], finalbody=[]), node)]

    def _call(self, node: ast.stmt, method: str | None, number: int, *args: ast.expr) -> ast.stmt:
        recorder: ast.expr = ast.Name(RECORDER, ast.Load())
        function = ast.Attribute(recorder, method, ast.Load()) if method else recorder
        return _place(ast.Expr(ast.Call(function, [ast.Constant(number), *args], [])), node)


def _place(node: Any, at: ast.stmt) -> Any:
    ast.copy_location(node, at)
    return ast.fix_missing_locations(node)


def _read_unittest(call: ast.Call, name: str) -> ast.expr | None:
    """The expression that a unittest method asserts; None if the call is left to unittest."""
    form = _UNITTEST.get(name)
    named = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg != "msg"}
    if form is None or _has_star(call.args) or not named.keys() <= {"places", "delta"}:
        return None
    args = list(call.args)
    if len(args) < (2 if "{1}" in form else 1):
        return None
    if "delta" in named:
        form, extra = ("abs({0} - {1}) <= {2}" if name == "AlmostEqual" else "abs({0} - {1}) > {2}"), named["delta"]
    else:
        extra = named.get("places", args[2] if len(args) > 2 else ast.Constant(7))
    texts = [f"({ast.unparse(node)})" for node in (*args[:2], extra)]
    return ast.parse(form.format(*texts), mode="eval").body


# Other constants for asserts that an object decides: if it accepts those too, it is not believed.

RANDOM = random.SystemRandom()
_ROWS = 8
_LITERALS = (int, float, str, bool)


def make_line_up(real: list[Any], tolerances: set[int]) -> tuple[list[list[Any]], int] | None:
    """Rows of constants similar to those of a check, and the index of the true row; None if no others are found."""
    rows = [real]
    places = [n for n in range(len(real)) if n not in tolerances]
    for turn in range(40):
        place = places[turn % len(places)]
        value = real[place]
        try:
            other = vary(value, RANDOM)
        except NoDecoyError:
            continue
        row = [*real[:place], other, *real[place + 1 :]]
        if all(repr(row) != repr(made) for made in rows):
            rows.append(row)
        if len(rows) > _ROWS:
            break
    RANDOM.shuffle(rows)
    return (rows, next(n for n, row in enumerate(rows) if row is real)) if len(rows) > 1 else None


def find_variants(leaves: list[ast.expr]) -> tuple[list[str], int]:
    """Source of several variants of one leaf, each with another constant, and the number of the leaf."""
    for place in sorted(range(len(leaves)), key=lambda n: (not isinstance(leaves[n], ast.Call), -n)):
        nodes = list(ast.walk(leaves[place]))
        if any(isinstance(n, (ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr)) for n in nodes):
            continue
        made: list[str] = []
        count = sum(isinstance(n, ast.Constant) and type(n.value) in _LITERALS for n in nodes)
        for which in list(range(min(count, 6))) * (4 if count < 3 else 2):
            tree = ast.parse(ast.unparse(leaves[place]), mode="eval")
            found = [n for n in ast.walk(tree) if isinstance(n, ast.Constant) and type(n.value) in _LITERALS]
            value: Any = found[which].value
            near = type(value) is int and len(made) < count  # an adjacent number is most likely to change the result
            found[which].value = value + RANDOM.choice([-1, 1]) if near else vary(value, RANDOM)
            if (other := ast.unparse(tree)) not in (*made, ast.unparse(leaves[place])):
                made.append(other)
        if made:
            return made, place
    return [], 0
