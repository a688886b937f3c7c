"""Make settings objects and engines from plain values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec

from foretrace.core.errors import Setting, UsageError

if TYPE_CHECKING:
    from foretrace.engines.engine import Engine

_Struct = TypeVar("_Struct", bound=msgspec.Struct)


def pick_settings(kind: type[_Struct], given: Mapping[str, Any], **others: Any) -> _Struct:
    """A settings object from those of a function's arguments (its `locals()`) that are named like its fields; `others`
    take precedence.
    """
    own = {name: given[name] for name in kind.__struct_fields__ if name in given}
    try:
        return msgspec.convert(msgspec.to_builtins(own | others), kind, strict=True)
    except (msgspec.ValidationError, TypeError) as error:
        raise UsageError(_explain(error, kind)) from None


def _explain(error: Exception, kind: type[msgspec.Struct]) -> str:
    """msgspec's message with the field first: `Expected int, got str - at $.seed` -> `seed: Expected int, got str`. It
    lists the choices if there are any."""
    what, _, place = str(error).rpartition(" - at ")
    name = place.strip("`").removeprefix("$").lstrip(".")
    value = what.removeprefix("Invalid enum value ")
    if value != what and (choices := _list_choices(kind, name)):
        return f"{name}: {value} is not one of {', '.join(choices)}"
    return f"{name}: {what}" if what and name else what or str(error)


def _list_choices(kind: type[msgspec.Struct], name: str) -> list[str]:
    """The choices of a field that is one of several words; else none."""
    fields: Any = msgspec.inspect.type_info(kind)
    types = [
        each for field in fields.fields if field.name == name for each in getattr(field.type, "types", [field.type])
    ]
    return [str(value) for each in types for value in getattr(each, "values", ())]


def make_engine(engine: Literal["processes", "ray"] | Engine, workers: int | None, ray_address: str | None) -> Engine:
    """The engine that runs the jobs of a call: the one with that name, or the given one. `workers` are the most jobs at
    a time (`None`: all cores of a cluster, or one process); an address of `None` is that in `RAY_ADDRESS`, or a Ray
    only on this machine."""
    if ray_address is not None and engine != "ray":
        raise UsageError(Setting("ray_address", ray_address), " is for ", Setting("engine", "ray"))
    if not isinstance(engine, str):
        return engine
    if engine == "ray":
        from foretrace.engines.ray_tasks import RayTasks

        return RayTasks(workers, ray_address)
    from foretrace.engines.processes import Processes

    if engine != "processes":
        raise UsageError(Setting("engine", engine), ": choose processes or ray")
    return Processes(workers or 1)
