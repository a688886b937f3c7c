"""What a shell command means: parsed, taken apart, and looked up program by program."""
