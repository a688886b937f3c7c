"""What each command does; `cli/command_table.py` lists them."""
