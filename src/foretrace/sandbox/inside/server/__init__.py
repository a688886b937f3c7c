"""The fork server: its start, its connection to the parent, and how it watches children and sessions."""
