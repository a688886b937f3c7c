"""The container sandbox: the same fork servers, each in a container without network, rights or a writable disk."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import shutil
import sys
import warnings
import zipfile
from pathlib import Path
from typing import Any

from foretrace.core.errors import SandboxError
from foretrace.core.trace import Isolation
from foretrace.sandbox.base import Guard, Limits, Settings
from foretrace.sandbox.forkserver.client import ENVIRONMENT, FLAGS, NAME, Launch, StartError
from foretrace.sandbox.forkserver.interpreter import packages_by
from foretrace.sandbox.forkserver.pool import Pool
from foretrace.sandbox.forkserver.sandbox import ServedSandbox, Serving

LEVEL = 4
IMAGE_VARIABLE = "FORETRACE_DOCKER_IMAGE"
"""Environment variable that names the image, where the caller names none."""
ENGINES = ("docker", "podman")
"""Tried in this order."""
_PYTHON = "python3"
SCRATCH = "/foretrace-box"
"""Emptied after each run, and so a folder that no host has: an engine that is none must find nothing to empty."""
_NOBODY = "65534:65534"
_ANSWER_S = 15.0
_OVERHEAD_MB = 256
"""Memory of a container beside that of one run and its files: the fork server, preloaded packages."""
_SPACES = ("pid", "mnt", "net", "ipc", "uts")
_BY_CONTAINER = frozenset(
    {"limits", "environment", "filesystem_read", "filesystem_write", "network", "jail", "scratch", "namespaces"}
)
"""Guards that a container gives by itself, without a system call filter inside."""
_BOOT = (
    "import os,sys;n=int(sys.argv[1]);f=sys.argv[2];b=b''\n"
    "while len(b)<n:b+=os.read(0,n-len(b)) or sys.exit('no input')\n"
    "open(f,'wb').write(b);sys.path.insert(0,f)\n"
    "from foretrace.sandbox.inside.container_relay import main;main(f)"
)
"""Reads the fork server's own modules from stdin: nothing of the host is mounted, and a remote engine works too."""


class DockerSandbox(ServedSandbox):
    """Runs untrusted Python in containers (see `base.Sandbox`), of Docker or else of Podman.

    The image needs Python 3.11 or later and `/usr/bin/env`; it must be on the engine's machine already.

    Args:
        settings: as for every sandbox; `interpreter` is a path inside of the image.
        image: default: the environment variable `FORETRACE_DOCKER_IMAGE`, else `python:3.X-slim`, X as here.
    """

    name = "docker"

    def __init__(self, settings: Settings | None = None, *, image: str | None = None) -> None:
        super().__init__(settings)
        here = f"python:{sys.version_info.major}.{sys.version_info.minor}-slim"
        self._image = image or os.environ.get(IMAGE_VARIABLE) or here
        self._python = self._settings.interpreter or _PYTHON

    async def _establish(self) -> Serving:
        self._lowest()
        if self._settings.level not in (None, LEVEL):
            raise SandboxError(f"containers are level {LEVEL}, and level {self._settings.level} was asked for")
        engine = await find_engine(self._image)
        path: tuple[str, ...] = ()
        if self._preload:
            path = await packages_by(asking(engine, self._image, self._python), f"{self._python} in {self._image}")
        try:
            return await self._open(engine, path, 1)
        except StartError as error:
            if error.call != "seccomp" or not self._settings.allow_weak_isolation:
                raise SandboxError(self._no_start(engine, error)) from None
        try:
            return await self._open(engine, path, 0)
        except StartError as error:
            raise SandboxError(self._no_start(engine, error)) from None

    async def _open(self, engine: str, path: tuple[str, ...], inner: int) -> Serving:
        """Containers whose fork servers run at the level `inner`, tested."""
        archive = own_modules()
        launch = Launch(
            interpreter=self._python,
            level=inner,
            preload=self._preload,
            path=path,
            command=starting(engine, self._image, self._python, self._limits, len(archive)),
            first=archive,
            end=ending(engine),
            scratch=SCRATCH,
        )
        pool = Pool(launch, self._workers, self._settings.max_sessions)
        try:
            await pool.warm(self._workers)
            guards = await self._test(pool, sys.executable, _SPACES)
            isolation = self._judged(engine, guards, inner)
        except BaseException:
            pool.close()
            raise
        return Serving(pool, isolation, guards)

    def _judged(self, engine: str, guards: list[Guard], inner: int) -> Isolation:
        off = [guard for guard in guards if not guard.on]
        needed = [g for g in off if inner or g.name in _BY_CONTAINER]
        if needed:
            failed = "; ".join(f"{g.name} ({g.reason})" for g in needed)
            raise SandboxError(f"the {engine} container does not isolate: {failed}; look at the engine's settings")
        if off:
            names = ", ".join(guard.name for guard in off)
            warnings.warn(f"no system call filter in the {engine} container; not in force: {names}", stacklevel=6)
        return Isolation(level=LEVEL, missing=tuple(guard.name for guard in off), sandbox=self.name)

    def _no_start(self, engine: str, error: StartError) -> str:
        if error.call == "execve":
            return str(error)
        if error.call:
            return f"the {engine} container refuses {error.call}: {error}; let its seccomp profile allow it"
        if self._preload and "Module" in str(error):
            names = "+".join(self._preload)
            return f"cannot preload {names} in the image {self._image}: {error}; name an image that has it"
        return f"{error} (image {self._image}, which needs Python 3.11+ as {self._python}, and /usr/bin/env)"


def own_modules() -> bytes:
    """The modules that a fork server consists of, as an archive that Python can import from."""
    folder = Path(__file__).with_name("inside")
    found = io.BytesIO()
    with zipfile.ZipFile(found, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in ("foretrace/__init__.py", "foretrace/sandbox/__init__.py"):
            archive.writestr(package, "")
        for file in sorted(folder.rglob("*.py")):
            archive.writestr(f"foretrace/sandbox/inside/{file.relative_to(folder).as_posix()}", file.read_bytes())
    return found.getvalue()


def _confined(engine: str, limits: Limits) -> tuple[str, ...]:
    """`ENGINE run` with all that a container is denied."""
    memory = limits.memory_mb + limits.scratch_mb + _OVERHEAD_MB
    return (
        *(engine, "run", "--rm", "--interactive"),
        *("--pull", "never", "--log-driver", "none"),
        *("--network", "none", "--ipc", "none", "--hostname", "sandbox"),
        *("--user", _NOBODY, "--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
        # Podman would put writable folders onto a read-only root.
        *("--read-only", *(("--read-only-tmpfs=false",) if engine == "podman" else ())),
        *("--tmpfs", f"{SCRATCH}:rw,noexec,nosuid,nodev,mode=1777,size={limits.scratch_mb}m"),
        *("--pids-limit", str(limits.processes + 16)),
        *("--memory", f"{memory}m", "--memory-swap", f"{memory}m"),
        *("--workdir", "/"),
    )


def starting(engine: str, image: str, python: str, limits: Limits, size: int) -> tuple[str, ...]:
    """The command that starts a container whose fork server reads its `size` bytes of modules from stdin."""
    return (*_confined(engine, limits), "--name", NAME, *_within(image), *server(python, size))


def server(python: str, size: int) -> tuple[str, ...]:
    """The command of a fork server that speaks over stdin and stdout, on any machine: what is sent first are the
    `size` bytes of `own_modules`. An empty file system must be mounted at `SCRATCH`."""
    return (python, *FLAGS, "-c", _BOOT, str(size), f"{SCRATCH}/foretrace.zip")


def _within(image: str) -> tuple[str, ...]:
    """The image, with clean variables for what is run in it: an engine may add some, such as a proxy's password."""
    paths = {"PATH": f"/usr/local/bin:{ENVIRONMENT['PATH']}", "HOME": SCRATCH, "TMPDIR": SCRATCH}
    variables = {**ENVIRONMENT, **paths}
    clean = ("-i", *(f"{name}={value}" for name, value in variables.items()))
    return ("--entrypoint", "/usr/bin/env", image, *clean)


def asking(engine: str, image: str, python: str) -> tuple[str, ...]:
    """The command that runs the image's Python for a question, with the arguments that are added to it."""
    return (*_confined(engine, Limits()), *_within(image), python)


def ending(engine: str) -> tuple[str, ...]:
    """The command that ends a container, or one that is only just being made."""
    return (engine, "rm", "--force", *(("--time", "0") if engine == "podman" else ()), NAME)


async def find_engine(image: str) -> str:
    """The first engine that answers and has the image.

    Raises:
        SandboxError: there is none; says of each what is missing, and what to do.
    """
    reasons: list[str] = []
    for engine in (name for name in ENGINES if shutil.which(name)):
        reason = await _asked(engine, image)
        if reason is None:
            return engine
        reasons.append(reason)
    if not reasons:
        raise SandboxError("no container engine here: install Docker or Podman, or use --sandbox local")
    raise SandboxError("; ".join(reasons))


async def _asked(engine: str, image: str) -> str | None:
    """Why an engine cannot serve; None when it can."""
    pipes: Any = {"stdin": asyncio.subprocess.DEVNULL, "stdout": asyncio.subprocess.DEVNULL}
    command = (engine, "image", "inspect", "--format", "{{.Id}}", image)
    try:
        process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE, **pipes)
    except OSError as error:
        return f"{engine} cannot be run: {error.strerror}"
    try:
        _, said = await asyncio.wait_for(process.communicate(), _ANSWER_S)
    except TimeoutError:
        return f"{engine} does not answer within {_ANSWER_S:.0f} s: is its service running?"
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode == 0:
        return None
    lines = [line.strip() for line in said.decode("utf-8", "replace").splitlines() if line.strip()]
    text = lines[-1][:300] if lines else f"exit code {process.returncode}"
    if any(words in text.lower() for words in ("no such image", "not known", "image not found")):
        return f"{engine} has no image {image}: {engine} pull {image}, or name another in {IMAGE_VARIABLE}"
    return f"{engine} does not answer ({text}): start its service, or use --sandbox local"


PLUGIN = DockerSandbox
