"""Licenses: what is allowed stays, and what is not known to be allowed does not."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from dataset.little import examine, says, trace, user
from foretrace.core.errors import UsageError
from foretrace.core.trace import Trace
from foretrace.dataset.filters.benchmark_sets import write_benchmarks
from foretrace.dataset.settings import BuildSettings
from foretrace.dataset.trace_filters import LicenseFilter, make_trace_filters, select_traces


def make_trace(key: str, license: str | None) -> Trace:
    made = trace(key, user("Go."), says("Done."))
    return msgspec.structs.replace(made, provenance=msgspec.structs.replace(made.provenance, license=license))


TRACES = [make_trace("a", "MIT"), make_trace("b", "apache-2.0"), make_trace("c", None), make_trace("d", "GPL-3.0")]


@pytest.mark.parametrize(
    ("allow", "deny", "kept"),
    [
        (("mit", "Apache-2.0"), (), "ab"),
        (("MIT", "unknown"), (), "ac"),
        ((), ("gpl-3.0",), "ab"),
        (("MIT", "GPL-3.0"), ("Apache-2.0",), "ad"),
    ],
)
def test_kept_by_license(allow: tuple[str, ...], deny: tuple[str, ...], kept: str) -> None:
    settings = BuildSettings(license_allow=allow, license_deny=deny)
    filters = [LicenseFilter(settings)]
    selection = select_traces(filters, examine(TRACES, filters))
    assert "".join(each.key for each in selection.apply(TRACES)) == kept
    reasons = selection.filters["license"]["by_source"]["little:train"]
    assert sum(reasons.values()) == 4 - len(kept)
    assert set(reasons) <= {"MIT", "apache-2.0", "unknown", "GPL-3.0"}


def test_licenses_come_first_and_only_where_a_list_is_given(tmp_path: Path) -> None:
    benchmarks = write_benchmarks([], tmp_path)
    assert "license" not in [each.name for each in make_trace_filters(BuildSettings(), benchmarks)]
    assert make_trace_filters(BuildSettings(license_deny=("GPL-3.0",)), benchmarks)[0].name == "license"


def test_license_that_is_allowed_and_denied_is_refused() -> None:
    with pytest.raises(UsageError, match="license_allow and license_deny both name mit"):
        BuildSettings(license_allow=("MIT",), license_deny=("mit",)).check()
