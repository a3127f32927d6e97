"""Commands that make files of vectors: by a model from texts or images, or from another format."""
