"""The fork server: its start, its link to the parent, and how it watches children and sessions to their end."""
