"""Records in which every text is hostile, made from their schemas: a field that is added is filled too."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from msgspec import inspect

from foretrace.core.trace import Message, ToolCall, Trace
from report.hostile_traces import MARKUP

CONTROLS = "\x1b[31mred\x1b[0m\x00\x07\x9b\u202e\u2066"
ADDRESSES = "javascript:window.hacked=1 data:text/html,<script>window.hacked=1</script> http://example.invalid"
_ROLES = (("system", "environment"), ("user", "user"), ("assistant", "model"), ("tool", "environment"))
_ARGUMENTS = ("command", "old_str", "new_str", "patch", "code", "path", "edits", "__proto__", "constructor")


def make_text(path: str) -> str:
    """A hostile text that says which field it is in."""
    return f"«{path}» {MARKUP} {CONTROLS} {ADDRESSES}/{path}"


def fill(of: Any, path: str = "") -> Any:
    """A value of a type, as builtins: each text in it hostile, each field and each kind of a union given.

    Raises:
        TypeError: the type is one that this does not know how to fill.
    """
    kind = of if isinstance(of, inspect.Type) else inspect.type_info(of)
    if isinstance(kind, inspect.StructType):
        fields = kind.fields
        return {field.encode_name: _keep_number(field, fill(field.type, f"{path}.{field.name}")) for field in fields}
    if isinstance(kind, inspect.StrType):
        return make_text(path)
    if isinstance(kind, inspect.UnionType):
        given = [each for each in kind.types if not isinstance(each, inspect.NoneType)]
        texts = [each for each in given if isinstance(each, inspect.StrType)]
        if len(given) > 1 and not texts:
            raise TypeError(f"{path}: say which of {given} to fill")
        return fill((texts or given)[0], path)
    if isinstance(kind, inspect.DictType):
        key = fill(kind.key_type, f"{path}.key")
        return {key: fill(kind.value_type, f"{path}.value")}
    if isinstance(kind, inspect.AnyType):
        return {make_text(f"{path}.any key"): [make_text(f"{path}.any value")], "__proto__": {"polluted": 1}}
    if isinstance(kind, inspect.VarTupleType | inspect.ListType):
        return [fill(kind.item_type, path)]
    if isinstance(kind, inspect.TupleType):
        return [fill(each, path) for each in kind.item_types]
    if isinstance(kind, inspect.LiteralType):
        return kind.values[0]
    if isinstance(kind, inspect.EnumType):
        return next(iter(kind.cls)).value
    plain = {inspect.BoolType: True, inspect.IntType: 1, inspect.FloatType: 0.5}
    if type(kind) not in plain:
        raise TypeError(f"{path}: say how to fill a {type(kind).__name__}")
    return plain[type(kind)]


def _keep_number(field: inspect.Field, value: Any) -> Any:
    """The number that a field has where nothing else is said, such as the version of a schema."""
    return field.default if isinstance(value, int) and isinstance(field.default, int) else value


def list_texts(value: Any) -> list[str]:
    """All texts in builtins, keys too."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for key, item in value.items() for text in (key, *list_texts(item))]
    return [text for item in value for text in list_texts(item)] if isinstance(value, list | tuple) else []


def list_names(of: Any, path: str = "") -> list[str]:
    """The path of each text in a type."""
    return sorted({text.split("»")[0].removeprefix("«") for text in list_texts(fill(of, path)) if "»" in text})


def make_filled_trace(key: str, *, success: bool) -> Trace:
    """A trace with every field given, a filled message of each role, and calls with hostile arguments of each name that
    the page knows. Its parent is in no folder."""
    trace: Trace = msgspec.convert(fill(Trace), Trace)
    model = trace.messages[0]
    messages: list[Message] = [
        msgspec.structs.replace(model, role=role, author=author, injected=injected, turn=turn)
        for turn, (role, author) in enumerate(_ROLES)
        for injected in ((False, True) if role in ("tool", "user") else (False,))
    ]
    call: ToolCall = model.tool_calls[0]
    value = {name: make_text(f"arguments.{name}") for name in _ARGUMENTS}
    shapes = [value, {"edits": [value]}, [value], make_text("arguments")]
    shapes += [{name: text} for name, text in value.items()]
    texts = [make_text("no JSON"), '{"lone": "\\ud800 <script>"}', "[" * 9_999, *map(json.dumps, shapes)]
    calls = tuple(msgspec.structs.replace(call, arguments=text) for text in texts)
    messages.append(msgspec.structs.replace(model, role="assistant", author="model", tool_calls=calls))
    outcome = msgspec.structs.replace(trace.outcome, success=success)
    given: dict[str, Any] = {"key": f"{key} {trace.key}", "messages": tuple(messages), "outcome": outcome}
    return msgspec.structs.replace(trace, **given)


def poison(value: Any, path: str = "") -> Any:
    """JSON with each text in it made hostile; the names of fields stay, except where each is a name of its own."""
    if isinstance(value, str):
        return f"{value} {make_text(path)}"
    if isinstance(value, dict):
        return {name: poison(item, f"{path}.{name}") for name, item in value.items()}
    return [poison(item, path) for item in value] if isinstance(value, list) else value
