"""The commands as Python functions: they take names or objects and paths, and return reports."""
