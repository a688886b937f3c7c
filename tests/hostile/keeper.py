"""Starts the program that it is given and inherits whatever that leaves behind, so that a test can see it.

Run as `python keeper.py PROGRAM ARGUMENT...`; the program has its standard input and output.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from hostile import tree

if __name__ == "__main__":
    tree.keep_orphans()
    tree.die_with_parent()
    started = subprocess.Popen(sys.argv[1:])
    while True:
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            time.sleep(0.05)
