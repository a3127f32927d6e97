"""One module per file format: read and write `Embeddings`."""
