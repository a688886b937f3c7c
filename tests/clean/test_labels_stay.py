"""What is taken out of real traces changes no label."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretrace import import_source
from foretrace.actions.label_steps import label_trace
from foretrace.clean.redact import Redactor, RedactSettings
from foretrace.core.store import TraceStore
from foretrace.core.trace import Trace
from portions import in_portions, take


@pytest.fixture(scope="module")
def traces(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Trace]:
    """The traces of all shared sources and sessions, with what is secret in them."""
    folder = tmp_path_factory.mktemp("shared") / "traces"
    import_source("auto", shared / "data/traces", out=folder, workers=1, redact=False)
    import_source("auto", shared / "data/sessions", out=folder, workers=1, redact=False)
    return [*TraceStore(folder).read()]


@in_portions
def test_labels_are_the_same_before_and_after(traces: list[Trace], portion: int) -> None:
    # e-mail and IP addresses too: more is taken out, and the labels must stand it
    redactor = Redactor(RedactSettings(emails=True, addresses=True))
    steps = same = changed = 0
    for trace in take(traces, portion):
        (clean,) = redactor.apply([trace])
        assert isinstance(clean, Trace)
        changed += clean.messages != trace.messages
        before, after = ([(step.index, step.action) for step in label_trace(each)] for each in (trace, clean))
        assert len(before) == len(after)
        steps += len(before)
        same += sum(one == other for one, other in zip(before, after, strict=True))
    assert steps > 600 // portion and changed > 0
    assert same >= 0.999 * steps
