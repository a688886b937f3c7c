"""Run untrusted Python for real: fresh processes, isolation that is tested and stamped, verdicts that cannot be forged."""
