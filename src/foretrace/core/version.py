"""The version of foretrace: `pyproject.toml` reads it here."""

__version__ = "0.1.0"
