"""Traces as rows that others read, one file for each format."""
