"""How a sandboxed process gives up its rights: jail, Landlock, seccomp, plain system calls."""
