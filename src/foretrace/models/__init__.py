"""Model servers behind one small contract (`base.py`): `servers/` holds them, the files here what they share."""
