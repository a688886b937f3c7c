"""Invented scenarios from which `make_samples.py` writes the sample rows."""
