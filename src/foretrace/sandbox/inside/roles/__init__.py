"""What a child can be: a program, a candidate, a judge, a session."""
