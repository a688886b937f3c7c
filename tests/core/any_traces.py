"""Traces that hypothesis makes up."""

from __future__ import annotations

from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

import msgspec
from hypothesis import strategies as st

from foretrace.core.trace import Trace

text = st.text(max_size=20)
numbers = st.integers(0, 2**31 - 1)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)
_PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    str: text,
    int: numbers,
    float: st.floats(allow_nan=False, allow_infinity=False),
    bool: st.booleans(),
    type(None): st.none(),
    Any: json_values,
}


def tuples(of: st.SearchStrategy[Any], most: int = 3) -> st.SearchStrategy[Any]:
    return st.lists(of, max_size=most).map(tuple)


def any_value(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a field's type."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin in (Union, UnionType):
        return st.one_of(*map(any_value, arguments))
    if origin is tuple and arguments[-1] is ...:
        return tuples(any_value(arguments[0]))
    if origin is tuple:
        return st.tuples(*map(any_value, arguments))
    if origin is dict:
        return st.dictionaries(any_value(arguments[0]), any_value(arguments[1]), max_size=2)
    return _PLAIN[kind] if kind in _PLAIN else any_record(kind)


def any_record(record: type[msgspec.Struct], **known: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    fields = {field.name: field.type for field in msgspec.structs.fields(record)}
    return st.builds(record, **{name: any_value(kind) for name, kind in fields.items()} | known)


extra = any_value(dict[str, Any])
traces = any_record(Trace, key=st.text(min_size=1, max_size=20), schema_version=st.just(1))
