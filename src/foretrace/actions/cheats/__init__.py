"""Rules for cheats: calls that fetch the answer, or that change what checks it, told from what the calls contain."""
