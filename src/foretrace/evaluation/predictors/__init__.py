"""Predictors that cost nothing: they learn from the rows of a dataset, on one core, and know nothing else."""
