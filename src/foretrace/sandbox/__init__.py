"""Run untrusted Python for real: fresh processes, tested and stamped isolation, verdicts that cannot be forged."""
