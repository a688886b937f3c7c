"""The command `foretrace`: options, what is printed, exit codes."""
