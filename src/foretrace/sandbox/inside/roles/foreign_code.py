"""Python text that the tests run and did not write: `eval(repr(v))`, `exec(answer)`, annotations, pickles.

In one process such text has all that the tests have. Here text that the tests did not write themselves may be an
expression, made of values, operators and calls of the code's own classes; it can change nothing of the tests'. It
finds no variables, unless the tests name them in the namespace that they give.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import importlib
import inspect
import io
import linecache
import math
import pickle
import sys
import types
from collections.abc import Callable, Generator
from typing import Any

from foretrace.sandbox.inside.remote.base_values import BASE_VALUES
from foretrace.sandbox.inside.remote.classes import (
    NAMED_FUNCTIONS,
    PICKLES,
    RemoteClass,
    RemoteObject,
    is_named,
)
from foretrace.sandbox.inside.remote.methods import RemoteMethod
from foretrace.sandbox.inside.remote.subclasses import make_field_setter
from foretrace.sandbox.inside.remote.type_forms import is_special_form
from foretrace.sandbox.inside.roles.beliefs import BeliefError
from foretrace.sandbox.inside.wire.stdlib_values import is_stdlib_class

_FILES = ("setup.py", "prompt.py")
_RUNNING = ("/doctest.py", "/code.py", "/codeop.py")
"""Modules of the library that run text which they are given."""
_EVALUATING = ("typing", "inspect", "annotationlib")
"""Modules of the library that evaluate annotations."""
_NODES = (
    *(ast.Expression, ast.Constant, ast.Name, ast.Attribute, ast.Subscript, ast.Slice, ast.Call, ast.keyword),
    *(ast.Tuple, ast.List, ast.Set, ast.Dict, ast.Starred, ast.JoinedStr, ast.FormattedValue, ast.IfExp),
    *(ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare),
    *(ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.expr_context),
)
"""What an expression is made of that binds no name and makes no function."""
_eval, _exec, _compile = builtins.eval, builtins.exec, builtins.compile


class ForeignCode:
    """What `compile` gives for text that the tests did not write."""

    def __init__(self, text: str) -> None:
        self.text = text


@contextlib.contextmanager
def guarded(peer: Any) -> Generator[None]:
    """Have this process, which is the tests', run no text that the tests did not write."""
    typing = importlib.import_module("typing")
    modules = [importlib.import_module(name) for name in _EVALUATING if name != "annotationlib" or name in sys.modules]
    put = [
        *((builtins, name, value) for name, value in _GUARDED.items()),
        *((module, "eval", _eval_annotation) for module in modules),
        *((module, "compile", _compile_annotation) for module in modules),
        (typing, "get_type_hints", _resolve_hints_elsewhere(typing.get_type_hints, peer)),
        (importlib.import_module("dataclasses"), "object", make_field_setter(peer)),
        *((pickle, name, value) for name, value in _guard_pickles(peer).items()),
    ]
    before = [(module, name, vars(module).get(name)) for module, name, _ in put]
    for module, name, value in put:
        setattr(module, name, value)
    try:
        yield
    finally:  # a fork server goes through it once, for all of its children
        for module, name, value in before:
            if value is None:
                delattr(module, name)
            else:
                setattr(module, name, value)


def _resolve_hints_elsewhere(here: Callable[..., Any], peer: Any) -> Callable[..., Any]:
    """`typing.get_type_hints`, for which the names in annotations of the code's mean what they mean there."""

    def get_type_hints(obj: Any, *args: Any, include_extras: bool = False, **named: Any) -> Any:
        if isinstance(obj, (RemoteClass, RemoteObject)) or type(obj) is RemoteMethod:
            return peer.request("full hints" if include_extras else "hints", "", obj)
        return here(obj, *args, include_extras=include_extras, **named)

    return get_type_hints


def _guarded_eval(source: Any, globals: Any = None, locals: Any = None, /) -> Any:
    frame = _find_caller()
    given, locals = _find_names(frame, globals, locals)
    if _is_believed(source, frame):
        return _eval(source, given, locals)
    return _evaluate(source, given, locals, globals is not None and globals is not frame.f_globals)


def _guarded_exec(source: Any, globals: Any = None, locals: Any = None, /, *, closure: Any = None) -> None:
    frame = _find_caller()
    given, locals = _find_names(frame, globals, locals)
    if not _is_believed(source, frame):
        raise BeliefError("the tests execute code that they did not write")
    if closure is not None:
        _exec(source, given, locals, closure=closure)
    else:
        _exec(source, given, locals)


def _guarded_compile(source: Any, filename: Any, mode: str, *args: Any, **named: Any) -> Any:
    frame = _find_caller()
    made = _compile(source, filename, mode, *args, **named)
    if isinstance(made, types.CodeType) and not _is_believed(source, frame):
        return ForeignCode(_text_of(source))
    return made


def _find_caller() -> Any:
    frame: Any = inspect.currentframe()
    return frame.f_back.f_back


def _find_names(frame: Any, globals: Any, locals: Any) -> tuple[Any, Any]:
    if globals is not None:
        return globals, globals if locals is None else locals
    return frame.f_globals, frame.f_locals if locals is None else locals


def _is_believed(source: Any, frame: Any) -> bool:
    """Whether a text may be run as it is: it is not the tests' code that runs it, but the library's, or the tests hold
    the text themselves."""
    if isinstance(source, (types.CodeType, ForeignCode)):
        return isinstance(source, types.CodeType)
    return not _is_of_tests(frame) or _squeeze(_text_of(source)) in _own_text()


def _is_of_tests(frame: Any) -> bool:
    file = frame.f_code.co_filename
    return file in _FILES or file.startswith(("test_", "<")) or file.endswith(_RUNNING)


def _text_of(source: Any) -> str:
    if isinstance(source, ForeignCode):
        return source.text
    if isinstance(source, ast.AST):
        return ast.unparse(source)
    if isinstance(source, str):
        return str.__str__(source)
    return bytes(source).decode("utf-8", "replace") if isinstance(source, (bytes, bytearray, memoryview)) else ""


def _squeeze(text: str) -> str:
    return "".join(text.split())


def _own_text() -> str:
    """All texts that the tests hold as constants, without blanks: before they run one, they may indent it otherwise."""
    found: list[str] = []
    for file, entry in list(linecache.cache.items()):
        if file in _FILES or (file.startswith("test_") and "/" not in file and len(entry) == 4):
            tree = ast.parse("".join(entry[2]))  # type: ignore[arg-type]
            found += [_squeeze(n.value) for n in ast.walk(tree) if isinstance(n, ast.Constant) and type(n.value) is str]
    return "\0".join(found)


class _Annotation(ForeignCode):
    """What `typing` takes for a compiled annotation."""


def _compile_annotation(source: Any, filename: Any, mode: str, *args: Any, **named: Any) -> Any:
    _compile(source, filename, mode, *args, **named)  # for its SyntaxError
    return _Annotation(_text_of(source))


def _eval_annotation(source: Any, globals: Any = None, locals: Any = None, /) -> Any:
    return _evaluate(source, globals or {}, locals if locals is not None else globals or {}, False)


def _evaluate(source: Any, globals: Any, locals: Any, named: bool) -> Any:
    """Evaluate an expression that the tests did not write.

    Args:
        named: whether the tests have said what its names mean.
    """
    tree: Any = _compile(_text_of(source).lstrip(" \t"), "<text>", "eval", ast.PyCF_ONLY_AST)
    found: dict[str, Any] = {}
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if not isinstance(node, _NODES):
            raise BeliefError(f"the tests evaluate a text that they did not write, with {type(node).__name__} in it")
        if isinstance(node, ast.Name):
            value = _look_up(node.id, globals, locals)
            if not (_is_harmless(value) or (named and id(node) not in called)):
                raise BeliefError(f"the tests evaluate a text that they did not write, which uses {node.id!r}")
            found[node.id] = value
    tree = _AttributesFetched(found).visit(tree)
    for node in ast.walk(tree):
        function = node.func if isinstance(node, ast.Call) else None
        if function is not None and not (isinstance(function, ast.Name) and _may_be_called(found[function.id])):
            raise BeliefError("the tests evaluate a text that they did not write, which calls something of theirs")
    return _eval(_compile(tree, "<text>", "eval"), {"__builtins__": {}, **found})


def _look_up(name: str, globals: Any, locals: Any) -> Any:
    for names in (locals, globals):
        try:
            return names[name]
        except KeyError:
            continue
    try:
        return getattr(builtins, name)
    except AttributeError:
        raise NameError(f"name {name!r} is not defined", name=name) from None


class _AttributesFetched(ast.NodeTransformer):
    """Puts a name in the place of each attribute. It is fetched once: the second time it might be another one than that
    which was looked at."""

    def __init__(self, found: dict[str, Any]) -> None:
        self._found = found

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        """An attribute of a module, of a class, or of what the code made."""
        owner, value = self.visit(node.value), None
        if isinstance(owner, ast.Name) and not node.attr.startswith("_"):
            of = self._found[owner.id]
            if isinstance(of, (types.ModuleType, RemoteClass, RemoteObject)) or _may_be_called(of):
                value = getattr(of, node.attr, None)
        if not (type(value) in (int, float) or _is_harmless(value)):
            raise BeliefError(f"the tests evaluate a text that they did not write, which uses .{node.attr}")
        name = f".{len(self._found)}"  # no text can use it
        self._found[name] = value
        return ast.copy_location(ast.Name(name, ast.Load()), node)


def _is_harmless(value: Any) -> bool:
    """Whether foreign text may use it: the code's own objects, classes, pure functions, and modules that hold those."""
    return (
        _may_be_called(value)
        or isinstance(value, (types.GenericAlias, types.UnionType))
        or (isinstance(value, types.ModuleType) and value.__name__ in sys.stdlib_module_names)
        or is_special_form(value)
        or (isinstance(value, type) and is_named(value))
    )


def _may_be_called(value: Any) -> bool:
    if isinstance(value, (RemoteClass, RemoteObject)):
        return True
    if isinstance(value, type):
        return (
            value in (*BASE_VALUES, bool, range, slice)
            or is_stdlib_class(value)
            or value.__module__ in ("__main__", "setup", "prompt")
        )
    return isinstance(value, types.BuiltinFunctionType) and value in _PURE


_PURE = frozenset(
    function for function, (module, _) in NAMED_FUNCTIONS.items() if module in ("builtins", math.__name__)
)


_GUARDED = {"eval": _guarded_eval, "exec": _guarded_exec, "compile": _guarded_compile}


_REBUILDING = (
    *((PICKLES, "_unpickle"), ("copyreg", "_reconstructor"), ("copyreg", "__newobj__"), ("copyreg", "__newobj_ex__")),
)
"""Functions that pickles of ordinary objects call."""


def _guard_pickles(peer: Any) -> dict[str, Callable[..., Any]]:
    """Functions of `pickle`. A pickle is a program: those that the tests made are read here, all others where the code
    is."""
    own: set[bytes] = set()  # all of it: whoever knows how they are hashed could make one with the same hash
    dumps, loads = pickle.dumps, pickle.loads

    def note(data: bytes) -> bytes:
        own.add(data)
        return data

    def dump(value: Any, file: Any, *args: Any, **named: Any) -> None:
        file.write(note(dumps(value, *args, **named)))

    def read(data: Any, **named: Any) -> Any:
        data = bytes(data)
        return loads(data, **named) if data in own else peer.request("unpickle", "", data)

    def read_file(file: Any, **named: Any) -> Any:
        kept = _RecordingReader(file)
        for _ in _read_opcodes(kept):
            pass
        return read(kept.data.getvalue(), **named)

    def note_dumps(*args: Any, **named: Any) -> bytes:
        return note(dumps(*args, **named))

    return {"dumps": note_dumps, "dump": dump, "loads": read, "load": read_file, "Unpickler": _CarefulUnpickler}


class _CarefulUnpickler(pickle.Unpickler):
    """The class that the tests may use or extend: whoever made the pickle, nothing but classes is called by it."""

    def find_class(self, module: str, name: str) -> Any:
        """What a pickle refers to."""
        if "." not in name:  # else one could go on from what is harmless to what it holds
            found = super().find_class(module, name)
            if (module, name) in _REBUILDING or _may_be_called(found):
                return found
        raise BeliefError(f"a pickle that the tests may not have made uses {name!r}")


def _read_opcodes(file: Any) -> Any:
    import pickletools

    return pickletools.genops(file)


class _RecordingReader:
    """A file of which it is known what was read."""

    def __init__(self, file: Any) -> None:
        self._file, self.data = file, io.BytesIO()

    def read(self, size: int = -1) -> bytes:
        """Read, and keep it."""
        found: bytes = self._file.read(size)
        self.data.write(found)
        return found

    def readline(self) -> bytes:
        """Read a line, and keep it."""
        found: bytes = self._file.readline()
        self.data.write(found)
        return found
