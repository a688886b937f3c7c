"""Which Python runs the code, and which of its packages are imported beforehand."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import sysconfig
from collections.abc import Sequence

from foretrace.core.errors import SandboxError, UsageError

SETS = {"none": (), "numpy": ("numpy",), "science": ("numpy", "pandas")}
"""Preload sets by name."""
_ASK = "import json, sysconfig; print(json.dumps([sysconfig.get_path('purelib'), sysconfig.get_path('platlib')]))"


def preload_names(text: str) -> tuple[str, ...]:
    """Modules of a preload setting: a set's name, or module names joined by `+`.

    Raises:
        UsageError: not a module's name.
    """
    if text in SETS:
        return SETS[text]
    names = tuple(dict.fromkeys(part.strip() for part in text.split("+")))
    if not all(name.isidentifier() for name in names):
        raise UsageError(f"preload {text!r}: choose one of {', '.join(SETS)}, or module names joined by +")
    return names


async def packages_of(interpreter: str) -> tuple[str, ...]:
    """Folders in which an interpreter's packages are installed.

    Raises:
        SandboxError: it cannot be asked.
    """
    if interpreter == sys.executable:
        return tuple(dict.fromkeys((sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))))
    return await packages_by((interpreter,), interpreter)


async def packages_by(command: Sequence[str], interpreter: str) -> tuple[str, ...]:
    """The same, of the interpreter that `command` runs with the arguments that are added to it.

    Raises:
        SandboxError: it cannot be asked.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *(*command, "-I", "-c", _ASK),
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
