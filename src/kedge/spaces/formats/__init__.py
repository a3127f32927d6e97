"""One module per file format: read and write `Embeddings`. May import the modules of `kedge.spaces`."""
