# ruff: noqa: UP006, UP007, UP045 - the older ways to write types are what is tested
"""Types as annotations write them, told to the other process."""

from __future__ import annotations

import collections.abc as abc
import typing
from typing import Any

import pytest

from foretrace.sandbox.inside.remote.type_forms import describe_type, make_type

T = typing.TypeVar("T")


class Box(typing.Generic[T]):
    pass


@pytest.mark.parametrize(
    "told",
    [
        *(list[int], dict[str, list[int]], tuple[()], tuple[int, ...], type[int], list["Box"], dict[str, None]),
        *(int | None, None | str, list[int] | None, typing.Optional[str], typing.Union[int, str]),
        *(typing.List[int], typing.Dict[str, Any], typing.Tuple[()], typing.List["Box"], typing.Type[int]),
        *(abc.Iterable[int], typing.Iterator[typing.Tuple[int, str]], typing.ForwardRef("Box"), Box[int]),
        *(typing.Callable[[int], str], typing.Callable[..., None], typing.Callable[[], int]),
        *(abc.Callable[[int, str], int], abc.Callable[..., int], typing.Literal["a", 1]),
        *(typing.Annotated[int, "x"], typing.ClassVar[int], typing.Any, typing.Union, typing.List, typing.NoReturn),
    ],
    ids=repr,
)
def test_a_type_stays_what_it_is(told: Any) -> None:
    described = describe_type(told)
    assert described is not None
    made = make_type(described[0], described[1:])
    assert made == told and type(made) is type(told) and repr(made) == repr(told)


class Lying(type):
    def __hash__(cls) -> int:
        raise AssertionError("asked for its hash")


class Liar(metaclass=Lying):
    pass


@pytest.mark.parametrize(
    "other", [int, T, 3, "int", Box, None, typing, typing.Protocol, list[T], list[[1].append], list[Liar]]
)
def test_what_is_no_type_or_made_of_other_things_is_told_otherwise(other: Any) -> None:
    assert describe_type(other) is None


@pytest.mark.parametrize(
    "parts",
    [["ga", 3, (int,)], ["ga", list, [int]], ["ga", list, (Liar,)], ["tn", "get_type_hints"], ["ta", "cast", (int,)]],
)
def test_what_describes_no_type_is_refused(parts: list[Any]) -> None:
    with pytest.raises(ValueError, match=r"class|type"):
        make_type(parts[0], parts[1:])
