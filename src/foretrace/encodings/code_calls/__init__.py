"""Read calls that carry code, as models write them: whole, broken or badly escaped."""
