"""Trainers' libraries are extras: what is said where one is not installed."""

from __future__ import annotations


def absent(library: str, extra: str, missing: ImportError) -> ImportError:
    """What is raised where an environment's library is not installed."""
    return ImportError(f'{library} is not there ({missing}): pip install "foretrace[{extra}]"', name=missing.name)
