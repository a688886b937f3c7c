"""The life of an Atropos environment: it waits within bounds, comes back to run-api, and closes what it opened."""
# pyright: reportMissingImports=false, reportUntypedBaseClass=false

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from foretrace.envs.messages import missing_library_error

try:
    import yaml
    from atroposlib.envs.base import BaseEnv
    from pydantic import ValidationError
    from tenacity import RetryError
except ImportError as missing:
    raise missing_library_error("atroposlib", "atropos", missing) from None

from foretrace.core.errors import ForetraceError, Setting, UsageError
from foretrace.envs.atropos.config import render_error

_log = logging.getLogger("foretrace.envs.atropos")


class ResilientEnv(BaseEnv):
    """Atropos' environment, whose runs end with one clear line where they cannot go on."""

    training = True
    """False in `evaluate`, which needs no logprobs."""
    fatal: ForetraceError | None = None
    """Why the run is to end."""

    async def close(self) -> None:
        """End what was opened. May be called twice."""

    async def env_manager(self) -> None:
        """`serve`."""
        await self._run(super().env_manager)

    async def process_manager(self) -> None:
        """`process`; W&B, which Atropos switches on here, is for `serve`."""
        self.config.use_wandb = False
        await self._run(super().process_manager)

    async def _run_evaluate(self) -> None:
        """`evaluate`."""
        self.training = self.config.use_wandb = False
        await self._run(super()._run_evaluate)

    async def _run(self, run: Callable[[], Awaitable[None]]) -> None:
        try:
            await run()
        finally:
            tasks = [*self.workers, *self.eval_workers, *filter(None, [self.eval_runner])]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if self.jsonl_writer is not None:
                self.jsonl_writer.close()
            await self.close()

    async def setup_wandb(self) -> None:
        """Wait for the trainer's project, within bounds."""
        await self._retry(super().setup_wandb)

    async def register_env(self) -> None:
        """Wait for run-api and for a trainer, within bounds."""
        await self._retry(super().register_env)

    async def _retry(self, step: Callable[[], Awaitable[None]]) -> None:
        """Try a step of Atropos again until it works, for `wait_s` at most."""
        url, longest = self.config.rollout_server_url, self.config.wait_s
        cause: Any = "no trainer has registered and asked for a batch"
        try:
            async with asyncio.timeout(longest):
                while True:
                    try:
                        return await step()
                    except (RetryError, OSError) as error:
                        cause = f"run-api does not answer ({_find_cause(error)})"
                        _log.warning("%s: %s; trying again", url, cause)
                        await asyncio.sleep(1)
        except TimeoutError:
            remedy = "start run-api and a trainer, or give "
            waited = f"{url}: waited for {longest:g} s (wait_s), and {cause}: {remedy}"
            raise ForetraceError(waited, Setting("rollout_server_url")) from None

    async def get_server_info(self) -> None:
        """Ask for the batch size and the longest sequence of the trainer; a group must not be larger than a batch."""
        try:
            await super().get_server_info()
        except ValueError as error:
            raise UsageError(f"{error}: choose a smaller ", Setting("group_size"), " or a larger batch") from None

    async def get_status(self) -> None:
        """Ask run-api how far the trainer is; where it was restarted, register again."""
        if self.fatal is not None:
            raise self.fatal
        try:
            await super().get_status()
        except RetryError as error:
            url = self.config.rollout_server_url
            _log.warning("%s: run-api has lost this environment (%s); registering again", url, _find_cause(error))
            await self.register_env()
            await self.get_server_info()
            await super().get_status()

    @classmethod
    def cli(cls) -> None:
        """The command line. Exit codes: 0 done, 1 failed, 2 wrong use, 130 interrupted."""
        if sys.argv[1:2] in ([], ["-h"], ["--help"]):  # Atropos would end in a traceback for the first
            print("usage: serve|process|evaluate [--config FILE] [--env.NAME VALUE ...] [--openai.NAME VALUE ...]")
            print("all settings, and what they are: serve --help")
            sys.exit(0 if sys.argv[1:] else UsageError.exit_code)
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that what was opened is closed
        if not _log.handlers:  # our own lines are few, and are shown whatever Atropos logs
            _log.addHandler(logging.StreamHandler())
            _log.setLevel(logging.INFO)
            _log.propagate = False
        try:
            super().cli()
        except ForetraceError as error:
            _end(render_error(error), error.exit_code)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"])
            _end(f"setting {place}: {first['msg']}", UsageError.exit_code)
        except (OSError, yaml.YAMLError) as error:
            _end(str(error) or type(error).__name__, ForetraceError.exit_code)
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            sys.exit(130)


def _end(message: str, code: int) -> None:
    print(f"error: {message}", file=sys.stderr)
    sys.exit(code)


def _find_cause(error: Any) -> Any:
    """What lies behind the last of several tries."""
    return (error.last_attempt.exception() or error) if isinstance(error, RetryError) else error
