"""From the setting `sandbox`, e.g. `docker,local`, to a sandbox: the first of those names that starts."""

from __future__ import annotations

from foretrace.core.errors import Setting, UsageError
from foretrace.core.plugins import make_plugin
from foretrace.sandbox.base import Sandbox, SandboxSettings
from foretrace.sandbox.fallback import FallbackSandbox


def make_sandbox(names: str, settings: SandboxSettings) -> Sandbox:
    """The sandbox that a list of names, joined by commas, stands for; not started yet.

    Raises:
        UsageError: no name, one that is unknown, or an object that is no sandbox.
    """
    unique = list(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
    if not unique:
        raise UsageError(Setting("sandbox"), " names nothing: name one or several, e.g. docker,local")
    # All are made before any is started: a misspelt name is found at once.
    return FallbackSandbox([(name, make_plugin("sandbox", name, Sandbox, settings)) for name in unique])
