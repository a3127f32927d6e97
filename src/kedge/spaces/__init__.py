"""Spaces (keys with vectors), pairs between two spaces, and the files and stores that hold them. No numerics here.

Imports nothing else of kedge.
"""

from kedge.spaces.embeddings import Embeddings
from kedge.spaces.files import read_embeddings, write_embeddings
from kedge.spaces.labels import read_labels
from kedge.spaces.pairs import Dictionary, read_dictionary, read_key_list, read_pairs, rows_from_key_pairs, write_table

__all__ = [
    "Dictionary",
    "Embeddings",
    "read_dictionary",
    "read_embeddings",
    "read_key_list",
    "read_labels",
    "read_pairs",
    "rows_from_key_pairs",
    "write_embeddings",
    "write_table",
]
