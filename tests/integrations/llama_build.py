"""llama.cpp's `llama-server`, made once from a source package and kept.

    python tests/integrations/llama_build.py            prints the folder

Everything comes from the package registry: the source of llama.cpp inside of llama-cpp-python's, cmake and ninja as
wheels. It takes some minutes of two cores once, and lies outside of the checkout: in $FORETRACE_TEST_CACHE, or else in
`foretrace-tests` of $XDG_CACHE_HOME or ~/.cache, under its version.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

VERSION = "0.3.36"
"""Of llama-cpp-python; llama.cpp calls its own version 0.5.0-dev."""
TOOLS = ("cmake==4.4.4", "ninja==1.13.2")
SETTINGS = {
    "CMAKE_BUILD_TYPE": "Release",
    # The model is tiny, so the compiler's time is what counts.
    "CMAKE_C_FLAGS_RELEASE": "-O1 -DNDEBUG",
    "CMAKE_CXX_FLAGS_RELEASE": "-O1 -DNDEBUG",
    # The folder of the program is moved when it is done, and may serve another machine of the kind.
    "CMAKE_BUILD_WITH_INSTALL_RPATH": "ON",
    "CMAKE_INSTALL_RPATH": "$ORIGIN",
    "GGML_NATIVE": "OFF",
    "GGML_CCACHE": "OFF",
    "LLAMA_BUILD_TESTS": "OFF",
    "LLAMA_BUILD_EXAMPLES": "OFF",
    "LLAMA_BUILD_UI": "OFF",
    "LLAMA_USE_PREBUILT_UI": "OFF",  # else a model hub is asked for web pages
    "LLAMA_OPENSSL": "OFF",
}
_SAY_EVERY_S = 10.0
Say = Callable[[str], None]


def cache_folder() -> Path:
    """Where things that are made once are kept."""
    if given := os.environ.get("FORETRACE_TEST_CACHE"):
        return Path(given).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser().absolute() / "foretrace-tests"


def missing_compiler() -> str:
    """Why the server cannot be made here; empty where it can, or where it is there."""
    if server_path().is_file():
        return ""
    for variable, usual in (("CC", "cc"), ("CXX", "c++")):
        name = (os.environ.get(variable) or usual).split()[0]
        if shutil.which(name) is None:
            return f"llama-server cannot be compiled: there is no compiler {name} (on Debian: apt install g++)"
    return ""


def build(say: Say) -> Path:
    """The program llama-server, beside the libraries that it needs; made if it is not there. An interrupted build goes
    on where it stopped.

    Raises:
        RuntimeError: a step failed; with the end of what it said.
    """
    server = server_path()
    folder = server.parent.parent
    with _alone(folder):
        if server.is_file():
            return server
        say(f"llama-server is not in {folder}: it is made now, once (about 12 minutes of one core)")
        begun = time.monotonic()
        source = _source(folder, say)
        _compile(folder, source / "vendor" / "llama.cpp", say)
        (folder / "build" / "bin").rename(folder / "bin")
        for rest in (folder / "build", folder / "tools", source):
            shutil.rmtree(rest)
        say(f"llama-server was made in {time.monotonic() - begun:.0f} s")
    return server


def server_path() -> Path:
    """Where the program is kept."""
    return cache_folder() / f"llama-cpp-python-{VERSION}-{os.uname().machine}" / "bin" / "llama-server"


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One builder at a time."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _source(folder: Path, say: Say) -> Path:
    source = folder / f"llama_cpp_python-{VERSION}"
    if source.is_dir():
        return source
    say(f"getting the source of llama-cpp-python {VERSION} (77 MB)")
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    _run([*pip, "--no-deps", "--no-binary", "llama-cpp-python", "-d", str(folder), f"llama-cpp-python=={VERSION}"])
    archive = folder / f"llama_cpp_python-{VERSION}.tar.gz"
    half = folder / "unpacked"
    with tarfile.open(archive) as packed:
        packed.extractall(half, filter="data")
    (half / source.name).rename(source)
    half.rmdir()
    archive.unlink()
    return source


def _compile(folder: Path, source: Path, say: Say) -> None:
    tools = _venv(folder / "tools", TOOLS, say).parent
    environment = os.environ | {"PATH": f"{tools}{os.pathsep}{os.environ['PATH']}", "NINJA_STATUS": "[%f/%t] "}
    target = str(folder / "build")
    options = [f"-D{name}={value}" for name, value in SETTINGS.items()]
    _run(["cmake", "-S", str(source), "-B", target, "-G", "Ninja", *options], env=environment)
    jobs = str(min(os.cpu_count() or 1, 16))
    said = 0.0
    command = ["ninja", "-C", target, "-j", jobs, "llama-server"]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        last: list[str] = []
        for line in process.stdout:
            last = [*last[-40:], line]
            now = time.monotonic()
            if (step := re.match(r"\[(\d+)/(\d+)\]", line)) and now - said >= _SAY_EVERY_S:
                said = now
                say(f"compiling llama-server: {step[1]} of {step[2]}")
    if process.returncode != 0:
        raise RuntimeError(f"llama-server cannot be compiled:\n{''.join(last)}")


def _venv(folder: Path, packages: tuple[str, ...], say: Say) -> Path:
    """The Python of a virtual environment with these packages."""
    python, done = folder / "bin" / "python", folder / "done"
    if done.is_file() and done.read_text() == repr(packages):
        return python
    say(f"getting {', '.join(packages)}")
    _run([sys.executable, "-m", "venv", "--clear", str(folder)])
    _run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages])
    done.write_text(repr(packages))
    return python


def _run(command: list[str], env: dict[str, str] | None = None) -> None:
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command[:4])} failed:\n{(done.stdout + done.stderr)[-4000:]}")


if __name__ == "__main__":
    if why := missing_compiler():
        raise SystemExit(why)
    print(build(lambda line: print(line, file=sys.stderr)).parent.parent)
