"""The life of an Atropos environment: it waits within bounds, comes back to run-api, and closes what it opened."""
# pyright: reportMissingImports=false, reportUntypedBaseClass=false

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from atroposlib.envs.base import BaseEnv
from pydantic import ValidationError
from tenacity import RetryError

from foretrace.core.errors import ForetraceError, Setting, UsageError
from foretrace.envs.atropos.config import render_error

_log = logging.getLogger("foretrace.envs.atropos")


class ResilientEnv(BaseEnv):
    """Atropos' environment, whose runs end with one clear line where they cannot go on."""

    training = True
    """False in `evaluate`, which needs no logprobs."""
    process_mode = False
    """Atropos sets it in `process`."""
    fatal: ForetraceError | None = None
    """Why the run is to end."""

    async def close(self) -> None:
        """End what was opened. May be called twice."""

    async def env_manager(self) -> None:
        """`serve`."""
        try:
            await super().env_manager()
        finally:
            await self._close_all()

    async def process_manager(self) -> None:
        """`process`."""
        try:
            await super().process_manager()
        finally:
            await self._close_all()

    async def _run_evaluate(self) -> None:
        """`evaluate`."""
        self.training = False
        try:
            await self.setup()
            if self.config.use_wandb:
                import wandb

                wandb.init(project=self.wandb_project, name=f"{self.name}-evaluate", config=self.config.model_dump())
            await self.evaluate()
            await self.wandb_log({})
        finally:
            await self._close_all()

    async def _close_all(self) -> None:
        for worker in (*self.workers, *self.eval_workers, *filter(None, [self.eval_runner])):
            worker.cancel()
        await asyncio.gather(*self.workers, *filter(None, [self.eval_runner]), return_exceptions=True)
        if self.jsonl_writer is not None:
            self.jsonl_writer.close()
        await self.close()

    async def setup_wandb(self) -> None:
        """Wait for the trainer's project, within bounds."""
        await self._retry(super().setup_wandb, "no trainer has registered: start it")

    async def register_env(self) -> None:
        """Wait for run-api and for a trainer, within bounds.

        Raises:
            ForetraceError: one of them is not there; says which.
        """
        await self._retry(super().register_env, "no trainer has registered and asked for a batch: start it")

    async def _retry(self, step: Any, missing: str) -> None:
        """Try a step of Atropos again until it works, for `wait_s` at most; `missing` says what it waits for."""
        url, longest = self.config.rollout_server_url, self.config.wait_s
        try:
            async with asyncio.timeout(longest):
                while True:
                    try:
                        return await step()
                    except (RetryError, OSError) as error:
                        cause = _last_cause(error)
                        if 400 <= getattr(cause, "status", 0) < 500:
                            raise ForetraceError(f"{url}: run-api refuses this environment: {cause}") from None
                        _log.warning("%s: run-api does not answer (%s); trying again", url, cause)
                        await asyncio.sleep(1)
        except TimeoutError:
            waited = f"{url}: waited for {longest:g} s (wait_s), and "
            if await _answers(url):
                raise ForetraceError(waited, missing) from None
            remedy = "run-api does not answer: start it, or give "
            raise ForetraceError(waited, remedy, Setting("rollout_server_url")) from None

    async def get_server_info(self) -> None:
        """Ask for the batch size and the longest sequence of the trainer.

        Raises:
            UsageError: a group is larger than a batch.
        """
        try:
            await super().get_server_info()
        except ValueError as error:
            raise UsageError(f"{error}: choose a smaller ", Setting("group_size"), " or a larger batch") from None

    async def get_status(self) -> None:
        """Ask run-api how far the trainer is; where it was restarted, register again.

        Raises:
            ForetraceError: the run is to end.
        """
        if self.fatal is not None:
            raise self.fatal
        try:
            await super().get_status()
        except RetryError as error:
            url = self.config.rollout_server_url
            _log.warning("%s: run-api has lost this environment (%s); registering again", url, _last_cause(error))
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
        if sys.argv[1:2] in (["process"], ["evaluate"]) and not _sets_wandb(sys.argv[2:]):
            sys.argv += ["--env.use_wandb", "False"]  # Atropos switches it on in these two
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that what was opened is closed
        if not _log.handlers:  # our own lines are few, and are shown whatever Atropos logs
            _log.addHandler(logging.StreamHandler())
            _log.setLevel(logging.INFO)
            _log.propagate = False
        try:
            super().cli()
        except ForetraceError as error:
            print(f"error: {render_error(error)}", file=sys.stderr)
            sys.exit(error.exit_code)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"])
            print(f"error: setting {place}: {first['msg']}", file=sys.stderr)
            sys.exit(UsageError.exit_code)
        except (OSError, yaml.YAMLError) as error:
            print(f"error: {str(error) or type(error).__name__}", file=sys.stderr)
            sys.exit(ForetraceError.exit_code)
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            sys.exit(130)


async def _answers(url: str) -> bool:
    """Whether something listens there."""
    try:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=3)) as session, session.get(url):
            return True
    except (aiohttp.ClientError, OSError):
        return False


def _last_cause(error: Any) -> Any:
    """What lies behind the last of several tries."""
    return (error.last_attempt.exception() or error) if isinstance(error, RetryError) else error


def _sets_wandb(args: Sequence[str]) -> bool:
    """Whether the command line or its YAML says whether to use W&B."""
    if any(arg.partition("=")[0] == "--env.use_wandb" for arg in args):
        return True
    joined = [arg.partition("=")[2] for arg in args if arg.startswith("--config=")]
    apart = [args[n + 1] for n, arg in enumerate(args[:-1]) if arg == "--config"]
    for path in (*joined, *apart):
        with contextlib.suppress(OSError, yaml.YAMLError, AttributeError):  # Atropos itself will say what is wrong
            settings = yaml.safe_load(Path(path).read_text(encoding="utf-8")) or {}
            if "use_wandb" in (settings.get("env") or {}):
                return True
    return False
