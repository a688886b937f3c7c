"""The code of the sandboxed processes. It uses only the standard library, so that any supported Python can load it."""
