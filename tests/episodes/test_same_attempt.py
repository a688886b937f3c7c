"""Which attempts are the same (settings of the model tell them apart, ports do not), and what a run outlives."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from episodes.generating import Ground, ids, stored
from fakes.model_server import Asked, ModelServer, serving
from foretrace.episodes.generate.engine import GenerateReport
from foretrace.models.throttle import ThrottledModel
from foretrace.protocols.tools import Tools
from foretrace.sandbox.base import SandboxSettings
from foretrace.sandbox.local import LocalSandbox
from models.served import PATHS, model_at

LIMIT = {
    "message": "Rate limit reached for model `x` on tokens per minute (TPM): Limit 6000, Used 5034, Requested 1443. "
    "Please try again in 50ms. Need more tokens? Upgrade to Dev Tier today at https://console.groq.com/settings/billing",
    "code": "rate_limit_exceeded",
}


@pytest.fixture(scope="module")
def ground() -> Iterator[Ground]:
    with asyncio.Runner() as runner:
        sandbox = LocalSandbox(SandboxSettings(workers=2))
        yield Ground(runner, sandbox)
        runner.run(sandbox.close())


class Plain(Tools):
    """Ends with the first reply: one request an attempt."""

    def is_done(self, reply: Any, results: Any) -> bool:
        return True


def adds(asked: Asked) -> str:
    number = asked.text.split("Return x plus ")[1].split(".")[0] if "Return x plus" in asked.text else "0"
    return f"<code>\ndef plus(x):\n    return x + {number}\n</code>"


def run(
    ground: Ground,
    out: Path,
    kind: str = "ollama",
    *,
    fault: dict[str, Any] | None = None,
    samples: int = 1,
    **server: Any,
) -> GenerateReport:
    """Generate at a server of its own; the fault begins behind the probe."""
    with serving(ModelServer(say=adds)) as running:
        model = model_at(kind, running.url, **server)
        try:
            ground.runner.run(model.probe())
            if fault is not None:
                running.fault(PATHS[kind], **fault)
            return ground.generate(out, model, protocol=Plain(), samples=samples)
        finally:
            ground.runner.run(model.close())


def test_settings_that_change_the_text_make_other_attempts_and_are_recorded(ground: Ground, tmp_path: Path) -> None:
    out = tmp_path / "t"
    settings: list[dict[str, Any]] = [{"options": {"think": value}} for value in ("true", "false", "high")]
    more: list[dict[str, Any]] = [{}, {"context_length": 2048}]
    for server in [*settings, *more]:
        assert run(ground, out, **server).counts.already_done == 0, server
        assert run(ground, out, **server).counts.already_done == 6, server
    traces = stored(out).values()
    assert len(traces) == 30
    told = [json.dumps(t.provenance.sampling.get("options")) for t in traces]
    assert {one: told.count(one) for one in told} == {
        "null": 12,
        '{"think": "true"}': 6,
        '{"think": "false"}': 6,
        '{"think": "high"}': 6,
    }
    assert sorted({t.provenance.sampling["context_length"] for t in traces}) == [2048, 8192]


@pytest.mark.parametrize("kind", PATHS)
def test_another_port_changes_neither_key_nor_id(ground: Ground, tmp_path: Path, kind: str) -> None:
    run(ground, tmp_path / "a", kind)
    run(ground, tmp_path / "b", kind, options={"backoff_s": "0.02"}, retries=2)
    assert ids(tmp_path / "a") == ids(tmp_path / "b") != {}
    assert run(ground, tmp_path / "a", kind).counts.already_done == 6
    assert "127.0.0.1" not in "".join(str(t.provenance) for t in stored(tmp_path / "a").values())


def test_another_port_changes_no_id_of_an_attempt_that_ended_in_an_error(ground: Ground, tmp_path: Path) -> None:
    for name in "ab":
        run(ground, tmp_path / name, "openai", fault={"status": 400, "body": '{"error": "no"}', "times": -1})
    assert ids(tmp_path / "a") == ids(tmp_path / "b") != {}
    errors = [t.outcome.error for t in stored(tmp_path / "a").values()]
    assert {e.message.partition(";")[0] for e in errors if e} == {"model toy: HTTP 400 'no'"}


def test_a_limit_of_a_minute_that_speaks_of_billing_does_not_stop_a_run(ground: Ground, tmp_path: Path) -> None:
    fault = {"status": 429, "body": json.dumps({"error": LIMIT}), "headers": {"Retry-After": "0"}, "times": 4}
    report = run(ground, tmp_path / "t", "openai", fault=fault, samples=2)
    assert (report.counts.done, report.success, report.counts.errors, report.stopped) == (12, 1.0, {}, None)


@pytest.mark.parametrize("kind", PATHS)
def test_a_reply_that_is_no_json_is_the_error_of_its_attempt(
    ground: Ground, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ThrottledModel.__init__.__kwdefaults__, "pause_s", 0.05)
    report = run(ground, tmp_path / "t", kind, fault={"how": "html", "times": 2}, samples=2)
    assert (report.counts.done, report.counts.errors, report.counts.stored) == (12, {"bad_reply": 2}, 12)
    failed = [t.outcome for t in stored(tmp_path / "t").values() if t.outcome.error]
    assert len(failed) == 2
    for outcome in failed:
        assert outcome.error and "not JSON but '<html>" in outcome.error.message and outcome.success is None
    again = run(ground, tmp_path / "t", kind, samples=2)
    assert (again.counts.already_done, again.counts.done, again.success) == (10, 2, 1.0)
