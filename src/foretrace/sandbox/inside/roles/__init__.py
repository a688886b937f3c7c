"""The roles of a child: program, answer, tests, tests and answer together, session."""
