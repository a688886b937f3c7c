"""Traces as rows for other programs, one file per format."""
