"""How a sandboxed process gives up its privileges: jail, Landlock, seccomp, and the system calls for them."""
