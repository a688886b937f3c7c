"""Episodes: attempts at problems, and validation of the problems."""
