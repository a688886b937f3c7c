"""What `vf-eval foretrace-env` looks for: the library imports this module by that name (see docs/rl.md)."""

from foretrace.envs.verifiers.environment import ForetraceEnv, ForetraceHarness, ForetraceTaskset

__all__ = ["ForetraceEnv", "ForetraceHarness", "ForetraceTaskset"]
