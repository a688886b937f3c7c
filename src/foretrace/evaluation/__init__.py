"""How much time speculation saves and how good predictions are: step times, the ceiling, the score."""
