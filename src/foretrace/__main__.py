"""`python -m foretrace` and the script `foretrace` are the command."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command, and end this process with its exit code."""
    try:
        from foretrace.cli.main import main as run  # here: worker processes import this module, and run no command

        code = run()
    except KeyboardInterrupt:  # before the command began
        print("foretrace: interrupted", file=sys.stderr)
        code = 130
    sys.exit(code)


if __name__ == "__main__":
    main()
