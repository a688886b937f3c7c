"""Many attempts at many problems, written to a traces folder and resumable at any time."""
