"""What `multiprocessing` is to code that may start no processes: its processes are threads, with the same limits."""

from __future__ import annotations

import importlib
import types
from typing import Any

_NAMES = ("multiprocessing", "ProcessPoolExecutor")


def run_processes_as_threads(source: str) -> None:
    """Have the pools, processes and managers of `multiprocessing`, and `ProcessPoolExecutor`, work with threads, where
    the source text names one of them. Locks, queues and shared values work as they are."""
    if not any(name in source for name in _NAMES):
        return
    import concurrent.futures
    import concurrent.futures.thread
    import multiprocessing
    import multiprocessing.context
    import multiprocessing.dummy
    import multiprocessing.pool

    process = _make_process_class(multiprocessing.dummy.DummyProcess)
    plain_pool: Any = multiprocessing.pool.Pool

    class Pool(multiprocessing.pool.ThreadPool):
        # The functions of the module call these by the name `Pool`, which is this class from now on.
        _wait_for_updates = staticmethod(plain_pool._wait_for_updates)
        _get_worker_sentinels = staticmethod(plain_pool._get_worker_sentinels)

        def __init__(
            self,
            processes: int | None = None,
            initializer: Any = None,
            initargs: Any = (),
            maxtasksperchild: int | None = None,
            context: Any = None,
        ) -> None:
            plain_pool.__init__(self, processes, initializer, initargs)  # the base's own would look for this class

    def make_pool(self: Any, *args: Any, **named: Any) -> Any:
        return Pool(*args, **named)

    class ProcessPoolExecutor(concurrent.futures.thread.ThreadPoolExecutor):
        def __init__(
            self,
            max_workers: int | None = None,
            mp_context: Any = None,
            initializer: Any = None,
            initargs: tuple[Any, ...] = (),
            *,
            max_tasks_per_child: int | None = None,
        ) -> None:
            super().__init__(max_workers, "", initializer, initargs)

    contexts: Any = multiprocessing.context
    for context in {contexts.BaseContext, *contexts.BaseContext.__subclasses__()}:
        context.Pool = make_pool
        context.Manager = lambda self: _Manager()
        context.Process = process
    module: Any = multiprocessing
    module.Pool = types.MethodType(make_pool, contexts._default_context)
    module.Manager, module.Process = _Manager, process
    module.process.BaseProcess = process
    module.pool.Pool = Pool
    for name in ("concurrent.futures", "concurrent.futures.process"):
        importlib.import_module(name).__dict__["ProcessPoolExecutor"] = ProcessPoolExecutor


def _make_process_class(base: Any) -> Any:
    class Process(base):
        """A thread that is used as a process."""

        def __init__(
            self,
            group: None = None,
            target: Any = None,
            name: str | None = None,
            args: Any = (),
            kwargs: Any = None,
            *,
            daemon: bool | None = None,
        ) -> None:
            super().__init__(group, target, name, tuple(args), kwargs or {})
            self.daemon = bool(daemon)
            self._code: int | None = None
            self._ended = False

        def _bootstrap_inner(self) -> None:
            run, self.run = self.run, lambda: self._run_to_exit(run)
            super()._bootstrap_inner()

        def _run_to_exit(self, run: Any) -> None:
            self._code = 1
            try:
                run()
            except SystemExit as leaving:
                if self._ended:
                    self._code = -15  # as of SIGTERM
                    return
                self._code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
                return
            self._code = 0

        @property
        def exitcode(self) -> int | None:
            return None if self.is_alive() else self._code

        @property
        def pid(self) -> int | None:
            return self.native_id

        def terminate(self) -> None:
            """End it when it next runs Python code: a thread cannot be ended while it sleeps."""
            import ctypes

            if self.is_alive():
                self._ended = True
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(self.ident or 0), ctypes.py_object(SystemExit)
                )

        kill = terminate

        def close(self) -> None:
            if self.is_alive():
                raise ValueError("Cannot close a process while it is still running.")

    return Process


class _Manager:
    """Its values are those of this process."""

    def __init__(self) -> None:
        import multiprocessing.dummy

        self._made: Any = multiprocessing.dummy

    def __getattr__(self, name: str) -> Any:
        return getattr(self._made, name)

    def __enter__(self) -> _Manager:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def start(self) -> None:
        """As a manager's: there is no process to be started."""

    shutdown = start
