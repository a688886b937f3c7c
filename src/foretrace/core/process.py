"""Keep a process of our own small: a command or a worker, never the process of somebody who imports foretrace."""

from __future__ import annotations

import contextlib
import ctypes
import sys
from importlib.abc import MetaPathFinder

_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8
"""Names of settings in glibc's malloc.h."""


class _WithoutPandas(MetaPathFinder):
    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("No module named 'pandas'", name=fullname)


def stay_small() -> None:
    """Leave out what Arrow would bring along, and give its memory back as soon as it is free.

    To ask whether a list is one of pandas' objects, Arrow imports pandas: 60 MB and half a second for a no. After
    this, nothing in the process can import pandas, so the `datasets` library cannot be used in it.
    """
    if "pandas" not in sys.modules:
        sys.meta_path.insert(0, _WithoutPandas())
    import pyarrow as pa

    pa.set_memory_pool(pa.system_memory_pool())
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        # glibc raises its threshold for mapped blocks with each that is freed, and large blocks then stay in the heap.
        mallopt(_M_MMAP_THRESHOLD, 1 << 20)
        mallopt(_M_ARENA_MAX, 1)


def give_back_memory() -> None:
    """Return freed memory to the system, where the C library keeps it for later (glibc): a worker that builds many
    parts would else grow with each."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
