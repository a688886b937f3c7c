"""The container sandbox, end to end on a stand-in for an engine whose containers are real namespaces."""

from __future__ import annotations

import asyncio
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
import zipfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from foretrace.core.errors import SandboxError
from foretrace.sandbox import docker
from foretrace.sandbox.base import Limits, SandboxSettings
from foretrace.sandbox.docker import DockerSandbox
from foretrace.sandbox.forkserver.server_process import ENVIRONMENT
from hostile.tree import alive
from sandbox.boxes import until

# The stand-in's containers have a /tmp of their own, in which a virtual environment may lie: the Python behind it.
PYTHON = os.path.realpath(sys.executable)
IMAGE = f"python:{sys.version_info.major}.{sys.version_info.minor}-slim"
SETTINGS = SandboxSettings(workers=1, interpreter=PYTHON)
Work = Callable[[DockerSandbox], Coroutine[Any, Any, None]]


class Engine:
    """The stand-in: what it was asked, and what is to be the matter with it."""

    def __init__(self, folder: Path) -> None:
        self.programs, self.state = folder / "programs", folder / "state"
        self.programs.mkdir()
        self.state.mkdir()

    def install(self, name: str) -> None:
        program = self.programs / name
        program.write_text(f"#!{sys.executable}\n" + Path(__file__).with_name("fake_engine.py").read_text())
        program.chmod(0o755)

    def fail(self, fault: str) -> None:
        (self.state / "fault").write_text(fault)

    @property
    def log(self) -> list[list[str]]:
        return [json.loads(line) for line in (self.state / "log").read_text().splitlines()]

    def containers(self) -> list[int]:
        """Processes of the containers that were started, alive or not."""
        return [int(file.read_text()) for file in self.state.glob("foretrace-*")]


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Engine:
    made = Engine(tmp_path)
    for tool in ("sh", "unshare"):
        if path := shutil.which(tool):
            (made.programs / tool).symlink_to(path)
    monkeypatch.setenv("PATH", str(made.programs))  # a real engine is not to be found
    monkeypatch.setenv("ENGINE_STATE", str(made.state))
    monkeypatch.delenv(docker.IMAGE_VARIABLE, raising=False)
    return made


@pytest.fixture
def containers(engine: Engine) -> Engine:
    spaces = ["--user", "--map-root-user", "--net", "--pid", "--mount", "--fork", "--mount-proc"]
    tools = "PATH=/usr/sbin:/usr/bin:/sbin:/bin; setpriv --version && chroot --version && mount --version"
    asked = [*spaces, "sh", "-c", tools]
    if not shutil.which("unshare") or subprocess.run(["unshare", *asked], capture_output=True, check=False).returncode:
        pytest.skip("no user namespaces here, of which the stand-in makes its containers")
    engine.install("docker")
    return engine


def use(work: Work, settings: SandboxSettings = SETTINGS) -> None:
    async def run() -> None:
        async with DockerSandbox(settings) as sandbox:
            await work(sandbox)

    asyncio.run(run())


def refusal(settings: SandboxSettings = SETTINGS) -> str:
    async def start() -> None:
        sandbox = DockerSandbox(settings)
        try:
            await sandbox.start()
        finally:
            await sandbox.close()

    with pytest.raises(SandboxError) as found:
        asyncio.run(start())
    return str(found.value)


def gone(pids: list[int], within_s: float = 5.0) -> bool:
    return until(lambda: not any(map(alive, pids)), within_s)


def test_the_command_confines_and_mounts_nothing() -> None:
    limits = Limits(memory_mb=512, scratch_mb=16, processes=64)
    command = docker.make_start_command("docker", "python:3.11-slim", limits)
    command += docker.make_server_command("python3", 5)
    image = command.index("python:3.11-slim")
    options, inside = " ".join(command[:image]), command[image + 1 :]
    for wanted in (
        "docker run --rm --interactive",
        "--network none",
        "--read-only",
        "--cap-drop ALL",
        "--security-opt no-new-privileges",
        "--user 65534:65534",
        "--ipc none",
        "--pull never",
        "--pids-limit 80",
        "--memory 784m --memory-swap 784m",
        "--tmpfs /foretrace-box:rw,noexec,nosuid,nodev,mode=1777,size=16m",
        "--name {name}",
        "--entrypoint /usr/bin/env",
    ):
        assert wanted in options
    for unwanted in ("--volume", "-v ", "--mount", "--privileged", "--env", "--read-only-tmpfs", "--tty"):
        assert unwanted not in options
    assert inside[0] == "-i"  # no variable of the engine
    assert inside[inside.index("python3") - 1].count("=") == 1


def test_only_the_fork_servers_own_modules_go_along() -> None:
    with zipfile.ZipFile(io.BytesIO(docker.pack_own_modules())) as archive:
        names = archive.namelist()
    others = {"foretrace/__init__.py", "foretrace/sandbox/__init__.py"}
    assert "foretrace/sandbox/inside/fork_server.py" in names
    assert all(name.startswith("foretrace/sandbox/inside/") for name in set(names) - others)


def test_an_engine_that_does_not_answer_and_one_that_does(containers: Engine) -> None:
    containers.fail("no service")
    assert "docker does not answer (Cannot connect to the Docker daemon" in refusal()
    containers.fail("no image")
    assert f"docker has no image {IMAGE}: docker pull {IMAGE}, or name another in {docker.IMAGE_VARIABLE}" in refusal()
    containers.fail("no service")
    containers.install("podman")

    async def work(sandbox: DockerSandbox) -> None:
        assert (await sandbox.run("print(1)")).stdout == "1\n"

    use(work)
    assert [line[0] for line in containers.log if line[1] == "run"] == ["podman"]


def test_an_engine_that_isolates_nothing_is_found_out(containers: Engine) -> None:
    containers.fail("open")
    said = refusal()
    assert "does not isolate" in said
    assert "filesystem_read" in said
    assert "namespaces (not of its own: net, ipc)" in said
    assert gone(containers.containers())


def test_an_engine_that_makes_no_container_cannot_start(containers: Engine) -> None:
    containers.fail("no-container")
    assert "No such file or directory: '/foretrace-box" in refusal()


def test_a_folder_that_is_no_containers_is_never_emptied(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.write_text("x")
    modules = docker.pack_own_modules()
    inside = [*docker.make_server_command(sys.executable, len(modules))[:-1], str(tmp_path / "foretrace.zip")]
    done = subprocess.run(inside, input=modules, capture_output=True, timeout=20, check=False)
    assert done.returncode == 1
    assert done.stderr.decode().strip() == f"{tmp_path} is not a fresh folder of a container"
    assert kept.read_text() == "x"


def test_code_sees_no_variable_of_the_engine_nor_the_modules(containers: Engine) -> None:
    program = """
        import ctypes, os, sys
        block = b""
        with open("/proc/self/maps") as maps:  # the variables as the kernel laid them out at the start
            for line in maps:
                if "[stack]" in line:
                    start, end = (int(part, 16) for part in line.split()[0].split("-"))
                    block = ctypes.string_at(start, end - start)
        print(sorted(os.environ), b"LANG=" in block, b"secret" in block, os.listdir("."))
        print([path for path in sys.path if "foretrace" in path])
        open("left", "w").write("x")
        for kind in ("environ", "mem", "cmdline"):
            try:
                print(kind, len(open(f"/proc/1/{kind}", "rb").read(1)))
            except OSError as error:
                print(kind, error.errno)
        """

    async def work(sandbox: DockerSandbox) -> None:
        result = await sandbox.run(textwrap.dedent(program))
        lines = result.stdout.splitlines()
        assert lines[0] == f"{sorted(ENVIRONMENT)} True False []"
        assert lines[1] == "[]"
        assert lines[2] == "environ 13"
        assert lines[3] == "mem 13"
        assert (await sandbox.run("import os; print(os.listdir('.'))")).stdout == "[]\n"

    use(work)


def test_a_container_that_dies_is_removed_and_replaced(containers: Engine) -> None:
    async def work(sandbox: DockerSandbox) -> None:
        first = containers.containers()
        running = asyncio.create_task(sandbox.run("import time; time.sleep(3)"))
        await asyncio.sleep(0.3)
        for pid in first:
            os.kill(pid, signal.SIGKILL)
        assert (await running).ending == "lost"
        assert (await sandbox.run("print(3)")).stdout == "3\n"
        assert len(containers.containers()) == 2

    use(work)
    started = {line[line.index("--name") + 1] for line in containers.log if line[1] == "run"}
    assert {line[-1] for line in containers.log if line[1] == "rm"} == started
    assert gone(containers.containers())


def test_containers_end_with_a_parent_that_is_killed(containers: Engine) -> None:
    program = f"""
        import asyncio
        from foretrace.sandbox.base import SandboxSettings
        from foretrace.sandbox.docker import DockerSandbox

        async def main():
            async with DockerSandbox(SandboxSettings(workers=2, interpreter={PYTHON!r})) as sandbox:
                print("up", flush=True)
                await sandbox.run("while True: pass")

        asyncio.run(main())
        """
    parent = subprocess.Popen([sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    assert parent.stdout.readline() == b"up\n"
    time.sleep(0.2)
    pids = containers.containers()
    assert pids
    assert all(alive(pid) for pid in pids)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert gone(pids, 2.0)
    assert [line for line in containers.log if line[1] == "rm"] == []  # their input ended, and so did they
