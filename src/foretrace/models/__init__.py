"""Model servers behind one small contract (`base.py`): adapters are in `servers/`, what they share is here."""
