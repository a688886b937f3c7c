"""Pages to open from disk in a browser: traces, datasets and runs, for people to read."""
