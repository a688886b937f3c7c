"""Run the same functions elsewhere: worker processes on this machine."""
