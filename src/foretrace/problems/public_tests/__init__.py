"""The tests that a statement shows: doctest examples, calls with results, asserts."""
