"""Problem sets: tasks with tests, each file in this folder one set or one format."""
