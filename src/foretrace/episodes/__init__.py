"""Episodes: attempts at problems, and the proof that the problems are sound."""
