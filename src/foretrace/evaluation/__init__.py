"""What speculation saves, and what predictions are worth: the times of steps, the ceiling, the score."""
