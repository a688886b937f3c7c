"""The programs that bench_sandbox.py measures, each a process of its own that takes orders on stdin."""
