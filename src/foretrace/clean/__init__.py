"""Traces made fit to be shared: secrets and personal data taken out of them, before anything is written."""
