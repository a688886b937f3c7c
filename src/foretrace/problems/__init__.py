"""Problem sets: tasks with tests. The sets are `builtin`, `humaneval`, `mbpp` and `jsonl` (see `core/plugins.py`)."""
