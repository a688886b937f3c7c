"""Plain values like a given one, among which an object that wants to please cannot tell the real one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from foretrace.sandbox.inside.remote.array_types import is_numpy_class, make_like
from foretrace.sandbox.inside.remote.arrays import is_plain_array
from foretrace.sandbox.inside.remote.classes import RemoteObject

if TYPE_CHECKING:
    import random

_LINE_UP = 24


def make_line_up(value: Any, choice: random.Random) -> list[Any]:
    """Values like `value` and unequal to it. Each is made of another one, so that the value is not the middle."""
    members = [value]
    for _ in range(_LINE_UP * 4):
        other = vary(choice.choice(members), choice)
        if not any(other == member for member in members):
            members.append(other)
        if len(members) > _LINE_UP:
            break
    others = members[1:]
    choice.shuffle(others)
    return others


def vary(value: Any, choice: random.Random) -> Any:
    """A plain value of the same type, and unequal."""
    kind = type(value)
    if kind is bool:
        return not value
    if kind is int:
        return value + choice.choice((-1, 1)) * choice.choice((1, 2, 3, 5, 10, 100, choice.randrange(1, 1000)))
    if kind is float:
        return value + choice.choice((-1, 1)) * choice.choice((0.5, 1.0, 2.0, 10.0, choice.random() * 100))
    if kind is str:
        if not value:
            return choice.choice("abcxyz")
        at = choice.randrange(len(value))
        return value[:at] + choice.choice("0123456789abcdefghijklmnopqrstuvwxyz") + value[at + choice.randrange(2) :]
    if kind in (list, tuple):
        items = list(value)
        if not items or choice.random() < 0.2:
            items.append(choice.randrange(100))
        elif choice.random() < 0.2:
            items.pop(choice.randrange(len(items)))
        else:
            at = choice.randrange(len(items))
            items[at] = vary(items[at], choice)
        return kind(items)
    if kind is dict:
        items = dict(value)
        if items and choice.random() < 0.7:
            key = choice.choice(list(items))
            items[key] = vary(items[key], choice)
        else:
            items[choice.randrange(1000)] = choice.randrange(100)
        return items
    if is_plain_array(value):
        return _vary_item(value, choice)
    if is_numpy_class(kind):
        return make_like(value, vary(value.item(), choice))
    if kind in (set, frozenset):
        return kind({*value, choice.randrange(1000)})
    return choice.randrange(1 << 30)


def _vary_item(array: Any, choice: random.Random) -> Any:
    """An array of which one item is another one."""
    other = array.copy()
    if other.size:
        place = choice.randrange(other.size)
        other.flat[place] = vary(other.flat[place], choice)
    return other


def vary_arguments(
    args: tuple[Any, ...], named: dict[str, Any], choice: random.Random, turn: int
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The same arguments but for one, which is another plain value; each has its turn.

    Raises:
        ValueError: none of them is a plain value.
    """
    places: list[Any] = [n for n, value in enumerate(args) if not isinstance(value, RemoteObject)] + [
        key for key, value in named.items() if not isinstance(value, RemoteObject)
    ]
    if not places:
        raise ValueError("no argument that is a plain value")
    place = places[turn % len(places)]
    if isinstance(place, int):
        return (*args[:place], vary(args[place], choice), *args[place + 1 :]), named
    return args, {**named, place: vary(named[place], choice)}


def copy_plain(value: Any) -> Any:
    """A copy of plain containers within one another; all else is the same object."""
    kind = type(value)
    if kind in (list, tuple, set, frozenset):
        return kind(copy_plain(item) for item in value)
    if kind is dict:
        return {key: copy_plain(item) for key, item in value.items()}
    return value
