"""Many conversations in one record."""

from __future__ import annotations

from pathlib import Path

from foretrace.registry import open_inputs
from foretrace.sources.importing import import_inputs
from sources.formats.reading import write_lines


def test_a_run_of_many_conversations_on_one_line(tmp_path: Path) -> None:
    talk = [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Yes."}]
    runs = [{"id": f"s{n}", "messages": talk} for n in range(3)]
    path = write_lines(tmp_path / "run.json", [{"timestamp": "t", "simulations": runs}])
    opened = open_inputs("auto", path, hub={}, options={})
    assert import_inputs(opened.groups, tmp_path / "out").traces == 3
