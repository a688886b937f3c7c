"""Python code for a script of its own: jobs in forked children, which are killed at their n-th write."""

from __future__ import annotations

import textwrap

KILLING = textwrap.dedent("""
    import json, os, pathlib, shutil, signal, sys
    from foretrace.core.errors import StoreError
    from foretrace.core.store import TraceStore, TraceWriter

    def child(job):
        pid = os.fork()
        if pid == 0:
            try:
                job()
            except StoreError as error:
                print(error, flush=True)
                os._exit(1)
            except BaseException as error:
                print(repr(error), flush=True)
                os._exit(2)
            os._exit(0)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def bomb(at, writes=True):
        count = 0
        def wrap(function):
            def wrapped(*args, **kwargs):
                nonlocal count
                count += 1
                if count == at:
                    os.kill(os.getpid(), signal.SIGKILL)
                return function(*args, **kwargs)
            return wrapped
        class Halves:  # a write, too, is killed in the middle
            def __init__(self, file):
                self.file, self.half = file, wrap(file.write)
            def write(self, data):
                data = bytes(data)
                self.file.write(data[: len(data) // 2])
                self.file.flush()
                self.half(data[len(data) // 2 :])
            def __enter__(self):
                return self
            def __exit__(self, *error):
                self.file.close()
            def __getattr__(self, name):
                return getattr(self.file, name)
        opened = pathlib.Path.open
        def halved(path, mode="r", *args, **kwargs):
            file = opened(path, mode, *args, **kwargs)
            return Halves(file) if mode == "ab" else file
        if writes:
            pathlib.Path.open = halved
        os.fsync = wrap(os.fsync)
        pathlib.Path.replace = wrap(pathlib.Path.replace)
        pathlib.Path.unlink = wrap(pathlib.Path.unlink)

    def listed(out):
        paths = ["manifest.json", *(s.path for s in TraceStore(out).manifest.segments)]
        return {p: (out / p).read_bytes() for p in paths}
""")
