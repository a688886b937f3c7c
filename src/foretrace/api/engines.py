"""From the settings of a call to the engine that runs its jobs."""

from __future__ import annotations

from typing import Literal

from foretrace.core.errors import Setting, UsageError
from foretrace.engines.engine import Engine
from foretrace.engines.processes import Processes

EngineName = Literal["processes", "ray"]


def make_engine(
    engine: EngineName | Engine, workers: int | None, ray_address: str | None, *, processes: int = 1
) -> Engine:
    """The engine of that name, or the one that is given.

    Args:
        workers: Jobs at a time at most; `None` is as many as a cluster has cores, or `processes` on this machine.
        ray_address: Of the Ray cluster; `None` is that of `RAY_ADDRESS`, or a Ray that runs only on this machine.

    Raises:
        UsageError: an engine that is not known, or an address for one that needs none.
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
