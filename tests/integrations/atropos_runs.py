"""Real Atropos processes: run-api, the environment's command line, a trainer that pulls batches, and what each sequence
must be."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from integrations.llama_server import Running
from integrations.scoring import CLOSE, rescored
from integrations.warm import WarmProcess

BIN = Path(sys.executable).parent
END = 2
"""The id of `<|im_end|>`."""
_PATIENCE_S = 240.0


class RunApi(Running):
    """The real trajectory server."""

    def _open(self) -> WarmProcess:
        return WarmProcess("atroposlib.cli.run_api", self._command, folder=self.log.parent, log=self.log)


def run_api(log: Path) -> Running:
    """The real trajectory server, not started yet."""
    return RunApi(["--host", "127.0.0.1"], log, "/")


def rows(path: Path) -> list[dict[str, Any]]:
    """A JSONL file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


class Env(WarmProcess):
    """`python -m foretrace.envs.atropos VERB --env.NAME VALUE ...` in a folder of its own, started at once."""

    def __init__(self, verb: str, folder: Path, **settings: Any) -> None:
        self.log = folder / f"{verb}.log"
        self.log.touch()
        told = {"model": "demo", "group_size": 4, "max_token_length": 2048, "max_tokens": 200, "max_turns": 3}
        command = [verb]
        for name, value in (told | settings).items():
            command += [f"--{name}" if "." in name or name == "config" else f"--env.{name}", str(value)]
        super().__init__("foretrace.envs.atropos", command, folder=folder, log=self.log)

    def wait(self, timeout: float | None = _PATIENCE_S) -> int:
        """Its exit code."""
        try:
            return super().wait(timeout)
        except subprocess.TimeoutExpired:
            self.stop()
            raise AssertionError(f"it did not end:\n{self.said()[-3000:]}") from None

    def stop(self) -> int:
        """End it as Ctrl-C does."""
        self.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            return super().wait(30)
        self.kill()
        return super().wait()

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def errors(self) -> str:
        """The one line with which it ended."""
        return next((line for line in self.said().splitlines() if line.startswith("error: ")), "")


def toy(url: str, tokenizer: Path, folder: Path, verb: str = "process", **settings: Any) -> Env:
    """A run against a fake server, whose words have no ids and which is trusted with them."""
    told = {"openai.base_url": url, "model": "openai:toy", "tokenizer_name": tokenizer, "protocol": "tools"}
    told |= {"check_tokenizer": False, "on_mismatch": "flag", "max_turns": 2, "model_retries": 1}
    return Env(verb, folder, **(told | settings))


@contextmanager
def serving(folder: Path, api: Running, **settings: Any) -> Iterator[Env]:
    """`serve` for that run-api, until the end of the block."""
    env = Env("serve", folder, rollout_server_url=api.url, max_num_workers=2, **settings)
    try:
        yield env
    finally:
        env.stop()


class Trainer:
    """Registers with run-api, as a trainer does, and pulls batches."""

    def __init__(self, api: Running, batch_size: int = 8, max_token_len: int = 2048) -> None:
        self._url = api.url
        told = {
            "wandb_group": "test",
            "wandb_project": "test",
            "batch_size": batch_size,
            "max_token_len": max_token_len,
            "checkpoint_dir": "checkpoints",
            "save_checkpoint_interval": -1,
            "starting_step": 0,
            "num_steps": 100,
        }
        self._call("/register", told)
        self._call("/batch")  # environments are let in from here on

    def batch(self, env: Env) -> list[dict[str, Any]]:
        """The next batch."""
        end = time.monotonic() + _PATIENCE_S
        while (groups := self._call("/batch")["batch"]) is None:
            assert env.poll() is None and time.monotonic() < end, f"no batch comes:\n{env.said()[-3000:]}"
            time.sleep(0.3)
        return groups

    def _call(self, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data, headers={"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.loads(answer.read())


def check_group(group: dict[str, Any], size: int = 4, *, differ: bool = True) -> None:
    """All that a trainer may rely on, for each sequence of a group."""
    assert len(group["tokens"]) == len(group["masks"]) == len(group["scores"]) == size
    assert all(-1.0 <= score <= 1.0 for score in group["scores"])
    assert not differ or len(set(group["scores"])) > 1
    assert group["generation_params"]["temperature"] == 1.0
    prompts = []
    for tokens, masks, logprobs in zip(group["tokens"], group["masks"], group["inference_logprobs"], strict=True):
        assert len(tokens) == len(masks) == len(logprobs) < 2048
        assert all(mask in (-100, token) for mask, token in zip(masks, tokens, strict=True))
        trained = [n for n, mask in enumerate(masks) if mask != -100]
        assert trained and all(
            (logprob == 1.0) == (mask == -100) for logprob, mask in zip(logprobs, masks, strict=True)
        )
        assert all(logprobs[n] <= 0.0 for n in trained)
        assert tokens[-1] == END != tokens[-2]
        prompts.append(tokens[: trained[0]])
        begin = trained[0]
        again = rescored(tokens, begin)
        assert np.abs(again[[n - begin for n in trained]] - [logprobs[n] for n in trained]).max() < CLOSE
    assert all(prompt == prompts[0] for prompt in prompts)
