"""What the environments tell their users: one line where a library is missing, and settings as options."""

from __future__ import annotations

import subprocess
import sys

import pytest

from foretrace.core.errors import Setting, UsageError
from foretrace.envs.messages import make_option_style


@pytest.mark.parametrize(
    ("code", "library", "extra"),
    [
        ("import foretrace.envs.atropos.environment", "atroposlib", "atropos"),
        ("import runpy; runpy.run_module('foretrace.envs.atropos', run_name='__main__')", "atroposlib", "atropos"),
        ("import foretrace_env", "verifiers", "verifiers"),
    ],
)
def test_importing_says_what_to_install_and_the_command_line_is_no_traceback(
    code: str, library: str, extra: str
) -> None:
    # Also where it is installed: None in its place is what an import finds of a library that is not there.
    code = f"import sys; sys.modules[{library!r}] = None; {code}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 1 and f'pip install -e ".[{extra}]"' in last
    assert "runpy" not in code or (last.startswith("error: ") and done.stderr.count("\n") == 1)


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        (Setting("sandbox", "local"), "--box local"),
        (Setting("sandbox"), "--box"),
        (Setting("hints", True), "--hints true"),
        (Setting("weak", True), "--level 0"),
        (Setting("other", "x"), "other='x'"),
    ],
)
def test_a_setting_is_written_as_the_option_that_sets_it(setting: Setting, text: str) -> None:
    options = {"sandbox": "--box", "hints": "--hints", "weak": "--level 0"}
    assert UsageError("give ", setting, "; or end").render(make_option_style(options)) == f"give {text}; or end"
