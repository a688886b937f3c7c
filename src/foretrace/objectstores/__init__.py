"""Folders in an object store (`s3://bucket/traces`): used through a local copy, which is then published."""
