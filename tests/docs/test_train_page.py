"""docs/train.md shows the commands that examples/train/train.sh runs, all of them and in that order."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from docs.test_examples import ROOT, blocks, commands

MODEL = "Qwen/Qwen2.5-Coder-0.5B-Instruct"
RECORD = '#!/bin/sh\necho "$(basename "$0") $*" >> "$COMMANDS"\n'
COUNT = '$(grep -c "^{}" "$COMMANDS")'
PROGRAMS = {
    **dict.fromkeys(("foretrace", "trl", "python"), RECORD),
    "transformers": RECORD + "exec /bin/sleep 60\n",
    # Nothing is at the port at first, and a server answers once it has begun.
    "curl": f'#!/bin/sh\n[ "${{*#*/health}}" != "$*" ] && [ {COUNT.format("transformers")} -gt '
    f"{COUNT.format('foretrace predict')} ]\n",
    "sleep": "#!/bin/sh\nexec /bin/sleep 0.02\n",
}
"""Each command stands in for itself by a line in a file."""


def list_script_commands(folder: Path) -> list[str]:
    """What the script calls."""
    for name, text in PROGRAMS.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    (folder / "examples").symlink_to(ROOT / "examples")
    (folder / "out/dataset/verifier").mkdir(parents=True)
    for split in ("train", "validation", "test"):
        (folder / f"out/dataset/verifier/{split}-00000-of-00001.parquet").touch()
    called = folder / "called"
    env = {"PATH": f"{folder}:{os.environ['PATH']}", "COMMANDS": str(called), "HF_HOME": str(folder / "hf")}
    words = ["examples/train/train.sh", "traces", MODEL, "out"]
    done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return called.read_text().splitlines()


def list_page_commands() -> list[str]:
    """The commands of the section that goes through the steps."""
    text = (ROOT / "docs/train.md").read_text()
    first, last = (text.count("\n", 0, text.index(title)) for title in ("\n## The steps", "\n## Full size"))
    shown = [block for block in blocks("docs/train.md") if first < block.line < last and block.language == "console"]
    return [" ".join(command.split()) for block in shown for command, _ in commands(block.text)]


def test_the_page_shows_the_commands_of_the_script(tmp_path: Path) -> None:
    called = list_script_commands(tmp_path)
    assert len(called) == 16
    assert list_page_commands() == called
