"""The fork server's main program: prepare what children share, then fork a fresh child for each run.

The server never runs untrusted code itself.
"""

from __future__ import annotations

import _socket
import contextlib
import errno
import gc
import json
import linecache
import os
import signal
import sys
from typing import Any, NoReturn

from foretrace.sandbox.inside import answer, jail, syscalls, test_runner, together
from foretrace.sandbox.inside.child import Confinement, become_user, drop_unused_limits, make_rlimits
from foretrace.sandbox.inside.parent_connection import ParentConnection, move_descriptor_up, read_input, remove_contents
from foretrace.sandbox.inside.recorder import Recorder
from foretrace.sandbox.inside.seccomp import SeccompFilter, make_child_program, make_server_program
from foretrace.sandbox.inside.session import serve_session
from foretrace.sandbox.inside.syscalls import CallError
from foretrace.sandbox.inside.watch_child import serve_run
from foretrace.sandbox.inside.wire import ANSWER_MODULE, FAILED, READY, RUN, STDIN, FrameChannel, pack_frame

_MODULES = """
collections typing dataclasses enum re math functools itertools heapq bisect string copy datetime operator unittest
"""
"""The modules that programs import most; with this they take no time in a run."""
_PRINT_FOLDERS = "import sysconfig; print(*map(sysconfig.get_path, ('purelib', 'platlib')), sep='\\n')"
_REHEARSALS = 20
_LINE_BUFFERED_WRITES = 4000
"""Writes to stdout after which output is no longer flushed per line; `print` makes two or more writes per line."""


def make_confinement(configuration: dict[str, Any], scratch: jail.ScratchFolder) -> Confinement:
    """Import the packages to preload, enter the jail, and prepare the confinement of children."""
    confinement = Confinement(int(configuration["level"]))
    confinement.scratch = jail.SCRATCH if confinement.level == 3 else configuration["scratch"] or "/"
    preloaded = preload_packages(configuration["preload"])
    roots, holes, packages = jail.find_paths(preloaded)
    writable = ["/dev/null"]
    if confinement.level == 3:
        jail.enter_root(roots, holes, packages)
        os.environ["TMPDIR"] = os.environ["HOME"] = jail.SCRATCH
        scratch.renew(16)  # so that it fails now if it cannot be done
        readable, listable, writable = ["/"], [], ["/dev/null", jail.BOX]
    else:
        readable, listable = jail.carve_holes(roots, holes)
        readable += packages
    if confinement.level:
        confinement.filter = SeccompFilter(make_child_program(metadata=confinement.level == 3, forks=False))
    if confinement.level == 3:
        confinement.session_filter = SeccompFilter(make_child_program(metadata=True, forks=True), notifies=True)
        confinement.user = jail.INNER_UID if os.getuid() != jail.INNER_UID else None  # if both are mapped
    elif sys.platform == "linux" and os.getuid() == 0 and can_drop_user():
        confinement.user = jail.NOBODY
        if confinement.level < 2:
            os.chown(confinement.scratch, jail.NOBODY, jail.NOBODY)
    has_landlock = confinement.level >= 2
    confinement.prepare(
        move_descriptor_up(jail.make_landlock_rules(readable, listable, writable)) if has_landlock else None
    )
    return confinement


def can_drop_user() -> bool:
    """Whether another user could still read the interpreter's library (not if it is in a private home folder)."""
    probe = os.fork()
    if probe == 0:
        try:
            become_user(jail.NOBODY)
            with open(os.__file__, "rb") as file:
                file.read(1)
            os._exit(0)
        except BaseException:
            os._exit(1)
    return os.waitpid(probe, 0)[1] == 0


def main_in_container(archive: str) -> None:
    """Serve as the first process of a container. The `archive` from which these modules came is removed, so that code
    does not see it."""
    folder = os.path.dirname(archive)
    if not os.path.ismount(folder) or os.listdir(folder) != [os.path.basename(archive)]:
        sys.exit(f"{folder} is not a fresh folder of a container")  # it would be emptied after each run
    sys.path.remove(archive)
    sys.path_importer_cache.pop(archive, None)
    os.unlink(archive)
    main()


def main() -> None:
    os.environ.pop("LD_BIND_NOW", None)
    os.set_inheritable(0, False)
    parent = ParentConnection(move_descriptor_up(os.dup(0)), move_descriptor_up(os.dup(1)))
    for target in (0, 1, 3):
        null = os.open("/dev/null", os.O_RDWR)
        os.dup2(null, target)
    configuration = json.loads(parent.receive()[1])
    parent.scratch = configuration["scratch"]
    try:
        if configuration["makes_scratch"]:
            os.mkdir(configuration["scratch"], 0o700)
        level = int(configuration["level"])
        if level == 3:
            enter_namespaces()
        if sys.platform == "linux":
            # Without a namespace that ends all processes, the fork server must outlive its parent to kill them.
            wanted = signal.SIGTERM if level < 2 else signal.SIGKILL
            if level < 2:
                signal.signal(signal.SIGTERM, lambda *_: parent.exit())
            syscalls.call("prctl", syscalls.PR_SET_PDEATHSIG, int(wanted), 0, 0, 0)
            syscalls.call("prctl", syscalls.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        if level and not parent.wiped:
            raise CallError("madvise", errno.EINVAL)  # else a run could find data of earlier runs in its memory
        warm_up()
        spaces: dict[str, int] = {}
        """Inode numbers of this process's namespaces, which the parent compares with its own."""
        with contextlib.suppress(OSError):
            spaces = {kind: os.stat(f"/proc/self/ns/{kind}").st_ino for kind in os.listdir("/proc/self/ns")}
        scratch = jail.ScratchFolder()
        confinement = make_confinement(configuration, scratch)
        if sys.platform == "linux":
            syscalls.call("prctl", syscalls.PR_SET_DUMPABLE, 0, 0, 0, 0)
        drop_unused_limits()
        forget_own_modules()
        gc.collect()
        gc.freeze()
        if level:  # the allowlist of system calls, for this process and all its children
            syscalls.call("prctl", syscalls.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
            SeccompFilter(make_server_program(metadata=level == 3)).install(0)
    except BaseException as error:
        call = error.call if isinstance(error, CallError) else ""
        parent.send_json(FAILED, {"call": call, "message": f"{type(error).__name__}: {error}"})
        os._exit(1)
    parent.send_json(READY, {"spaces": spaces})
    try:
        serve_requests(parent, confinement, scratch)
    finally:
        parent.exit()  # even an error here must not leave processes or files behind


def serve_requests(parent: ParentConnection, confinement: Confinement, scratch: jail.ScratchFolder) -> NoReturn:
    stdin: int | None = None
    known, request = b"", {}
    while True:
        if not parent.forward_stream(None):  # bytes for a run that has already ended
            parent.fill()
            continue
        kind, body = parent.receive()
        if kind == STDIN:
            stdin = read_input(parent)
        if kind != RUN:
            continue
        if body != known:  # rare; touching less memory keeps forks cheap
            known, request = body, json.loads(body)
            request["rlimits"] = make_rlimits(request["limits"], confinement)
        if confinement.level == 3:
            scratch.renew(int(request["limits"]["scratch_mb"]))
        if request["mode"] == "session":
            serve_session(parent, confinement, request)
        else:
            serve_run(parent, confinement, request, stdin)
            stdin = None
        if confinement.level < 2 and confinement.scratch != "/":
            with contextlib.suppress(OSError):  # code may have removed the folder itself
                os.mkdir(confinement.scratch, 0o700)
            remove_contents(confinement.scratch)


def enter_namespaces() -> None:
    """Become the first process of a new pid namespace; the process outside waits for it, and ends when it ends."""
    syscalls.call("prctl", syscalls.PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    jail.unshare()
    inner = os.fork()
    if inner:
        os.closerange(10, 64)
        _, status = os.waitpid(inner, 0)
        os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def forget_own_modules() -> None:
    """Make this program's own modules impossible to import for children."""
    for name in [n for n in sys.modules if n == "foretrace" or n.startswith("foretrace.")]:
        del sys.modules[name]
    own = sys.argv[1] if len(sys.argv) > 1 else None
    sys.path[:] = [p for p in sys.path if p != own]
    sys.argv = [""]


def preload_packages(modules: list[str]) -> list[str]:
    """Import installed packages, and return the paths of all packages that this loaded."""
    if not modules:
        return []
    import subprocess

    # The folders of installed packages, from a fresh process that has run its `site` module.
    command = (sys.executable, "-I", "-c", _PRINT_FOLDERS)
    printed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False).stdout
    folders = list(filter(os.path.isdir, dict.fromkeys(printed.split("\n"))))
    before = set(sys.modules)
    sys.path += folders
    for name in modules:
        __import__(name)
    tops = {name.split(".")[0] for name in set(sys.modules) - before}
    found: set[str] = set()
    for folder in folders:
        for entry in os.listdir(folder):
            if entry.split(".")[0] in tops:
                found.add(os.path.join(folder, entry))
    return sorted(found)


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
    for _ in range(_REHEARSALS):
        rehearse()
    sys.modules["random"].seed(0)
    together.snapshot_own_code()


def rehearse() -> None:
    """Answer a call and run a test as children do: Python adapts bytecode that has run a few times, and children that
    share the adapted bytecode write to less memory."""
    main, argv = sys.modules["__main__"], sys.argv
    ours, theirs = _socket.socketpair()
    part = {"source": "", "bytecode": "", "code": "", "lacks": []}
    test = part | {"source": "__check__(0, f(1))", "check": None, "functions": [], "classes": []}
    request = {
        "code": "def f(x):\n    return [x, 'a', 1.5, (x,)]\n",
        "calls": [["f", [1], {}]],
        "entry_point": "f",
        "names": ["f"],
        "facts": [[True, False, False]],
        "helpers": part,
        "setup": part,
        "tests": [test],
        "reply_kb": 64,
    }
    ours.send(pack_frame(request))
    channel = FrameChannel(theirs.fileno())
    answer.serve(channel, channel.receive() or {})
    recorder = Recorder(request, together=True)
    names = test_runner.make_names(request, vars(sys.modules[ANSWER_MODULE]))
    test_runner.run_tests(request, names, recorder, lambda *_: channel.send(recorder.take()))
    ours.close()
    theirs.close()
    linecache.clearcache()
    del sys.modules[ANSWER_MODULE]
    sys.modules["__main__"], sys.argv = main, argv


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
