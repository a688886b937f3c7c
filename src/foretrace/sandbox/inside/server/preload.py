"""What the fork server does once to save time in each run: import modules and fill caches."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from foretrace.sandbox.inside.roles import together

_MODULES = """
collections typing dataclasses enum re math functools itertools heapq bisect string copy datetime operator unittest
"""
"""The modules that programs import most; with this they take no time in a run."""
_PRINT_FOLDERS = "import sysconfig; print(*map(sysconfig.get_path, ('purelib', 'platlib')), sep='\\n')"
_LINE_BUFFERED_WRITES = 4000
"""Writes to stdout after which output is no longer flushed per line; `print` makes two or more writes per line."""


def preload_packages(modules: list[str]) -> list[str]:
    """Import installed packages, and return the paths of all packages that this loaded."""
    if not modules:
        return []
    before = set(sys.modules)
    folders = [folder for folder in find_package_folders() if os.path.isdir(folder)]
    sys.path += folders
    for name in modules:
        __import__(name)
    tops = {name.split(".")[0] for name in set(sys.modules) - before}
    found: set[str] = set()
    for folder in folders:
        for entry in os.listdir(folder):
            stem = entry.split(".")[0]
            if stem in tops or (entry.endswith(".libs") and stem in tops):
                found.add(os.path.join(folder, entry))
    return sorted(found)


def find_package_folders() -> list[str]:
    """This interpreter's folders of installed packages, from a fresh process that has run its `site` module."""
    import subprocess

    command = (sys.executable, "-I", "-c", _PRINT_FOLDERS)
    return list(
        dict.fromkeys(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False).stdout.split("\n"))
    )


def warm_up() -> None:
    """Do once what every child does, so that children share the memory pages and caches."""
    import builtins
    import site  # without its start-up: only what it defines for scripts
    import traceback

    buffer_long_output(sys.stdout)
    for name, maker in (("exit", "setquit"), ("help", "sethelper")):
        if not hasattr(builtins, name):
            getattr(site, maker)()
    json.loads(json.dumps("é"))
    try:
        exec("1/0")
    except ZeroDivisionError as error:
        traceback.format_exception(type(error), error, error.__traceback__)
    for module in _MODULES.split():
        __import__(module)
    sys.modules["random"].seed(0)
    together.snapshot_own_code()


def buffer_long_output(stream: Any) -> None:
    """Make a stream flush each line, and after many writes only whole blocks, as plain Python does.

    What was printed before a hang or a crash is what the author of the code needs most. But flushing one line takes as
    long as a block of a hundred, so a correct program that prints a hundred thousand lines would run out of time.
    """
    stream.reconfigure(line_buffering=True)
    write, left = stream.write, _LINE_BUFFERED_WRITES

    def count(text: str) -> int:
        nonlocal left
        left -= 1
        if left < 0:
            stream.__dict__.pop("write", None)
            stream.reconfigure(line_buffering=False)
        return write(text)

    stream.write = count
