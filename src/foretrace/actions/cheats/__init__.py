"""Rules for cheats: calls that fetch the answer, or change what checks it, recognized by their contents."""
