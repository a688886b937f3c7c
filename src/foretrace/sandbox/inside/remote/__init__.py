"""Objects of one process used from another: requests both ways, values by value, all else by reference."""
