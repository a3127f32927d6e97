"""Words that ship with kedge: 5,000 English words in Word2Vec (300-d) and GloVe (100-d); see NOTICE.

May import spaces.
"""

from importlib.resources import as_file, files

from kedge.spaces import Embeddings, read_embeddings


def load_demo_words() -> tuple[Embeddings, Embeddings]:
    """The two spaces, rows in the same order (by frequency)."""
    with as_file(files(__name__) / "word2vec.npz") as x, as_file(files(__name__) / "glove.npz") as y:
        return read_embeddings(x), read_embeddings(y)
