"""Problem sets: tasks with tests. `core/plugins.py` lists them."""
