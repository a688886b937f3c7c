"""The embedded demo model's network, sampling and text, in numpy."""
