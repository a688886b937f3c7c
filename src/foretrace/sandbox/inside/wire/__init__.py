"""Frames between processes, and values as tagged JSON: no pickle anywhere."""
