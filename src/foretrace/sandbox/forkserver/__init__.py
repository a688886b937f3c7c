"""The parent's side of fork servers: start, pool, self-test, sessions, results."""
