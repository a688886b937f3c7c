"""A document that is kept as a log: its first state, then the changes to it, one a line, as VS Code keeps sessions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from foretrace.rows.base import Drop
from foretrace.sources.account import Account

_FIRST, _SET, _PUSH, _DELETE = range(4)
_MAX_PATH = 64


def is_change(record: dict[str, Any]) -> bool:
    """Whether a record is the first one of a log: a state."""
    return record.get("kind") == _FIRST and not isinstance(record["kind"], bool) and isinstance(record.get("v"), dict)


def replay_changes(first: dict[str, Any], changes: Iterable[dict[str, Any] | Drop], account: Account) -> dict[str, Any]:
    """The last state. A change whose place is not there is counted as dropped: a line before it is missing."""
    state: dict[str, Any] = first["v"]
    account.use()
    for change in changes:
        if isinstance(change, Drop):
            account.drop(change.reason)
        elif is_change(change):
            state = change["v"]
            account.use()
        elif change.get("kind") not in (_SET, _PUSH, _DELETE):
            account.meet_unknown(change.get("kind"))
        elif _apply(state, change):
            account.use()
        else:
            account.drop("change_without_place")
    return state


def _apply(state: dict[str, Any], change: dict[str, Any]) -> bool:
    path: Any = change.get("k")
    if not isinstance(path, list) or not 0 < len(path) <= _MAX_PATH:
        return False
    place: Any = state
    for step in path[:-1]:
        if not _has(place, step):
            return False
        place = place[step]
    key: Any = path[-1]
    if change["kind"] == _PUSH:
        return _push(place, key, change.get("v"), change.get("i"))
    if change["kind"] == _DELETE:
        return isinstance(place, dict) and isinstance(key, str) and place.pop(key, place) is not place
    if isinstance(place, list) and key == len(place) and not isinstance(key, bool):
        place.append(change.get("v"))
    elif isinstance(place, dict) and isinstance(key, str):
        place[key] = change.get("v")
    elif isinstance(place, list) and _has(place, key):
        place[int(key)] = change.get("v")
    else:
        return False
    return True


def _push(place: Any, key: Any, values: Any, length: Any) -> bool:
    """Cut a list to a length, where one is given, and add values to it."""
    if isinstance(place, dict) and isinstance(key, str) and place.get(key) is None:
        place[key] = []
    if not _has(place, key) or not isinstance(place[key], list):
        return False
    if isinstance(length, int) and length >= 0:
        del place[key][length:]
    place[key] += values if isinstance(values, list) else []
    return True


def _has(place: Any, key: Any) -> bool:
    if isinstance(place, dict):
        return isinstance(key, str) and key in place
    return isinstance(place, list) and isinstance(key, int) and not isinstance(key, bool) and 0 <= key < len(place)
