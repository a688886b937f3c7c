"""The fork server: a warm process that never runs untrusted code itself, and forks a fresh child for each run."""

from __future__ import annotations

import contextlib
import errno
import gc
import json
import os
import shutil
import signal
import sys
from typing import Any, NoReturn

from foretrace.sandbox.inside import pinned_pages, run
from foretrace.sandbox.inside.child import Guards, become, limits_of
from foretrace.sandbox.inside.confine import jail, landlock, syscalls
from foretrace.sandbox.inside.confine.seccomp import Filter, program, server_program
from foretrace.sandbox.inside.confine.syscalls import CallError
from foretrace.sandbox.inside.control import Control, move_up, read_input
from foretrace.sandbox.inside.preload import pin, warm
from foretrace.sandbox.inside.roles import session


def prepare(configuration: dict[str, Any], scratch: jail.Scratch) -> Guards:
    """Import what is to be warm, enter the jail, and get the guards of children ready.

    Raises:
        CallError: a call that the level needs was refused.
    """
    guards = Guards(int(configuration["level"]))
    guards.scratch = jail.SCRATCH if guards.level == 3 else configuration["scratch"] or "/"
    preloaded = preload(configuration["preload"], configuration["path"])
    roots, holes, packages = jail.places(preloaded)
    writable = ["/dev/null"]
    if guards.level == 3:
        jail.build(roots, holes, packages)
        os.environ["TMPDIR"] = os.environ["HOME"] = jail.SCRATCH
        scratch.fresh(16)  # proves now that it can be done
        readable, listed, writable = ["/"], [], ["/dev/null", jail.BOX]
    else:
        readable, listed = jail.carved(roots, holes)
        readable += packages
    if guards.level:
        guards.filter = Filter(program(metadata=guards.level == 3, forks=False))
    if guards.level == 3:
        guards.session_filter = Filter(program(metadata=True, forks=True), asks=True)
        guards.user = jail.INNER_UID if jail.two_users() else None
    elif sys.platform == "linux" and os.getuid() == 0 and can_drop_user():
        guards.user = jail.NOBODY
        if guards.level < 2:
            os.chown(guards.scratch, jail.NOBODY, jail.NOBODY)
    guards.prepare(move_up(landlock.ruleset(readable, listed, writable)) if guards.level >= 2 else None)
    return guards


def filter_self(level: int) -> None:
    """Put the list of allowed system calls in force, for this process and all its children."""
    syscalls.call("prctl", syscalls.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    Filter(server_program(metadata=level == 3)).install(0)


def can_drop_user() -> bool:
    """Whether another user could still read the interpreter's library (not where it lies in a private home)."""
    probe = os.fork()
    if probe == 0:
        try:
            become(jail.NOBODY)
            with open(os.__file__, "rb") as file:
                file.read(1)
            os._exit(0)
        except BaseException:
            os._exit(1)
    return os.waitpid(probe, 0)[1] == 0


def preload(modules: list[str], path: list[str]) -> list[str]:
    """Import modules from the given folders, and return the paths of the packages that came with them."""
    if not modules:
        return []
    before = set(sys.modules)
    sys.path += path
    for name in modules:
        __import__(name)
    folders = [folder for folder in path if os.path.isdir(folder)]
    sys.path[:] = [p for p in sys.path if p not in path] + folders
    tops = {name.split(".")[0] for name in set(sys.modules) - before}
    found: set[str] = set()
    for folder in folders:
        for entry in os.listdir(folder):
            stem = entry.split(".")[0]
            if stem in tops or (entry.endswith(".libs") and stem in tops):
                found.add(os.path.join(folder, entry))
    return sorted(found)


def main() -> None:
    """Serve until the parent goes away."""
    os.set_inheritable(0, False)
    control = Control(move_up(os.dup(0)))
    for target in (0, 1, 3):
        null = os.open("/dev/null", os.O_RDWR)
        os.dup2(null, target)
    _, body = control.receive()
    configuration = json.loads(body)
    control.scratch = configuration["scratch"]
    ring = pinned_pages.ring()
    try:
        if configuration["makes_scratch"]:
            os.mkdir(configuration["scratch"], 0o700)
        if configuration["level"] == 3:
            enter_namespaces()
        if sys.platform == "linux":
            # Where no namespace takes its processes along, the fork server must outlive its parent to end them.
            weak = configuration["level"] < 2
            if weak:
                signal.signal(signal.SIGTERM, lambda *_: control.leave())
            wanted = signal.SIGTERM if weak else signal.SIGKILL
            syscalls.call("prctl", syscalls.PR_SET_PDEATHSIG, int(wanted), 0, 0, 0)
            syscalls.call("prctl", syscalls.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        if configuration["level"] and not control.wiped:
            raise CallError("madvise", errno.EINVAL)  # a run would find in its memory what earlier ones were told
        warm()
        spaces, pages = namespaces(), pinned_pages.Pages()
        scratch = jail.Scratch()
        guards = prepare(configuration, scratch)
        if sys.platform == "linux":
            syscalls.call("prctl", syscalls.PR_SET_DUMPABLE, 0, 0, 0, 0)
        forget(configuration["path"])
        pinned = pin(ring, pages, guards)
        pages.close()
        if guards.level:
            filter_self(guards.level)
    except BaseException as error:
        call = error.call if isinstance(error, CallError) else ""
        control.say(b"F", {"call": call, "message": f"{type(error).__name__}: {error}"})
        os._exit(1)
    python = sys.version.split()[0]
    control.say(b"A", {"python": python, "user": guards.user, "spaces": spaces, "pinned": pinned})
    try:
        serve(control, guards, scratch)
    finally:
        control.leave()  # a fault here must not leave processes and files behind either


def serve(control: Control, guards: Guards, scratch: jail.Scratch) -> NoReturn:
    """Serve one run or session after the other."""
    stdin: int | None = None
    known, request = b"", {}
    while True:
        if not control.pump(None):  # for a run that has ended already
            control.fill()
            continue
        kind, body = control.receive()
        if kind == b"I":
            stdin = read_input(control)
        if kind != b"R":
            continue
        if body != known:  # hardly ever: less to do is less memory that a fork makes dear
            known, request = body, json.loads(body)
            request["most"] = limits_of(request["limits"], guards)
        if guards.level == 3:
            scratch.fresh(int(request["limits"]["scratch_mb"]))
        if request["mode"] == "session":
            session.serve(control, guards, request)
        else:
            run.serve(control, guards, request, stdin)
            stdin = None
        if guards.level < 2:
            empty(guards.scratch)


def namespaces() -> dict[str, int]:
    """Inode numbers of this process' namespaces, for the parent to compare with its own."""
    try:
        return {kind: os.stat(f"/proc/self/ns/{kind}").st_ino for kind in os.listdir("/proc/self/ns")}
    except OSError:
        return {}


def enter_namespaces() -> None:
    """Become the first process of a new pid namespace; the process outside of it waits, and ends when it ends."""
    syscalls.call("prctl", syscalls.PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    jail.unshare()
    inner = os.fork()
    if inner:
        os.closerange(10, 64)
        _, status = os.waitpid(inner, 0)
        os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def empty(folder: str) -> None:
    """Remove what a run left in a scratch folder of the host."""
    if folder == "/":
        return
    with contextlib.suppress(OSError):  # code may have taken the folder itself away
        os.mkdir(folder, 0o700)
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            os.unlink(path)


def forget(path: list[str]) -> None:
    """Take this program's own modules, and the way to them, out of what children can import."""
    for name in [n for n in sys.modules if n == "foretrace" or n.startswith("foretrace.")]:
        del sys.modules[name]
    own = sys.argv[1] if len(sys.argv) > 1 else None
    sys.path[:] = [p for p in sys.path if p != own] + [p for p in path if os.path.isdir(p) and p not in sys.path]
    sys.argv = [""]
    gc.collect()
    gc.freeze()
