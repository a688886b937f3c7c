"""llama.cpp's `llama-server`, made once from a source package and kept.

    python tests/integrations/llama_build.py            prints the folder

Everything comes from the package registry: the source of llama.cpp inside of llama-cpp-python's, cmake and ninja as
wheels. It takes some minutes of two cores once, and lies outside of the checkout: in $FORETRACE_TEST_CACHE, or else in
`foretrace-tests` of $XDG_CACHE_HOME or ~/.cache, under its version.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
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
    """The program llama-server, beside the libraries that it needs; made if it is not there, by one process at a time.

    Raises:
        RuntimeError: a step failed; with the end of what it said.
    """
    server = server_path()
    folder = server.parent.parent
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not server.is_file():
            say(f"llama-server is not in {folder}: it is made now, once (about 12 minutes of one core)")
            with tempfile.TemporaryDirectory(dir=folder) as work:
                _compile(Path(work), say)
                (Path(work) / "build" / "bin").rename(server.parent)
            say("llama-server was made")
    return server


def server_path() -> Path:
    """Where the program is kept."""
    return cache_folder() / f"llama-cpp-python-{VERSION}-{os.uname().machine}" / "bin" / "llama-server"


def _compile(work: Path, say: Say) -> None:
    """Get the source and the tools, and make the program in `build/bin`."""
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    tools = work / "tools"
    _run([*pip, "install", "--target", str(tools), *TOOLS], say)
    say(f"getting the source of llama-cpp-python {VERSION} (77 MB)")
    package = ["--no-deps", "--no-binary", "llama-cpp-python", f"llama-cpp-python=={VERSION}"]
    _run([*pip, "download", "-d", str(work), *package], say)
    name = f"llama_cpp_python-{VERSION}"
    with tarfile.open(work / f"{name}.tar.gz") as packed:
        packed.extractall(work, filter="data")
    path = f"{tools / 'bin'}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "PYTHONPATH": str(tools), "NINJA_STATUS": "[%f/%t] "}
    source, target = str(work / name / "vendor" / "llama.cpp"), str(work / "build")
    options = [f"-D{name}={value}" for name, value in SETTINGS.items()]
    _run(["cmake", "-S", source, "-B", target, "-G", "Ninja", *options], say, environment)
    jobs = str(min(os.cpu_count() or 1, 16))
    _run(["ninja", "-C", target, "-j", jobs, "llama-server"], say, environment)


def _run(command: list[str], say: Say, environment: dict[str, str] | None = None) -> None:
    """Run a step; of what ninja says, a line is said now and then."""
    last: list[str] = []
    said = time.monotonic()
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            last = [*last[-40:], line]
            if line.startswith("[") and time.monotonic() - said >= _SAY_EVERY_S:
                said = time.monotonic()
                say(line.strip()[:100])
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(command[:4])} failed:\n{''.join(last)}")


if __name__ == "__main__":
    if why := missing_compiler():
        raise SystemExit(why)
    print(build(lambda line: print(line, file=sys.stderr)).parent.parent)
