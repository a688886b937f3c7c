"""`python -m foretrace` is the command `foretrace`."""

from __future__ import annotations

import sys

from foretrace.cli.main import main

if __name__ == "__main__":  # worker processes import this module again
    sys.exit(main())
