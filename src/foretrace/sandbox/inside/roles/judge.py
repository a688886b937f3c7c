"""The judge's side of judging: run test code, relay its calls of the candidate, and say what became of each assert."""

from __future__ import annotations

import ast
import linecache
import sys
import types
from typing import Any

from foretrace.sandbox.inside.error_report import describe_error
from foretrace.sandbox.inside.roles import asserts, candidate
from foretrace.sandbox.inside.roles.remote_candidate import CandidateGone, CandidateLink, RemoteName
from foretrace.sandbox.inside.wire.values import show_value


def serve(channel: Any, request: dict[str, Any]) -> None:
    """Run the tests of the request against the candidate behind the channel (see `wire.frames`)."""
    link = CandidateLink(channel, int(request["limits"]["reply_kb"]) * 1024, request["exceptions"])
    proxies: dict[str, Any] = {name: RemoteName(link, name) for name in request["callees"]}
    if request["entry_point"]:
        proxies["candidate"] = proxies[request["entry_point"]]
    _serve(channel, request, {**proxies, **link.exceptions}, link)


def serve_shared(channel: Any, request: dict[str, Any]) -> None:
    """Load the code and run the tests on it, all in this process: the code could fool them."""
    try:
        loaded = candidate.load_module(request["code"])
    except BaseException as error:
        channel.send(["failed", describe_error(error)])
        return
    channel.send(["loaded"])
    names = {name: value for name, value in loaded.items() if not (name.startswith("__") and name.endswith("__"))}
    if request["entry_point"] in loaded:
        names["candidate"] = loaded[request["entry_point"]]
    _serve(channel, request, names, None)


def _serve(channel: Any, request: dict[str, Any], names: dict[str, Any], link: CandidateLink | None) -> None:
    try:
        base = _run(request["setup"], "setup", {})
    except BaseException as error:
        channel.send(["done", describe_error(error)])
        return
    base.update(names)
    callees = frozenset([*request["callees"], "candidate"])
    for number, code in enumerate(request["tests"]):
        for frame in TestRun(number, code, callees, link).run(base, request["entry_point"]):
            channel.send(frame)
    channel.send(["done", None])


def _run(code: Any, name: str, names: dict[str, Any], source: str = "") -> dict[str, Any]:
    """Run source text or a tree as a module of its own, with names given to it; return its namespace."""
    module, file = types.ModuleType(name), f"{name}.py"
    sys.modules[name] = module
    names = {key: value for key, value in names.items() if not (key.startswith("__") and key.endswith("__"))} | {
        key: value for key, value in names.items() if key == asserts.RECORDER
    }
    module.__dict__.update(names)
    text = source or code
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    exec(compile(code, file, "exec", dont_inherit=True), module.__dict__)
    return module.__dict__


class TestRun:
    """One test's code, and the record of its asserts."""

    def __init__(self, number: int, code: str, callees: frozenset[str], link: CandidateLink | None) -> None:
        self._number, self._code, self._link = number, code, link
        tree = ast.parse(code)
        found = asserts.find_asserts(tree)
        self._names = asserts.name_asserts(number, tree, found)
        self._forbidden = [asserts.find_constant_truth(node) is False for node in found]
        self._branches = asserts.find_branches(tree)
        self._catches = any(isinstance(node, (ast.ExceptHandler, ast.With, ast.AsyncWith)) for node in ast.walk(tree))
        """Whether the code may mean to go on after an exception."""
        self._check = find_check_function(tree)
        self._cases = find_test_functions(tree)
        self._tree = asserts.AssertInstrumenter(callees | ({self._check[1]} if self._check else set())).visit(tree)
        self._records: list[list[Any]] = [[None, None, None, None] for _ in found]
        """For each assert: whether it passed (None: not reached), actual, expected, error."""

    def run(self, base: dict[str, Any], entry_point: str | None) -> list[list[Any]]:
        """Run the code, and return a `test` frame for each assert."""
        problem = None
        if self._link:
            self._link.lost = self._link.raised = None
        try:
            names = _run(self._tree, f"test_{self._number}", {**base, asserts.RECORDER: self}, self._code)
            if self._check and not self._check[2]:
                if "candidate" not in base:
                    raise NameError(f"name {entry_point!r} is not defined")
                names[self._check[0]](base["candidate"])
            for name in self._cases:
                names[name]()
        except BaseException as error:
            problem = describe_error(error)
        why = f"not reached: {problem['kind']}: {problem['message']}"[:500] if problem else "not reached"
        return [self._frame(number, why, problem is None) for number in range(len(self._records))]

    def _frame(self, number: int, why: str, finished: bool) -> list[Any]:
        passed, actual, expected, error = self._records[number]
        if passed is None:
            passed = finished and (self._forbidden[number] or self._other_branch(number))
            error = None if passed else why
        return ["test", self._names[number], passed, actual, expected, error]

    def _other_branch(self, number: int) -> bool:
        """Whether an assert in another branch of the same `if` was reached, so that this one had not to be."""
        own = self._branches[number].items()
        return any(
            self._branches[other].get(place, branch) != branch
            for other, record in enumerate(self._records)
            if record[0] is not None
            for place, branch in own
        )

    def compare(self, number: int, left: Any, right: Any, swapped: bool) -> None:
        """Record `assert left == right`; the candidate's side is the right one when `swapped`."""
        actual, expected = (right, left) if swapped else (left, right)
        self._record(number, bool(left == right), show_value(actual), show_value(expected), None)

    def truth(self, number: int, value: Any) -> None:
        """Record `assert value`."""
        self._record(number, bool(value), None, None, None)

    def raised(self, number: int) -> None:
        """Record that the assert raised the exception that is being handled."""
        error = sys.exc_info()[1]
        assert error is not None
        if type(error) is CandidateGone:
            if self._link:
                self._link.lost = None  # noted
            text = str(error)
        else:
            report = describe_error(error)
            text = f"{report['kind']}: {report['message']}" if report["message"] else report["kind"]
        self._record(number, False, None, None, text[:500])

    def _record(self, number: int, passed: bool, actual: str | None, expected: str | None, error: str | None) -> None:
        if self._link and self._link.lost:
            # The test code went on as if the candidate had not ended.
            passed, error = False, self._link.lost
        if self._link and (swallowed := self._link.raised):
            self._link.raised = None
            if passed and not self._catches:
                # Something between the call and the assert took the exception for its own.
                passed, error = False, swallowed[:500]
        if self._records[number][0] is not False:
            self._records[number] = [passed, actual, expected, error]


def find_test_functions(tree: ast.Module) -> list[str]:
    """Names of the functions `test...` without parameters that the code defines and does not call itself."""
    defined = [
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test") and not ast.unparse(node.args)
    ]
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return [name for name in defined if name not in used]


def find_check_function(tree: ast.Module) -> tuple[str, str, bool] | None:
    """Of the function `check`: its name, its parameter's, and whether the code itself calls it. None without one."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == "check" and node.args.args:
            called = any(
                isinstance(other, ast.Expr)
                and isinstance(other.value, ast.Call)
                and isinstance(other.value.func, ast.Name)
                and other.value.func.id == "check"
                for other in tree.body
            )
            return node.name, node.args.args[0].arg, called
    return None
