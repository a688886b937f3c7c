"""Classes of the standard library in what stands for classes that extend them.

`isinstance(worker, threading.Thread)` and `issubclass(Stack, Generic)` ask Python for the bases of the local class. So
the library's class stands among them, last of all, and gives nothing: whatever it has, the other side is asked for.
"""

from __future__ import annotations

import sys
from typing import Any

_NAMED_MODULES = """
    threading functools contextlib logging logging.handlers json json.encoder json.decoder string argparse ast typing
    collections queue _queue cmd configparser csv codecs random datetime io _io html.parser html.entities textwrap
    itertools weakref concurrent.futures._base concurrent.futures.thread shlex operator calendar struct
    _struct _thread _random statistics graphlib email.message zoneinfo asyncio.locks asyncio.queues asyncio.events
"""
_MODULES = frozenset(_NAMED_MODULES.split())
"""Modules whose classes are known by name. None has a class that equals what it is not."""
_NAMED_OF_PYTHON = """
    module qualname doc dict weakref slots init new getattribute getattr setattr delattr init_subclass class_getitem
    subclasshook reduce reduce_ex getstate setstate sizeof dir annotations parameters orig_bases abstractmethods
    set_name isabstractmethod repr str hash copy deepcopy class match_args
"""
_OF_PYTHON = frozenset(f"__{name}__" for name in _NAMED_OF_PYTHON.split())
"""What every class has, or what stands for an object defines for itself."""


def name_library_class(kind: type) -> list[str] | None:
    """Module and name of a class of the library, by which the other side finds its own."""
    module, name = getattr(kind, "__module__", None), getattr(kind, "__qualname__", None)
    if type(module) is not str or type(name) is not str or module not in _MODULES:
        return None
    return [module, name] if getattr(sys.modules.get(module), name, None) is kind else None


def find_library_class(named: Any) -> type | None:
    """This side's class of that name; None where none is known by it."""
    if not (isinstance(named, list) and len(named) == 2 and all(type(part) is str for part in named)):
        return None
    module, name = named
    if module not in _MODULES:
        return None
    __import__(module)
    found = getattr(sys.modules[module], name, None)
    return found if isinstance(found, type) and not issubclass(found, BaseException) else None


def stand_among(found: type, namespace: dict[str, Any], special: frozenset[str]) -> None:
    """Have the local class with this namespace extend a class of the library, of which nothing is used: its attributes
    are asked for on the other side, and special methods that the other side did not name are none here."""
    if not _fits(found):
        namespace.setdefault("__class__", property(lambda self: found if _is_made_of(self, namespace) else type(self)))
        return
    for name in vars(found):
        if name in namespace or name in _OF_PYTHON:
            continue
        if name in special:
            namespace[name] = None
        elif not (name.startswith("__") and name.endswith("__")):
            namespace[name] = _Asked(name)
    namespace["__library__"] = (*namespace.get("__library__", ()), found)


def _is_made_of(value: Any, namespace: dict[str, Any]) -> bool:
    """Whether an object is one of the class with this namespace, and of none that extends it."""
    return type.__dict__["__dict__"].__get__(type(value)).get("__class__") is namespace["__class__"]


class _Asked:
    """An attribute of the other side's class or object."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        return kind.__peer__.get_attribute(kind if owner is None else owner, self._name)


def insert_classes(mro: list[type], added: tuple[type, ...]) -> list[type]:
    """The classes in which Python looks for attributes of a local class, with the library's before `object`."""
    return [*mro[:-1], *(base for base in added if base not in mro), mro[-1]]


class _Quiet:
    def __init_subclass__(cls, **named: Any) -> None:
        pass


_fitting: dict[type, bool] = {}


def _fits(found: type) -> bool:
    """Whether a class can extend it beside classes of another make: it has no memory of its own in its objects."""
    if found not in _fitting:

        class Probing(type):
            def mro(cls) -> list[type]:
                return [cls, _Quiet, found, object]

        try:
            Probing("Probe", (_Quiet,), {})
            _fitting[found] = True
        except TypeError:
            _fitting[found] = False
    return _fitting[found]
