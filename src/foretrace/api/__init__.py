"""The work of the command from Python: names or objects and plain paths in, reports out."""
