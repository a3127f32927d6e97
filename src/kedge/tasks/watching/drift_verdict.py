"""Compare two sets of vectors of the same items: is it still the same model? If not, what has changed, and where?"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from kedge.errors import InputError
from kedge.spaces.conversion import SpaceLike, as_space
from kedge.spaces.embeddings import Embeddings, Key
from kedge.tasks.watching.likeness import Rows, likeness, unit_rows, unrelated_below

DriftVerdict = Literal[
    "same", "same but for precision", "shortened", "shuffled", "rotated", "fine-tuned", "another model", "mixed"
]

UNCHANGED: frozenset[str] = frozenset({"same", "same but for precision"})
"""The verdicts after which an index keeps answering as before."""

MIN_COMMON = 10
"""The minimum number of items in both sets."""

# Entries of unit vectors that differ by less than this are equal up to the last bits of float32.
_SAME = 2e-6
# Cosine of a row with itself after rounding to 16 or 8 bits, or for a model whose weights were rounded to 8 bits.
_PRECISE = 0.98
# Cosine of 99 % of the items after rounding: hardly any step of training moves them so little.
_ROUNDED = 0.9999
# Cosines for a model with weights in 4 bits or layers computed in 8 bits: the mean cosine about the means, and the
# plain cosine of 99 % of the items.
_COARSE, _COARSE_LOW = 0.9, 0.8
# Rounding moves items in as many directions as there are, and hardly in a common one; training moves them in a few.
_MIN_BREADTH, _MAX_COMMON = 0.8, 0.5
# An item whose cosine is below this has a different vector, not a rounded one.
_MOVED = 0.95
# Cosine for vectors with so few distinct values that they must have been quantised: binary ones keep only signs.
_QUANTISED, _MAX_LEVELS = 0.6, 256
# Correlation of all cosines between items, which no rotation changes. If most directions were kept, it must be higher:
# images of a few classes agree to 0.996 after training, too.
_ROTATED, _SAME_ANGLES = 0.99, 0.9999
# Cosine of a row with itself about the means of both sets: a fine-tuned model has at least this.
_FINE_TUNED = 0.5
# A model of the same family, trained further, has at least this; unrelated ones are at 0.
_RELATED = 0.15
_SAMPLE = 2000
_NEIGHBOURS = 10
_MIN_ROWS_PER_DIM = 1.5


@dataclass(frozen=True)
class Drift:
    """What `drift` found.

    Parameters
    ----------
    verdict : str
        "same"; "same but for precision"; "shortened" (one set holds the first dimensions of the other); "shuffled" (the
        same vectors under other ids); "rotated" (all angles as before, other coordinates); "fine-tuned" (moved, but
        most directions kept); "another model"; or "mixed" (`changed_keys` changed, the other rows did not).
    reason : str
        A sentence for people.
    common, only_a, only_b : int
        Number of items in both sets, only in A and only in B.
    cosine, cosine_low : float or None
        Cosine of an item's two vectors: mean and 1 % quantile. None if the dimensions differ.
    centered_cosine : float or None
        Mean cosine after subtracting the mean of each set, so that what all items share does not count.
    rotation_cosine : float or None
        Mean cosine after the best rotation, fitted on one half of the items and measured on the other; None if there
        are too few items to fit one.
    pairwise : float
        Correlation of the cosines between items in A with those in B: 1 if only coordinates have changed.
    overlap : float
        The share of an item's ten nearest neighbours in A that are among its ten nearest in B.
    changed_keys : list
        For "mixed", the items whose vectors changed, those that moved furthest first.
    changed : str or None
        For "mixed", what the changed rows are: "another model", "rotated", "other content, or a related model",
        "fine-tuned, or slightly other content", or "too few to say why".
    """

    verdict: DriftVerdict
    reason: str
    common: int
    only_a: int
    only_b: int
    cosine: float | None
    cosine_low: float | None
    centered_cosine: float | None
    rotation_cosine: float | None
    pairwise: float
    overlap: float
    changed_keys: list[Key]
    changed: str | None = None

    @property
    def unchanged(self) -> bool:
        """Whether vectors of B can be used in an index of A."""
        return self.verdict in UNCHANGED

    def as_dict(self) -> dict[str, Any]:
        """All fields as a dictionary, for JSON."""
        return asdict(self)


def drift(a: SpaceLike, b: SpaceLike) -> Drift:
    """Compare two sets of vectors that share keys: are those of B still from the model of A?

    Parameters
    ----------
    a, b : spaces (n, d) and (m, e)
        In any form that `AnchorDiscovery.fit` takes. At least ten keys must be in both. Arrays without keys are
        compared row by row.
    """
    space_a, space_b = as_space(a, "a"), as_space(b, "b")
    keys = [key for key in space_a.keys if key in space_b.row_of]
    if len(keys) < MIN_COMMON:
        raise InputError(
            f"{space_a.source} and {space_b.source} have {len(keys)} keys in common, at least {MIN_COMMON} are needed; "
            f"keys look like {space_a.keys[0]!r} and {space_b.keys[0]!r}"
        )
    raw_a, raw_b = _rows(space_a, keys), _rows(space_b, keys)
    counts = {"common": len(keys), "only_a": len(space_a) - len(keys), "only_b": len(space_b) - len(keys)}
    whole_a, whole_b = unit_rows(raw_a), unit_rows(raw_b)
    shared = _invariants(whole_a, whole_b)
    if space_a.dim != space_b.dim:
        return _of_two_lengths(raw_a, raw_b, counts, shared)
    cosines = np.einsum("ij,ij->i", whole_a, whole_b)
    figures: dict[str, Any] = {
        **counts,
        **shared,
        "cosine": float(cosines.mean()),
        "cosine_low": float(np.quantile(cosines, 0.01)),
        "centered_cosine": _centered_cosine(whole_a, whole_b),
        "rotation_cosine": _rotation_cosine(whole_a, whole_b),
    }
    moved = _moved_rows(cosines)
    if moved is not None:
        return _mixed(whole_a, whole_b, cosines, moved, keys, figures)
    verdict = _of_all(raw_a, raw_b, whole_a, whole_b, figures)
    return Drift(verdict, _reason(verdict, figures), changed_keys=[], **figures)


def _rows(space: Embeddings, keys: list[Key]) -> NDArray[np.float32]:
    return np.asarray(space.vectors[space.rows(keys)], dtype=np.float32)


def _of_all(raw_a: Rows, raw_b: Rows, a: Rows, b: Rows, figures: dict[str, Any]) -> DriftVerdict:
    if np.quantile(np.abs(a - b).max(axis=1), 0.99) <= _SAME:
        return "same"
    if figures["cosine_low"] >= _ROUNDED:
        return "same but for precision"
    if figures["centered_cosine"] >= _COARSE and figures["cosine_low"] >= _COARSE_LOW and _is_rounding(a, b):
        return "same but for precision"
    if _is_quantised_form(raw_a, raw_b) or _is_quantised_form(raw_b, raw_a):
        return "same but for precision"
    kept = figures["centered_cosine"] >= _FINE_TUNED
    if figures["pairwise"] >= (_SAME_ANGLES if kept else _ROTATED) and figures["cosine"] < _PRECISE:
        return "rotated"
    if figures["cosine"] < _PRECISE and _under_other_keys(a, b):
        return "shuffled"
    return "fine-tuned" if kept else "another model"


def _of_two_lengths(raw_a: Rows, raw_b: Rows, counts: dict[str, int], shared: dict[str, float]) -> Drift:
    """The verdict on sets of different dimensions: a prefix of the same vectors, or another model."""
    dim = min(raw_a.shape[1], raw_b.shape[1])
    cosines = np.einsum("ij,ij->i", unit_rows(raw_a[:, :dim]), unit_rows(raw_b[:, :dim]))
    low = float(np.quantile(cosines, 0.01))
    verdict: DriftVerdict = "shortened" if low >= _PRECISE else "another model"
    lengths = f"{raw_a.shape[1]} and {raw_b.shape[1]} dimensions"
    reason = (
        f"The shorter vectors begin as the longer ones do ({lengths}; cosine of the first {dim}: {cosines.mean():.4f})."
        if verdict == "shortened"
        else f"The vectors have {lengths}, and the shorter ones are not the beginning of the longer ones."
    )
    figures: dict[str, Any] = {**counts, **shared}
    return Drift(
        verdict,
        reason,
        cosine=None,
        cosine_low=None,
        centered_cosine=None,
        rotation_cosine=None,
        changed_keys=[],
        **figures,
    )


def prefix_cost(space: SpaceLike, dims: int) -> float:
    """The share of an item's ten nearest neighbours that stay among its ten nearest in the first `dims` dimensions."""
    given = as_space(space, "space")
    drawn = np.sort(np.random.default_rng(0).permutation(len(given))[:_SAMPLE])
    some = given.take(drawn)
    return _invariants(unit_rows(some.vectors), unit_rows(some.first_dims(dims).vectors))["overlap"]


def _invariants(a: Rows, b: Rows) -> dict[str, float]:
    """What no rotation alters: the correlation of cosines between items, and the overlap of nearest neighbours."""
    drawn = np.sort(np.random.default_rng(0).permutation(len(a))[:_SAMPLE])
    grams = [rows[drawn] @ rows[drawn].T for rows in (a, b)]
    above = np.triu_indices(len(drawn), k=1)
    first, second = (gram[above].astype(np.float64) for gram in grams)
    spread = first.std() * second.std()
    pairwise = float(np.mean((first - first.mean()) * (second - second.mean())) / spread) if spread > 0 else 1.0
    count = min(_NEIGHBOURS, len(drawn) - 1)
    nearest = []
    for gram in grams:
        np.fill_diagonal(gram, -np.inf)
        nearest.append(np.argpartition(-gram, count - 1, axis=1)[:, :count])
    overlap = float((nearest[0][:, :, None] == nearest[1][:, None, :]).any(axis=2).mean())
    return {"pairwise": pairwise, "overlap": overlap}


def _centered_cosine(a: Rows, b: Rows) -> float:
    """The mean cosine of an item's two vectors about the means of both sets."""
    first, second = (unit_rows(rows - rows.mean(axis=0)) for rows in (a, b))
    return float(np.einsum("ij,ij->i", first, second).mean())


def _rotation_cosine(a: Rows, b: Rows) -> float | None:
    """The mean cosine after the best rotation, on items it was not fitted to; None if there are too few items."""
    fitted = np.random.default_rng(0).permutation(len(a)) < len(a) // 2
    if fitted.sum() < _MIN_ROWS_PER_DIM * a.shape[1]:
        return None
    left, _, right = np.linalg.svd((a[fitted].T @ b[fitted]).astype(np.float64))
    turned = a[~fitted] @ (left @ right).astype(np.float32)
    return float(np.einsum("ij,ij->i", turned, b[~fitted]).mean())


def _is_rounding(a: Rows, b: Rows) -> bool:
    """Whether items moved as rounding of vectors or weights moves them: each in a direction of its own.

    Training, even of a few steps or of low rank, moves them along a few directions, or all along one.
    """
    drawn = np.sort(np.random.default_rng(0).permutation(len(a))[:_SAMPLE])
    difference = b[drawn] - a[drawn]
    common = float(np.square(difference.mean(axis=0)).sum() / max(np.square(difference).sum(axis=1).mean(), 1e-30))
    return common < _MAX_COMMON and _breadth(difference) >= _MIN_BREADTH * _breadth(a[drawn])


def _breadth(rows: Rows) -> float:
    """In how many directions rows (n, d) vary about their mean: the participation ratio of their variances."""
    centered = (rows - rows.mean(axis=0)).astype(np.float64)
    gram = centered.T @ centered if len(centered) > centered.shape[1] else centered @ centered.T
    total = float(np.square(gram).sum())
    return float(np.trace(gram)) ** 2 / total if total > 0 else 0.0


def _is_quantised_form(fine: Rows, coarse: Rows) -> bool:
    """Whether `coarse` has few distinct values that represent, dimension by dimension, those of `fine`.

    Quantisers give each dimension a scale and a zero point of its own. Both are fitted on one half of the items.
    """
    if len(np.unique(coarse[:_SAMPLE])) > _MAX_LEVELS or len(np.unique(fine[:_SAMPLE])) <= _MAX_LEVELS:
        return False
    fitted = np.random.default_rng(0).permutation(len(fine)) < len(fine) // 2
    fine, coarse = fine.astype(np.float64), coarse.astype(np.float64)
    means = fine[fitted].mean(axis=0), coarse[fitted].mean(axis=0)
    known = coarse[fitted] - means[1]
    spread = np.square(known).sum(axis=0)
    scale = np.where(spread > 0, (known * (fine[fitted] - means[0])).sum(axis=0) / np.where(spread > 0, spread, 1), 0)
    again = means[0] + (coarse[~fitted] - means[1]) * scale
    left = np.einsum("ij,ij->i", unit_rows(again - means[0]), unit_rows(fine[~fitted] - means[0]))
    return float(np.quantile(left, 0.05)) >= _QUANTISED


def _under_other_keys(a: Rows, b: Rows) -> bool:
    """Whether most vectors of A occur in B under other keys."""
    asked = a[:: max(1, len(a) // 200)]
    found = np.zeros(len(asked))
    for begin in range(0, len(b), 8192):
        found = np.maximum(found, (asked @ b[begin : begin + 8192].T).max(axis=1))
    return float((found >= 0.999).mean()) > 0.5


def _moved_rows(cosines: NDArray[np.float32]) -> NDArray[np.bool_] | None:
    """The rows (n,) that changed, if others did not and there is a clear gap between the two; otherwise None."""
    moved, kept = cosines < _MOVED, cosines >= _PRECISE
    between = len(cosines) - moved.sum() - kept.sum()
    apart = between <= 0.05 * min(moved.sum(), kept.sum())
    return moved if moved.any() and kept.sum() >= max(3, 0.01 * len(cosines)) and apart else None


def _mixed(
    a: Rows, b: Rows, cosines: NDArray[np.float32], moved: NDArray[np.bool_], keys: list[Key], figures: dict[str, Any]
) -> Drift:
    order = np.flatnonzero(moved)[np.argsort(cosines[moved], kind="stable")]
    what = _of_moved(a[moved], b[moved], a[~moved])
    reason = (
        f"{int(moved.sum())} of {len(moved)} items have different vectors than before ({what}); the rest are unchanged."
    )
    return Drift("mixed", reason, changed_keys=[keys[row] for row in order.tolist()], changed=what, **figures)


def _of_moved(before: Rows, after: Rows, kept: Rows) -> str:
    """What happened to rows that changed while others did not: other content, another model, and so on."""
    if len(before) < 2 * MIN_COMMON:
        return "too few to say why"
    shared = _invariants(before, after)
    if shared["pairwise"] >= _ROTATED:
        return "rotated"
    alike = likeness(kept, after)
    if alike < unrelated_below(after.shape[1]):
        return "another model"
    if _centered_cosine(before, after) >= _FINE_TUNED:
        return "fine-tuned, or slightly other content"
    return "other content, or a related model"


def _reason(verdict: DriftVerdict, figures: dict[str, Any]) -> str:
    cosine, pairwise, overlap = figures["cosine"], figures["pairwise"], figures["overlap"]
    neighbours = f"{overlap:.0%} of neighbours kept"
    kept = figures["centered_cosine"]
    family = f" Perhaps of one family: with the means subtracted, the cosine is {kept:.2f}." if kept > _RELATED else ""
    return {
        "same": "Every item has the same vector as before.",
        "same but for precision": f"The vectors or the model's weights were rounded or quantised: cosine {cosine:.4f}, "
        f"{neighbours}.",
        "shuffled": "The same vectors, but under other keys.",
        "rotated": f"All angles between items are as before (correlation {pairwise:.4f}), but coordinates are not: "
        f"cosine {cosine:.2f}. A rotation brings one onto the other.",
        "fine-tuned": f"The model was trained further, or its input differs, such as by a prefix: most directions are "
        f"kept, cosine {cosine:.3f}, {neighbours}.",
        "another model": f"The coordinates mean something else: cosine {cosine:.3f}, {neighbours}.{family}",
    }[verdict]
