"""Pages that a browser opens from disk: traces, datasets and runs, as a person reads them."""
