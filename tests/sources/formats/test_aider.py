"""Aider's chat history in Markdown."""

from __future__ import annotations

import json
import time
from pathlib import Path

from foretrace.actions.label_steps import label_trace
from sources.formats.reading import outline, read, read_one, recognize

HISTORY = """
# aider chat started at 2026-03-02 10:00:00

> /usr/bin/aider --model m1 --message first
second line of what was typed, not quoted
> Aider v0.86.1  
> Main model: acme/m1 with diff edit format  

#### /add calc.py  
> Added calc.py to the chat  

#### Fix add.  
#### It subtracts.  

Here is the fix:

calc.py
```python
<<<<<<< SEARCH
    return a - b
=======
    return a + b
>>>>>>> REPLACE
```

#### A heading of the model
> a quotation of the model

```bash
pytest -q
```

> Tokens: 1k sent, 50 received.  
> Applied edit to calc.py  
> Run shell command? (Y)es/(N)o [Yes]: y  
> Running pytest -q  

#### /ask how do I list files?  

Like this:

```bash
ls
```

> Tokens: 1k sent, 9 received.  

# aider chat started at 2026-03-03 10:00:00

#### Write it anew.  

calc.py
```
def add(a, b):
    return a + b
```

> Applied edit to calc.py  

# aider chat started at 2026-03-04 10:00:00

> Aider v0.86.1  
#### /exit  
"""


def write(tmp_path: Path, text: str) -> Path:
    folder = tmp_path / "mine"
    folder.mkdir(exist_ok=True)
    path = folder / ".aider.chat.history.md"
    path.write_text(text)
    return path


def test_sessions(tmp_path: Path) -> None:
    path = write(tmp_path, HISTORY)
    assert set(recognize(path)) == {"aider"}
    (first, second), (drop,), account = read("aider", path)
    assert outline(first) == [
        ("user", "environment", "/add calc.py"), ("user", "user", "Fix add.\nIt subtracts."),
        ("assistant", "model", "Here is the fix:\n\n#### A heading of the "),
        ("tool", "environment", "Applied edit to calc.py\nRun shell comman"),
        ("user", "user", "/ask how do I list files?"), ("assistant", "model", "Like this:\n\n```bash\nls\n```"),
    ]  # fmt: skip
    edit, run = first.messages[2].tool_calls
    assert json.loads(edit.arguments) == {
        "file_path": "calc.py", "old_string": "    return a - b\n", "new_string": "    return a + b\n"
    }  # fmt: skip
    assert (run.name, json.loads(run.arguments)) == ("bash", {"command": "pytest -q"})
    assert "SEARCH" not in first.messages[2].content and "> a quotation of the model" in first.messages[2].content
    assert (first.provenance.model, first.task.group, first.task.statement) == (
        "acme/m1", "mine", "Fix add.\nIt subtracts."
    )  # fmt: skip
    assert [label.action.value for label in label_trace(first) if label.action] == ["verifier", "final_answer"]
    (whole,) = second.messages[1].tool_calls
    assert whole.name == "write_file" and json.loads(whole.arguments)["content"].startswith("def add")
    assert drop.reason == "no_agent_turn" and account.ignored["what aider printed at its start"] == 1


def test_failed_edits_and_cut_ones(tmp_path: Path) -> None:
    block = "a.py\n```\n<<<<<<< SEARCH\nx\n=======\ny\n>>>>>>> REPLACE\n```\n"
    text = (
        f"# aider chat started at 2026-03-02 10:00:00\n\n#### Go.  \n\n{block}\n"
        f"> The LLM did not conform to the edit format.  \n\n{block}"
        f"b.py\n<<<<<<< SEARCH\ncut off\n\n> ^C again to exit  \n"
    )
    trace, _ = read_one("aider", write(tmp_path, text))
    assert [m.is_error for m in trace.messages if m.role == "tool"] == [True, None]
    assert [len(m.tool_calls) for m in trace.messages] == [0, 1, 0, 1, 0]


def test_edits_as_diffs(tmp_path: Path) -> None:
    patch = "--- a.py\n+++ a.py\n@@ @@\n-x\n+y\n"
    start = "# aider chat started at 2026-03-02 10:00:00\n\n#### Go.  \n\n"
    text = f"{start}```diff\n{patch}```\n\n> Applied edit to a.py  \n"
    (call,) = read_one("aider", write(tmp_path, text))[0].messages[1].tool_calls
    assert (call.name, json.loads(call.arguments)) == ("apply_patch", {"patch": patch})
    shown = patch.replace("a.py", "o.py")
    text = f"{start}As in\n```diff\n{shown}```\na.py\n```\ny\n```\n\n> Applied edit to a.py  \n"
    (call,) = read_one("aider", write(tmp_path, text))[0].messages[1].tool_calls
    assert (call.name, json.loads(call.arguments)) == ("write_file", {"file_path": "a.py", "content": "y\n"})


def test_hostile_texts_take_linear_time(tmp_path: Path) -> None:
    begin = "# aider chat started at 2026-03-02 10:00:00\n\n#### Go.  \n\n"
    blocks = ("<<<<<<< SEARCH\n", "<<<<<<< SEARCH\n=======\n", "a.py\n```\n<<<<<<< SEARCH\n")
    for piece in (*blocks, "```\n", "```py\n", "> x\n", "=" * 100_000 + "\n", "`" * 100_000 + " x\n", "#### \n"):
        path = write(tmp_path, begin + piece * (400_000 // len(piece)))
        before = time.perf_counter()
        read("aider", path)
        assert time.perf_counter() - before < 5, piece[:20]
