"""`python -m foretrace.envs.atropos serve|process|evaluate`: the Atropos environment's own command line."""

from __future__ import annotations

import sys

try:
    from foretrace.envs.atropos.environment import CodeTraceEnv
except ImportError as missing:
    sys.exit(f"error: {missing}")

if __name__ == "__main__":
    CodeTraceEnv.cli()
