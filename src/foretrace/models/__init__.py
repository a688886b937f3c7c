"""Model servers behind one small contract, each file in this folder one kind of server."""
