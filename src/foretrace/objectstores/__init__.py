"""Folders that lie in an object store (`s3://bucket/traces`): worked on in a local folder, and published."""
