"""Free predictors: they learn only from the rows of a dataset, on one core."""
