"""Rules for shell commands: parsed, split into simple commands, classified program by program."""
