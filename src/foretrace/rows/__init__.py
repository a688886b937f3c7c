"""Read raw rows from files, folders and the Hub."""
