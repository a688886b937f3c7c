"""How code is judged against tests: the plan, and the forms of judging."""
