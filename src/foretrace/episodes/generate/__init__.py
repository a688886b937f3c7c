"""Many attempts at many problems, into a traces folder, resumable at any moment."""
