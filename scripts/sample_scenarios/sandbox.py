"""A throw-away checkout in which every step of a sample attempt really runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

TESTBED = "/testbed"
SILENT = "The command finished and printed nothing."
MARKER = "OBSERVATION:\n"

_CARETS = re.compile(r"^[ |]*[\^~][\^~ ]*\n", re.MULTILINE)
_SECONDS = re.compile(r"\bin \d+\.\d+s\b")
_REVIEW = """Nothing is handed in yet. Look over your changes, delete scripts that only served to see the
problem, and call submit once more.

<diff>
{diff}</diff>"""


class Sandbox:
    """One attempt's files; paths below the folder are shown as `/testbed`."""

    def __init__(self, folder: Path, files: dict[str, str]) -> None:
        self.root = folder / "testbed"
        self.submitted = False
        self._undo: dict[str, list[str]] = {}
        for name, text in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        keep = {k: v for k, v in os.environ.items() if k in ("SYSTEMROOT", "LD_LIBRARY_PATH")}
        self._env = {
            **keep,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(folder),
            "LC_ALL": "C.UTF-8",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONHASHSEED": "0",
            "NO_COLOR": "1",
            "PYTEST_ADDOPTS": "-p no:cacheprovider -p no:xdist",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            **{f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER")
               for what, value in (("NAME", "sample"), ("EMAIL", "sample@example.org"),
                                   ("DATE", "2024-05-01T12:00:00+0000"))},
        }  # fmt: skip
        self._shell("git init -q -b main && git add -A && git commit -q -m 'Import the package'")

    def run(self, tool: str, arguments: dict[str, Any]) -> str:
        """Carry out one call and return the text of its observation."""
        if tool == "submit":
            return MARKER + self._submit()
        if tool == "bash":
            text = self._shell(str(arguments["command"])).rstrip("\n")
            return MARKER + text if text else SILENT
        return MARKER + self._edit(**arguments)

    def passes(self, script: str) -> bool:
        """Whether a Python script ends without an error in the present state of the files."""
        done = subprocess.run(
            [sys.executable, "-c", script], cwd=self.root, env=self._env, capture_output=True, check=False
        )
        return done.returncode == 0

    def read(self, path: str) -> str:
        """The text of a file named by its `/testbed` path."""
        return self._real(path).read_text()

    def _real(self, path: str) -> Path:
        return self.root / path.removeprefix(TESTBED).lstrip("/")

    def _shell(self, command: str) -> str:
        done = subprocess.run(
            ["bash", "-c", command.replace(TESTBED, str(self.root))],
            cwd=self.root,
            env=self._env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        text = done.stdout.replace(str(self.root), TESTBED)
        return _SECONDS.sub("in 0.04s", _CARETS.sub("", text))

    def _submit(self) -> str:
        diff = self._shell("git add -A && git diff --cached -U1 && git reset -q")
        return _REVIEW.format(diff=diff)

    def _edit(
        self, command: str, path: str, file_text: str = "", view_range: list[int] | None = None,
        old_str: str = "", new_str: str = "", insert_line: int = 0,
    ) -> str:  # fmt: skip
        real = self._real(path)
        if command == "view":
            if real.is_dir():
                return self._listing(path)
            return f"Lines of {path}:\n{_numbered(real, view_range)}"
        if command == "create":
            if real.exists():
                return f"ERROR: {path} is there already; create does not overwrite."
            real.parent.mkdir(parents=True, exist_ok=True)
            real.write_text(file_text)
            return f"New file written: {path}"
        text = real.read_text()
        if command == "undo_edit":
            real.write_text(self._undo[path].pop())
            return f"The last edit of {path} was taken back."
        if command == "insert":
            lines = text.splitlines(keepends=True)
            at, body = insert_line, new_str + "\n"
            changed = "".join([*lines[:at], body, *lines[at:]])
        elif text.count(old_str) != 1:
            return f"No replacement was performed: old_str was not found in {path} exactly as given."
        else:
            at, body = text[: text.index(old_str)].count("\n"), new_str
            changed = text.replace(old_str, new_str)
        self._undo.setdefault(path, []).append(text)
        real.write_text(changed)
        last = at + body.count("\n") + 1
        region = _numbered(real, [max(1, at - 1), last + 2])
        return f"Edited {path}. The lines around the change:\n{region}\nEdit again if they are not as meant."

    def _listing(self, path: str) -> str:
        names = self._shell(f"find {path} -maxdepth 2 -not -path '*/.*' | sort")
        return f"Files below {path}, two levels deep:\n{names.rstrip()}"


def _numbered(path: Path, view_range: list[int] | None) -> str:
    lines = path.read_text().splitlines()
    first, last = view_range or (1, len(lines))
    return "\n".join(f"{n:6d}\t{line}" for n, line in enumerate(lines, start=1) if first <= n <= last)
