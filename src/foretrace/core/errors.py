"""The errors that foretrace raises: one clear line each, classified at one boundary."""

from __future__ import annotations


class ForetraceError(Exception):
    """Base of all errors that foretrace raises on purpose; `str(error)` says what to do."""

    exit_code = 1


class UsageError(ForetraceError):
    """A setting that cannot be served, found before any work is done."""

    exit_code = 2


class SourceError(ForetraceError):
    """Input that cannot be opened or read as the named source."""


class StoreError(ForetraceError):
    """A traces folder that cannot be read or written."""


class ModelError(ForetraceError):
    """A model server failed."""


class SandboxError(ForetraceError):
    """The sandbox cannot run or cannot isolate."""


class ProtocolError(ForetraceError):
    """Model and executor broke their text contract."""


class ProblemError(ForetraceError):
    """A problem set that cannot be used."""


class BuildError(ForetraceError):
    """A dataset that cannot be built."""


class GateError(BuildError):
    """A gate failed: the dataset was not written."""

    exit_code = 3


class PushError(ForetraceError):
    """A dataset that could not be pushed to the Hub."""
