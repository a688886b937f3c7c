"""Which attempts are the same (settings of the model tell them apart, ports do not), and what a run outlives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from episodes.generating import Ground, OneReply, adds, ids, stored
from fakes.model_server import ModelServer, serving
from foretrace.episodes.generate.engine import GenerateReport
from foretrace.models.throttle import ThrottledModel
from models.served import PATHS, model_at


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
            return ground.generate(out, model, protocol=OneReply(), samples=samples)
        finally:
            ground.runner.run(model.close())


def test_settings_that_change_the_text_make_other_attempts_and_are_recorded(ground: Ground, tmp_path: Path) -> None:
    out = tmp_path / "t"
    settings: list[dict[str, Any]] = [{"options": {"think": "true"}}, {"options": {"think": "high"}}]
    for server in [*settings, {}, {"context_length": 2048}]:
        assert run(ground, out, **server).counts.already_done == 0, server
        assert run(ground, out, **server).counts.already_done == 6, server
    told = [t.provenance.sampling for t in stored(out).values()]
    assert len(told) == 24 and sorted({each["context_length"] for each in told}) == [2048, 8192]
    assert [sum(each.get("options") == {"think": think} for each in told) for think in ("true", "high")] == [6, 6]


@pytest.mark.parametrize("kind", PATHS)
def test_another_port_changes_neither_key_nor_id(ground: Ground, tmp_path: Path, kind: str) -> None:
    run(ground, tmp_path / "a", kind)
    run(ground, tmp_path / "b", kind, options={"backoff_s": "0.02"}, retries=2)
    assert ids(tmp_path / "a") == ids(tmp_path / "b") != {}
    assert run(ground, tmp_path / "a", kind).counts.already_done == 6
    assert "127.0.0.1" not in "".join(str(t.provenance) for t in stored(tmp_path / "a").values())


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
