"""What the command prints: traces, datasets, reports."""
