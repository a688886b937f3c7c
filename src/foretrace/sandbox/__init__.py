"""Run untrusted Python in fresh processes, with tested and recorded isolation and verdicts that cannot be forged."""
