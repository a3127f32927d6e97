"""One module per kind of store."""
