"""Commands that make files of vectors: by a model from texts or images, or from another format.

Like all of `kedge.cli`, they may import every other part of kedge, inside functions.
"""
