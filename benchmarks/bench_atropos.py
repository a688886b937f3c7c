"""foretrace's Atropos environment beside one that does nothing: groups a second through a real run-api, alternating.

    python benchmarks/bench_atropos.py [--quick] [--rounds 3] [--workers 64] [--seconds 6] [--json]

Each run has a run-api of its own, one environment that serves it, and the same little trainer, which pulls batches over
HTTP and counts. Ours is `python -m foretrace.envs.atropos serve` with a model that answers at once (see
_baselines/atropos_instant.py): episodes of two turns, code and a verify block. The floor (_baselines/atropos_floor.py)
sends one group again and again: one of ours, so that both send as much, and for comparison one of four tokens a
sequence. CPU time is that of the environment's process tree, by rollout that the trainer got. Everything goes to
bench-out/atropos.json. A missed bar does not change the exit code. Without atroposlib nothing is measured.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from _baselines.driver import FOLDER, tree
from bench_sandbox import OUT, Bar, at_least, busy_s, own_s, shown_bars

GROUP_SIZE = 4
BATCH_GROUPS = 8
MOST_TOKENS = 2048
WARM_BATCHES = 6
_PARTS = "_baselines.atropos_instant"
_PATIENCE_S = 90.0
_IDLE_CORES = 0.2
_STATEMENT = (
    "Write `merged(left, right)`: a list with the elements of `left` and `right` in turn, beginning with `left`. "
    "When one of them is used up, the rest of the other follows in its order. The lists stay as they are. ({number})"
)


class Kind(NamedTuple):
    """An environment that is measured."""

    label: str
    module: str
    settings: dict[str, Any]


class Run(NamedTuple):
    """One run of an environment."""

    groups: float
    """A second, as the trainer got them."""
    cpu_ms: float
    """CPU milliseconds a rollout, of the environment's process tree."""
    api_ms: float
    """CPU milliseconds a rollout, of run-api."""
    cores: float
    """CPU seconds a second, of both."""
    tokens: float
    """Mean length of a sequence."""


def kinds(folder: Path) -> dict[str, Kind]:
    """All that is measured, by key."""

    def ours(label: str, sandbox: str, **more: Any) -> Kind:
        told = {
            "model": f"{_PARTS}:Instant",
            "protocol": "tools",
            "problems": f"jsonl:{folder / 'problems.jsonl'}",
            "sandbox": sandbox,
        }
        return Kind(label, "foretrace.envs.atropos", told | more)

    def floor(label: str, group: str) -> Kind:
        return Kind(
            label, "_baselines.atropos_floor", {"group_path": folder / group, "use_wandb": False, "wandb_name": "floor"}
        )

    return {
        "floor": floor("floor: sends one group", "group.json"),
        "ours": ours("ours, no sandbox", f"{_PARTS}:Nothing"),
        "one-run": ours("ours, one sandbox run", f"{_PARTS}:OneRun"),
        "traces": ours("ours, no sandbox, traces kept", f"{_PARTS}:Nothing", traces_dir=folder / "traces"),
        "tiny": floor("floor: 4 tokens a sequence", "tiny.json"),
    }


def prepare(folder: Path) -> None:
    """Write what the environments read: problems, the tokenizer, a tiny group."""
    from foretrace.models.demo_model import write_demo_model

    tests = [f"assert merged([1] * {k}, [2]) == [1, 2] + [1] * {k - 1}" for k in (1, 2, 3)]
    tests += ["assert merged([1], [2, 3]) == [1, 2, 3]"]
    problems = [
        {"id": f"merged/{n}", "statement": _STATEMENT.format(number=n), "entry_point": "merged", "tests": tests}
        for n in range(64)
    ]
    (folder / "problems.jsonl").write_text("".join(json.dumps(problem) + "\n" for problem in problems))
    sequence, logprobs = [5, 6, 7, 2], [1.0, -0.5, -0.25, -0.125]
    tiny = {
        "tokens": [sequence] * GROUP_SIZE,
        "masks": [[-100, *sequence[1:]]] * GROUP_SIZE,
        "inference_logprobs": [logprobs] * GROUP_SIZE,
        "scores": [1.0, -1.0] * (GROUP_SIZE // 2),
    }
    (folder / "tiny.json").write_text(json.dumps(tiny))
    write_demo_model(folder / "tokenizer")


@contextlib.contextmanager
def process(folder: Path, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    """A Python program until the end of the block, ended as by Ctrl-C."""
    quiet = {"HF_HUB_OFFLINE": "1", "WANDB_MODE": "disabled", "PYTHONPATH": str(FOLDER)}
    with (folder / "log").open("wb") as log:
        started = subprocess.Popen(
            [sys.executable, *command], cwd=folder, stdout=log, stderr=log, env=os.environ | quiet
        )
        try:
            yield started
        finally:
            started.send_signal(signal.SIGINT)
            try:
                started.wait(20)
            except subprocess.TimeoutExpired:
                started.kill()
                started.wait()


class Trainer:
    """Registers with run-api and pulls batches, as fast as they come."""

    def __init__(self, port: int, alive: subprocess.Popen[bytes]) -> None:
        self._url, self._alive = f"http://127.0.0.1:{port}", alive
        told = {
            "wandb_group": "bench",
            "wandb_project": "bench",
            "batch_size": BATCH_GROUPS * GROUP_SIZE,
            "max_token_len": MOST_TOKENS,
            "checkpoint_dir": "",
            "save_checkpoint_interval": -1,
            "starting_step": 0,
            "num_steps": 1_000_000,
        }
        end = time.monotonic() + _PATIENCE_S
        while True:
            with contextlib.suppress(urllib.error.URLError):
                self._call("/register", told)
                break
            if time.monotonic() > end:
                raise SystemExit("run-api does not answer")
            time.sleep(0.1)
        self._call("/batch")  # environments are let in from here on

    def batch(self, env: subprocess.Popen[bytes]) -> list[dict[str, Any]]:
        """The next batch."""
        end = time.monotonic() + _PATIENCE_S
        while (groups := self._call("/batch")["batch"]) is None:
            if env.poll() is not None or self._alive.poll() is not None or time.monotonic() > end:
                raise SystemExit("no batch comes: the environment or run-api has failed")
            time.sleep(0.02)
        for group in groups:
            if len(group["tokens"]) != GROUP_SIZE or len(set(group["scores"])) != 2:
                raise SystemExit("a group does not have its rollouts and two scores")
        return groups

    def _call(self, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data, headers={"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read())


def spent(process: subprocess.Popen[bytes]) -> float:
    """CPU seconds of a process tree so far."""
    return sum(own + reaped for own, reaped in tree(process.pid).values())


def one(folder: Path, kind: Kind, workers: int, seconds: float) -> tuple[Run, dict[str, Any]]:
    """One run, and a group of it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    told = {
        "rollout_server_url": f"http://127.0.0.1:{port}",
        "group_size": GROUP_SIZE,
        "max_num_workers": workers,
        "max_token_length": MOST_TOKENS,
        "tokenizer_name": folder / "tokenizer",
        "total_steps": 1_000_000,
        "max_batches_offpolicy": 64,
        "steps_per_eval": 0,
    } | kind.settings
    flags = [part for name, value in told.items() for part in (f"--env.{name}", str(value))]
    places = [Path(tempfile.mkdtemp(dir=folder)) for _ in range(2)]
    api_main = "from atroposlib.cli.run_api import main; main()"
    with (
        process(places[0], "-c", api_main, "--host", "127.0.0.1", "--port", str(port)) as api,
        process(places[1], "-m", kind.module, "serve", *flags) as env,
    ):
        try:
            trainer = Trainer(port, api)
            for _ in range(WARM_BATCHES):
                last = trainer.batch(env)
            return counted(trainer, api, env, seconds), last[0]
        except SystemExit as error:
            said = (places[1] / "log").read_text(errors="replace").strip().splitlines()[-3:]
            raise SystemExit(f"{kind.label}: {error}\n" + "\n".join(said)) from None


def counted(trainer: Trainer, api: subprocess.Popen[bytes], env: subprocess.Popen[bytes], seconds: float) -> Run:
    """What the trainer gets from the end of one batch to the end of the last in so many seconds."""
    before, began, groups, tokens = (spent(api), spent(env)), time.perf_counter(), 0, 0
    while (took := time.perf_counter() - began) < seconds:
        batch = trainer.batch(env)
        groups += len(batch)
        tokens += sum(len(sequence) for group in batch for sequence in group["tokens"])
    api_s, env_s = spent(api) - before[0], spent(env) - before[1]
    rollouts = groups * GROUP_SIZE
    return Run(
        groups / took, env_s * 1000 / rollouts, api_s * 1000 / rollouts, (api_s + env_s) / took, tokens / rollouts
    )


def bars(runs: dict[str, list[Run]]) -> list[Bar]:
    """What was measured beside its target."""

    def ratio(name: str) -> float:
        return statistics.median(a.groups / b.groups for a, b in zip(runs[name], runs["floor"], strict=True))

    def cpu(name: str) -> float:
        return statistics.median(run.cpu_ms for run in runs[name])

    def by_cpu(name: str) -> float:
        pairs = zip(runs[name], runs["floor"], strict=True)
        return statistics.median((b.cpu_ms + b.api_ms) / (a.cpu_ms + a.api_ms) for a, b in pairs)

    return [
        at_least("groups/s beside the floor, no sandbox", 0.8, ratio("ours")),
        at_least("groups/s beside the floor, one sandbox run a rollout", 0.5, ratio("one-run")),
        Bar("groups/s beside the floor, no sandbox, traces kept", "-", ratio("traces"), None),
        Bar(
            "the same by CPU of both processes, no sandbox", "-", by_cpu("ours"), None, "x", "changes little with load"
        ),
        Bar("the same by CPU of both processes, one sandbox run", "-", by_cpu("one-run"), None),
        Bar("CPU a rollout, no sandbox", "-", cpu("ours"), None, " ms", f"floor {cpu('floor'):.2f} ms"),
        Bar("CPU a rollout, one sandbox run", "-", cpu("one-run"), None, " ms", "the sandbox's processes included"),
    ]


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """All figures, as they are written to the file."""
    load_before, begun, busy, own = os.getloadavg(), time.monotonic(), busy_s(), own_s()
    with tempfile.TemporaryDirectory(dir=OUT) as name:
        folder = Path(name)
        prepare(folder)
        wanted = kinds(folder)
        _, group = one(folder, wanted["ours"], options.workers, 0.5)
        (folder / "group.json").write_text(
            json.dumps({key: value for key, value in group.items() if value is not None})
        )
        runs: dict[str, list[Run]] = {key: [] for key in wanted}
        for number in range(options.rounds):
            for key in list(wanted) if number % 2 == 0 else list(wanted)[::-1]:
                runs[key].append(one(folder, wanted[key], options.workers, options.seconds)[0])
    others = ((busy_s() - busy) - (own_s() - own)) / (time.monotonic() - begun)
    return {
        "machine": f"Python {platform.python_version()}, {platform.system()} {platform.release()}",
        "cores": os.cpu_count(),
        "load_before": [round(part, 2) for part in load_before],
        "load_after": [round(part, 2) for part in os.getloadavg()],
        "others_cores": round(max(0.0, others), 2),
        "workers": options.workers,
        "group_size": GROUP_SIZE,
        "rounds": options.rounds,
        "seconds": options.seconds,
        "labels": {key: kind.label for key, kind in wanted.items()},
        "runs": {key: [run._asdict() for run in made] for key, made in runs.items()},
        "bars": [bar._asdict() for bar in bars(runs)],
    }


def table(result: dict[str, Any]) -> str:
    """What is printed for people."""
    lines = [
        f"groups of {result['group_size']}, {result['workers']} workers, {result['rounds']} rounds of "
        f"{result['seconds']:g} s a run",
        f"{result['machine']}, {result['cores']} cores; load average before {result['load_before']}, after "
        f"{result['load_after']}; others used {result['others_cores']} cores meanwhile",
        "",
        f"{'median of the rounds':32s} {'groups/s':>9s} {'CPU ms':>9s} {'run-api':>9s} {'cores':>6s} {'tokens':>9s}",
        f"{'':32s} {'':>9s} {'a rollout':>9s} {'a rollout':>9s} {'busy':>6s} {'a rollout':>9s}",
    ]
    for key, made in result["runs"].items():
        run = Run(*(statistics.median(part) for part in zip(*(each.values() for each in made), strict=True)))
        lines.append(
            f"{result['labels'][key]:32s} {run.groups:9.1f} {run.cpu_ms:9.2f} {run.api_ms:9.2f} {run.cores:6.2f} "
            f"{run.tokens:9.0f}"
        )
    lines.append("")
    if result["others_cores"] > _IDLE_CORES:
        lines.append("groups/s mean little here: others used the cores, more in one run than in another; CPU is surer")
    return "\n".join([*lines, *shown_bars(result["bars"], without="not measured")])


def main() -> None:
    """Measure, print, write the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, help="default: 3, and 1 with --quick")
    parser.add_argument("--workers", type=int, default=64, help="groups in flight; 64 is our default, Atropos' is 8")
    parser.add_argument("--seconds", type=float, help="of one run; default: 6, and 3 with --quick")
    parser.add_argument("--quick", action="store_true", help="one short round")
    parser.add_argument("--json", action="store_true", help="print the file's JSON instead of the table")
    options = parser.parse_args()
    options.rounds = options.rounds or (1 if options.quick else 3)
    options.seconds = options.seconds or (3.0 if options.quick else 6.0)
    if options.rounds < 1 or options.workers < 1 or options.seconds <= 0:
        parser.error("--rounds, --workers and --seconds must be above 0")
    if find_spec("atroposlib") is None:
        print("bench_atropos: skipped, as atroposlib is not installed (pip install 'foretrace[atropos]')")
        return
    OUT.mkdir(exist_ok=True)
    result = measure(options)
    (OUT / "atropos.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result) if options.json else table(result))


if __name__ == "__main__":
    main()
