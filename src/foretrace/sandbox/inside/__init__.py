"""What runs in the sandboxed processes. Standard library only: any supported interpreter must be able to load it."""
