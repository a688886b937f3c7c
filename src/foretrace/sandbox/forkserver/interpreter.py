"""The `preload` setting, and where an interpreter's packages are installed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import sysconfig
from collections.abc import Sequence

from foretrace.core.errors import SandboxError, UsageError

PRELOAD_SETS = {"none": (), "numpy": ("numpy",), "science": ("numpy", "pandas")}
"""Preload sets by name."""
_PRINT_FOLDERS = (
    "import json, sysconfig; print(json.dumps([sysconfig.get_path('purelib'), sysconfig.get_path('platlib')]))"
)


def parse_preload(text: str) -> tuple[str, ...]:
    """Modules of a preload setting: a set's name, or module names joined by `+`.

    Raises:
        UsageError: not a module's name.
    """
    if text in PRELOAD_SETS:
        return PRELOAD_SETS[text]
    names = tuple(dict.fromkeys(part.strip() for part in text.split("+")))
    if not all(name.isidentifier() for name in names):
        raise UsageError(f"preload {text!r}: choose one of {', '.join(PRELOAD_SETS)}, or module names joined by +")
    return names


async def find_package_folders(interpreter: str) -> tuple[str, ...]:
    """Folders in which an interpreter's packages are installed.

    Raises:
        SandboxError: it cannot be asked.
    """
    if interpreter == sys.executable:
        return tuple(dict.fromkeys((sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))))
    return await ask_package_folders((interpreter,), interpreter)


async def ask_package_folders(command: Sequence[str], interpreter: str) -> tuple[str, ...]:
    """The same, of the interpreter that `command` runs with the arguments that are added to it.

    Raises:
        SandboxError: it cannot be asked.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *(*command, "-I", "-c", _PRINT_FOLDERS),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            out, _ = await asyncio.wait_for(process.communicate(), 20)
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            raise
        return tuple(dict.fromkeys(json.loads(out)))
    except (OSError, ValueError, TimeoutError) as error:
        raise SandboxError(f"cannot ask {interpreter} for its packages: {error}; is it a Python 3.11+?") from None
