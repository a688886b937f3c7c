"""The guarded parent: a process with secrets that starts a sandbox and runs, one JSON line a job, what it is told.

Run as `python host.py SETTINGS_JSON [DESCRIPTORS SECRET]`; it answers on stdout with one JSON line a job.
`"refuse": true` in the settings puts it under a filter that refuses new namespaces, as a container without user
namespaces does.
"""

from __future__ import annotations

import asyncio
import ctypes
import fcntl
import json
import os
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import msgspec

from foretrace.core.problem import Test
from foretrace.sandbox.base import Limits, SandboxSettings
from hostile import tree
from sandbox.container import NAMESPACES, refuse

SECRET_FD, FOLDER_FD = 40, 41
"""Inheritable descriptors of this process: a file with a secret, and the decoy folder."""
_kept: list[ctypes.Array[ctypes.c_char]] = []


def take(descriptors: str) -> None:
    """Put what was passed (two numbers, by comma) at the known descriptors; die with the process that started it."""
    tree.die_with_parent()
    given = [int(word) for word in descriptors.split(",")]
    high = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, 100) for descriptor in given]  # out of each other's way
    os.closerange(3, 100)
    for descriptor, target in zip(high, (SECRET_FD, FOLDER_FD), strict=True):
        os.dup2(descriptor, target)
        os.close(descriptor)


def fill(code: str) -> str:
    """The code with the pid of this process and the address of the secret in its memory."""
    address = ctypes.addressof(_kept[-1]) if _kept else 0
    return code.replace("'@PARENT@'", str(os.getpid())).replace("'@ADDRESS@'", str(address))


def limits_of(job: dict[str, Any]) -> Limits | None:
    return msgspec.convert(job["limits"], Limits) if job.get("limits") else None


async def serve(sandbox: Any, job: dict[str, Any]) -> Any:
    code, limits = fill(job.get("code", "")), limits_of(job)
    if job["form"] == "run":
        return await sandbox.run(code, stdin=job.get("stdin", ""), limits=limits)
    if job["form"] == "session":
        results = []
        async with await sandbox.session(limits=limits) as session:
            for block in code.split("\n#---\n"):
                results.append(await session.run(block))
        return results
    tests = msgspec.convert(job["tests"], list[Test])
    form = job["form"] if job["form"] in ("calls", "together") else None
    entry_point = None if job["form"] == "program" else "f"
    return await sandbox.judge(code, tests, entry_point=entry_point, setup=job["setup"], form=form, limits=limits)


async def answer(sandbox: Any, job: dict[str, Any]) -> None:
    try:
        said = {"gave": msgspec.to_builtins(await serve(sandbox, job))}
    except Exception as error:
        said = {"raised": f"{type(error).__name__}: {error}"}
    print(json.dumps({"id": job["id"], **said}), flush=True)


async def main() -> None:
    from foretrace.sandbox.local import PLUGIN

    settings = json.loads(sys.argv[1])
    if settings.pop("refuse", False):
        refuse(NAMESPACES)
    loop = asyncio.get_running_loop()
    jobs: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
    warnings.simplefilter("ignore")
    sandbox = PLUGIN(msgspec.convert(settings, SandboxSettings))
    try:
        isolation = await sandbox.start()
    except Exception as error:
        print(json.dumps({"raised": f"{type(error).__name__}: {error}"}), flush=True)
        return
    print(json.dumps({"isolation": msgspec.to_builtins(isolation)}), flush=True)

    def read() -> None:
        for line in sys.stdin:
            loop.call_soon_threadsafe(jobs.put_nowait, json.loads(line))
        loop.call_soon_threadsafe(jobs.put_nowait, None)

    threading.Thread(target=read, daemon=True).start()
    running: set[asyncio.Task[None]] = set()
    while (job := await jobs.get()) is not None:
        if "hold" in job:
            _kept.append(ctypes.create_string_buffer(job["hold"].encode()))
            continue
        task = asyncio.create_task(answer(sandbox, job))
        running.add(task)
        task.add_done_callback(running.discard)
    await sandbox.close()


if __name__ == "__main__":
    if len(sys.argv) > 2:
        take(sys.argv[2])
    tree.keep_orphans()
    asyncio.run(main())
    sys.stdout.flush()
    os._exit(0)  # the reading thread waits for stdin
