"""Make the engine that runs the jobs of a call from its settings."""

from __future__ import annotations

from typing import Literal

from foretrace.core.errors import Setting, UsageError
from foretrace.engines.engine import Engine
from foretrace.engines.processes import Processes

EngineName = Literal["processes", "ray"]


def make_engine(
    engine: EngineName | Engine, workers: int | None, ray_address: str | None, *, processes: int = 1
) -> Engine:
    """The engine with that name, or the given engine.

    Args:
        workers: Most jobs at a time; `None` is all cores of a cluster, or `processes` on this machine.
        ray_address: Address of the Ray cluster; `None` is that in `RAY_ADDRESS`, or a Ray only on this machine.
    """
    if ray_address is not None and engine != "ray":
        raise UsageError(Setting("ray_address", ray_address), " is for ", Setting("engine", "ray"))
    if not isinstance(engine, str):
        return engine
    if engine == "ray":
        from foretrace.engines.ray_tasks import RayTasks

        return RayTasks(workers, ray_address)
    if engine != "processes":
        raise UsageError(Setting("engine", engine), ": choose processes or ray")
    return Processes(workers or processes)
