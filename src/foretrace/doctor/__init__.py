"""Examine a sandbox, or a model: what it can do, and how well."""
