"""The one reader of raw rows: files, folders, the Hub."""
