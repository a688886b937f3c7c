"""Run the same functions elsewhere: in worker processes on this machine, or on a cluster."""
