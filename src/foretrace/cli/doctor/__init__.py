"""What `foretrace doctor` finds out about a sandbox, or about a model."""
