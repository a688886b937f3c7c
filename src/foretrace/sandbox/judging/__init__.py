"""How code is judged against tests: the plan, and the forms in which tests are run."""
