"""Model servers behind one small contract (`base.py`). The adapters are in `servers/`; what they share is here."""
