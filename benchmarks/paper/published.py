"""The paper's published figures (arXiv 2303.00721, means over five random seeds), to show beside ours."""

from __future__ import annotations

WORDS_DATA = "FastText (X) and Word2Vec (Y), about 20,000 words"
IMAGES_DATA = "ViT-base (X) and ViT-small (Y) features of 20,000 images; which was optimised is not said"
REVIEWS_DATA = "Amazon reviews by roberta-base (English) and roberta-base-bne (Spanish)"

ROWS = ("GT", "Seed", "AO")

# Jaccard / MRR / cosine by optimised space and direction; X is FastText, Y is Word2Vec. Same-space rows are all 1.
WORDS = {
    ("y", "x->y"): {"GT": (0.34, 0.94, 0.86), "Seed": (0.06, 0.11, 0.85), "AO": (0.52, 0.99, 0.94)},
    ("y", "y->x"): {"GT": (0.39, 0.98, 0.86), "Seed": (0.06, 0.15, 0.85), "AO": (0.50, 0.99, 0.94)},
    ("x", "x->y"): {"GT": (0.34, 0.94, 0.86), "Seed": (0.06, 0.11, 0.85), "AO": (0.49, 0.98, 0.93)},
    ("x", "y->x"): {"GT": (0.39, 0.98, 0.86), "Seed": (0.06, 0.15, 0.85), "AO": (0.50, 0.99, 0.93)},
}

# The same for images; X is ViT-base, Y is ViT-small. One space was optimised; the paper does not say which.
IMAGES = {
    "x->y": {"GT": (0.11, 0.27, 0.97), "Seed": (0.03, 0.03, 0.97), "AO": (0.10, 0.23, 0.97)},
    "y->x": {"GT": (0.10, 0.28, 0.97), "Seed": (0.03, 0.04, 0.96), "AO": (0.10, 0.28, 0.97)},
}

# Weighted F1 / MAE by (decoder, encoder).
REVIEWS = {
    ("en", "en"): {"GT": (0.64, 0.43), "Seed": (0.50, 0.69), "AO": (0.62, 0.44)},
    ("en", "es"): {"GT": (0.51, 0.67), "Seed": (0.44, 0.80), "AO": (0.48, 0.70)},
    ("es", "en"): {"GT": (0.50, 0.72), "Seed": (0.41, 0.92), "AO": (0.46, 0.76)},
    ("es", "es"): {"GT": (0.60, 0.45), "Seed": (0.48, 0.70), "AO": (0.61, 0.44)},
}


def shown(figures: tuple[float, ...]) -> str:
    """Format figures with two decimals and no leading zero, as in the paper."""
    return " / ".join(f"{value:.2f}".removeprefix("0") for value in figures)
