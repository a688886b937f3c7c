"""The container sandbox: fork servers, each in a container without network, privileges or a writable disk."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import shutil
import sys
import zipfile
from pathlib import Path

from foretrace.core.errors import SandboxError, Setting
from foretrace.core.trace import Isolation
from foretrace.sandbox.base import Limits, SandboxSettings
from foretrace.sandbox.forkserver.pool import ForkServerPool
from foretrace.sandbox.forkserver.sandbox import ForkServerSandbox, VerifiedPool
from foretrace.sandbox.forkserver.server_process import (
    ENVIRONMENT,
    IMPORT_WITHOUT_FORK_HOOKS,
    NAME_PLACEHOLDER,
    PYTHON_FLAGS,
    ForkServerStartError,
    LaunchSpec,
)

LEVEL = 4
IMAGE_VARIABLE = "FORETRACE_DOCKER_IMAGE"
"""Environment variable that names the image if the caller does not."""
ENGINES = ("docker", "podman")
"""Container engines, tried in this order."""
_PYTHON = "python3"
SCRATCH = "/foretrace-box"
"""Folder of a container that code may write to. It is emptied after each run. Its name does not exist on hosts: if a
command only pretends to be an engine and starts no container, nothing of the host may be emptied."""
_NOBODY = "65534:65534"
_ANSWER_TIMEOUT_S = 15.0
_OVERHEAD_MB = 256
"""Memory of a container for the fork server and preloaded packages, on top of one run and its files, MiB."""
_NAMESPACES = ("pid", "mnt", "net", "ipc", "uts")
_BOOT = (
    f"{IMPORT_WITHOUT_FORK_HOOKS}import sys;n=int(sys.argv[1]);f=sys.argv[2];b=b''\n"
    "while len(b)<n:b+=os.read(0,n-len(b)) or sys.exit('no input')\n"
    "open(f,'wb').write(b);sys.path.insert(0,f)\n"
    "from foretrace.sandbox.inside.fork_server import main_in_container as main;main(f)"
)
"""Reads the fork server's modules from stdin, so nothing of the host is mounted, and a remote engine works too."""


class DockerSandbox(ForkServerSandbox):
    """Runs untrusted Python in containers of Docker or, failing that, Podman (see `base.Sandbox`).

    The image needs Python 3.11 or later and `/usr/bin/env`. It is not pulled: the engine must already have it.

    Args:
        settings: as for every sandbox; `interpreter` is a path inside the image.
        image: default: the environment variable `FORETRACE_DOCKER_IMAGE`, else `python:3.X-slim` of this Python.
    """

    name = "docker"

    def __init__(self, settings: SandboxSettings | None = None, *, image: str | None = None) -> None:
        super().__init__(settings)
        here = f"python:{sys.version_info.major}.{sys.version_info.minor}-slim"
        self._image = image or os.environ.get(IMAGE_VARIABLE) or here
        self._python = self._settings.interpreter or _PYTHON

    async def _start_pool(self) -> VerifiedPool:
        self._min_level()
        if self._settings.level not in (None, LEVEL):
            raise SandboxError(f"containers are level {LEVEL}, and level {self._settings.level} was asked for")
        engine, archive = await find_engine(self._image), pack_own_modules()
        start = make_start_command(engine, self._image, self._limits)
        launch = LaunchSpec(
            interpreter=self._python,
            level=1,  # of the filter inside; the container makes it level 4
            preload=self._preload,
            command=(*start, *make_server_command(self._python, len(archive))),
            first_input=archive,
            # Ends even a container that is still being created.
            end_command=(engine, "rm", "--force", *(("--time", "0") * (engine == "podman")), NAME_PLACEHOLDER),
            scratch=SCRATCH,
        )
        pool = ForkServerPool(launch, self._workers, self._settings.max_sessions)
        try:
            guards = await self._run_selftest(pool, _NAMESPACES)
        except ForkServerStartError as error:
            raise SandboxError(self._explain_no_start(engine, error)) from None
        if off := [f"{guard.name} ({guard.reason})" for guard in guards if not guard.on]:
            pool.close()
            text = f"the {engine} container does not isolate: {'; '.join(off)}; look at the engine's settings"
            raise SandboxError(text)
        return VerifiedPool(pool, Isolation(level=LEVEL, sandbox=self.name), guards)

    def _explain_no_start(self, engine: str, error: ForkServerStartError) -> str:
        if error.call == "execve":
            return str(error)
        if error.call:
            return f"the {engine} container refuses {error.call}: {error}; let its seccomp profile allow it"
        if self._preload and "Module" in str(error):
            names = "+".join(self._preload)
            return f"cannot preload {names} in the image {self._image}: {error}; name an image that has it"
        return f"{error} (image {self._image}, which needs Python 3.11+ as {self._python}, and /usr/bin/env)"


def make_start_command(engine: str, image: str, limits: Limits) -> tuple[str, ...]:
    """`ENGINE run` with all restrictions, up to the command to run in the container.

    Its environment is emptied first: an engine may add variables, such as a proxy's password.
    """
    memory = limits.memory_mb + limits.scratch_mb + _OVERHEAD_MB
    paths = {"PATH": f"/usr/local/bin:{ENVIRONMENT['PATH']}", "HOME": SCRATCH, "TMPDIR": SCRATCH}
    return (
        *(engine, "run", "--rm", "--interactive"),
        *("--pull", "never", "--log-driver", "none"),
        *("--network", "none", "--ipc", "none", "--hostname", "sandbox"),
        *("--user", _NOBODY, "--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
        # Otherwise Podman mounts writable folders on a read-only root.
        *("--read-only", *(("--read-only-tmpfs=false",) if engine == "podman" else ())),
        *("--tmpfs", f"{SCRATCH}:rw,noexec,nosuid,nodev,mode=1777,size={limits.scratch_mb}m"),
        *("--pids-limit", str(limits.processes + 16)),
        *("--memory", f"{memory}m", "--memory-swap", f"{memory}m"),
        *("--workdir", "/", "--name", NAME_PLACEHOLDER, "--entrypoint", "/usr/bin/env", image),
        *("-i", *(f"{name}={value}" for name, value in (ENVIRONMENT | paths).items())),
    )


def make_server_command(python: str, size: int) -> tuple[str, ...]:
    """The command that runs a fork server on any machine, controlled over stdin and stdout.

    It first reads the `size` bytes of `pack_own_modules`. An empty file system must be mounted at `SCRATCH`.
    """
    return (python, *PYTHON_FLAGS, "-c", _BOOT, str(size), f"{SCRATCH}/foretrace.zip")


def pack_own_modules() -> bytes:
    """The fork server's modules, as an archive that Python can import from."""
    folder = Path(__file__).with_name("inside")
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in ("foretrace/__init__.py", "foretrace/sandbox/__init__.py"):
            archive.writestr(package, "")
        for file in sorted(folder.rglob("*.py")):
            archive.writestr(f"foretrace/sandbox/inside/{file.relative_to(folder).as_posix()}", file.read_bytes())
    return packed.getvalue()


async def find_engine(image: str) -> str:
    """The first engine that answers and has the image; a SandboxError says for each one what is missing."""
    reasons: list[str | Setting] = []
    for engine in (name for name in ENGINES if shutil.which(name)):
        problem = await _find_problem(engine, image)
        if problem is None:
            return engine
        reasons += ["; ", *problem] if reasons else problem
    if not reasons:
        raise SandboxError("no container engine here: install Docker or Podman, or give ", Setting("sandbox", "local"))
    raise SandboxError(*reasons)


async def _find_problem(engine: str, image: str) -> tuple[str | Setting, ...] | None:
    """Why an engine cannot be used, as parts of an error; None if it can."""
    command = (engine, "image", "inspect", "--format", "{{.Id}}", image)
    null, pipe = asyncio.subprocess.DEVNULL, asyncio.subprocess.PIPE
    try:
        process = await asyncio.create_subprocess_exec(*command, stdin=null, stdout=null, stderr=pipe)
    except OSError as error:
        return (f"{engine} cannot be run: {error.strerror}",)
    try:
        _, stderr = await asyncio.wait_for(process.communicate(), _ANSWER_TIMEOUT_S)
    except TimeoutError:
        return (f"{engine} does not answer within {_ANSWER_TIMEOUT_S:.0f} s: is its service running?",)
    finally:  # also if this is cancelled
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode == 0:
        return None
    lines = [line.strip() for line in stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    text = lines[-1][:300] if lines else f"exit code {process.returncode}"
    if any(words in text.lower() for words in ("no such image", "not known", "image not found")):
        return (f"{engine} has no image {image}: {engine} pull {image}, or name another in {IMAGE_VARIABLE}",)
    return f"{engine} does not answer ({text}): start its service, or give ", Setting("sandbox", "local")


PLUGIN = DockerSandbox
