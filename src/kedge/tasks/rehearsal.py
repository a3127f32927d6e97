"""A rehearsal: what searches would lose if the embedding model were changed, measured before it is.

X is the new model's space, Y the old one's, whose vectors are in the index. There are two ways to change over without
encoding everything again: *queries across*, new queries translated into the old index; and *index across*, the old
index carried into the new model's space, where new queries search it as they are. Both are tried on texts of which both
models have a vector.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from kedge.errors import InputError
from kedge.estimators import AnchorDiscovery
from kedge.estimators.devices import normalise_rows, resolve_device
from kedge.estimators.inputs import RandomState, as_random_state
from kedge.estimators.pair_inputs import PairsLike, as_seed_rows
from kedge.judging.health import Interval
from kedge.models.maps import ENOUGH_KNOWN
from kedge.spaces import Embeddings
from kedge.spaces.conversion import SpaceLike, as_space
from kedge.tasks.searching import loaded, ten_nearest
from kedge.tasks.ways import Way, groups_of, outcomes_of, told, way_of

WAY_NAMES = {
    "queries_across": "queries across",
    "index_across": "index across",
    "given_queries": "index across, your queries",
}
"""What tables call the ways of a `Rehearsal`."""

Figure = Literal["own_1", "own_10", "overlap", "ndcg"]
Side = Literal["both", "queries", "index"]

FEWEST_PAIRS = 10
"""With fewer known pairs nothing is measured, and what the discovery held out has to do."""

FEWEST_TEXTS = 100
"""An index of fewer texts would find the right ones by chance too often to tell anything."""

_WAYS: dict[str, tuple[str, ...]] = {
    "both": tuple(WAY_NAMES),
    "queries": ("queries_across",),
    "index": ("index_across", "given_queries"),
}


@dataclass(frozen=True)
class HeldOut:
    """How a map does on the pairs that the discovery held out: the mean reciprocal rank of the partner among at most
    some 5,000 rows, and the share of its ten neighbours that is found; None where there were too few pairs.
    """

    own_rank: float | None
    overlap: float | None


@dataclass(frozen=True)
class Estimate:
    """What the discovery itself says, which stands in for a measurement where there are no known pairs.

    `queries_across` is of the map that `translate` uses, `index_across` of that of `translate_back`. `telling`: whether
    these figures say anything; `caveat` is a sentence on what to make of them.
    """

    queries_across: HeldOut
    index_across: HeldOut
    telling: bool
    caveat: str

    def table(self) -> list[tuple[str, ...]]:
        """The rows of a table for people: a way, mean reciprocal rank, overlap."""
        ways = {"queries_across": self.queries_across, "index_across": self.index_across}
        return [(WAY_NAMES[name], *map(told, (way.own_rank, way.overlap))) for name, way in ways.items()]


class Judged(NamedTuple):
    """One figure of one way that stands for all: its names, and its value."""

    figure: str
    way: str
    value: float


@dataclass(frozen=True)
class Rehearsal:
    """What searches would lose if the model were changed.

    `pairs` is the number of known pairs it was measured on, of which `found` are also among the pairs that the run
    found by itself and has learnt from, so that they are easier than others; besides these, `seeds` known pairs were
    left out, as they share a row with a seed. A way is None where it was not measured, `given_queries` where none were
    given. `held_out` is what the discovery itself says.
    """

    pairs: int
    seeds: int
    found: int
    queries_across: Way | None
    index_across: Way | None
    given_queries: Way | None
    held_out: Estimate

    @property
    def is_estimate(self) -> bool:
        """Whether nothing was measured, so that `held_out` is all there is."""
        return self.queries_across is None

    @property
    def ways(self) -> dict[str, Way]:
        """The ways that were measured, by name."""
        named = {name: getattr(self, name) for name in WAY_NAMES}
        return {name: way for name, way in named.items() if way is not None}

    @property
    def remarks(self) -> tuple[str, ...]:
        """Sentences on what the figures leave out, if there is something to say."""
        if self.is_estimate:
            return ()
        remarks = []
        if self.index_across is None:
            remarks.append(f"Index across was not measured: {FEWEST_TEXTS} known texts are needed to make an index of.")
        if self.found:
            overlap = self.held_out.queries_across.overlap
            honest = (
                "" if overlap is None else f" (queries across, on pairs that it held out: overlap@10 {overlap:.3f})"
            )
            remarks.append(
                f"{self.found} of these pairs the run found itself and learnt from: others lose more{honest}."
            )
        return tuple(remarks)

    def table(self) -> list[tuple[str, ...]]:
        """The rows of a table for people: a way, how many queries and rows in the index, figures with intervals."""
        return [
            (WAY_NAMES[name], f"{way.queries}", f"{way.index}", *map(_told_with_interval, way.figures.in_order()))
            for name, way in self.ways.items()
        ]

    def judged(self, by: Figure = "own_10", way: Side = "both") -> Judged | None:
        """The smallest value of a figure over the ways that were measured: of both, or of one.

        In an estimate the mean reciprocal rank stands for "own_10", which it is hardly ever above, and there is nothing
        that could stand for "own_1" and "ndcg". None where there is no such figure.
        """
        if by not in get_args(Figure) or way not in _WAYS:
            raise InputError(
                f"by must be one of {', '.join(get_args(Figure))} and way one of {', '.join(_WAYS)}, "
                f"got {by!r} and {way!r}"
            )
        values = [Judged(*found) for found in self._values(by) if found[1] in _WAYS[way]]
        return min(values, key=lambda judged: judged.value, default=None)

    def _values(self, by: Figure) -> list[tuple[str, str, float]]:
        """Figure, way and value, as far as they are known."""
        if self.is_estimate:
            field = {"own_10": "own_rank", "overlap": "overlap"}.get(by)
            if field is None or not self.held_out.telling:
                return []
            held_out = ((way, getattr(self.held_out, way)) for way in ("queries_across", "index_across"))
            values = [(field, way, getattr(scores, field)) for way, scores in held_out]
        else:
            intervals = ((name, getattr(way.figures, by)) for name, way in self.ways.items())
            values = [(by, name, interval and interval.estimate) for name, interval in intervals]
        return [found for found in values if found[2] is not None]


def rehearse(
    discovery: AnchorDiscovery,
    x: SpaceLike,
    y: SpaceLike,
    known: PairsLike = None,
    *,
    queries: SpaceLike | None = None,
    device: str = "auto",
    random_state: RandomState = 0,
) -> Rehearsal:
    """Say what searches would lose if X's model took the place of Y's, which the index was made with.

    *Queries across*: the rows of X among the known pairs, translated, search all rows of Y; the reference is what the
    old model's own vector of the same text finds there. *Index across*: the rows of Y among the known pairs, carried
    back, are an index that the rows of X search as they are; the reference is what they find among themselves, an index
    of the same texts by the new model.

    Parameters
    ----------
    discovery : AnchorDiscovery
        Fitted on these spaces, on parts of them, or on others of the same two models.
    x, y : spaces (n, dx) and (m, dy)
        The new model's space, and the old model's: the index. Embeddings, arrays, DataFrames, ...: see
        `AnchorDiscovery.fit`.
    known : pairs of keys or rows, optional
        Rows of x and y that are the same text, in any of the forms that seeds have there; each row in one pair at most.
        Those that share a key with a seed are left out. With fewer than ten others nothing is measured, and `held_out`
        has to do.
    queries : space (q, dx), optional
        Vectors, by the new model, of queries as they are really asked. They have no text in the index, so that they are
        compared only in what they find in the carried index and in the new model's own, `given_queries`.
    device : str
        Where to compute: "auto", "cpu", "cuda" or "cuda:N".
    random_state : int, generator of NumPy or None
        What the intervals and the clusters depend on.
    """
    place = resolve_device(device)
    space_x, space_y = as_space(x, "x"), as_space(y, "y")
    asked = None if queries is None else as_space(queries, "queries").with_text_keys()
    for space, name, dim in (
        (space_x, "X, the new model's,", discovery.map_.shape[0]),
        (space_y, "Y, the old model's,", discovery.map_.shape[1]),
        (asked, "X, the new model's,", discovery.map_.shape[0]),
    ):
        if space is not None and space.dim != dim:
            raise InputError(
                f"{space.source}: has {space.dim} dimensions, {name} has {dim} in this run; give the new model's "
                "vectors as X, the old one's as Y"
            )
    given = as_seed_rows(known, space_x, space_y, 0, "known pairs")
    # A run that was loaded has texts as keys; so what it is compared with has them too.
    discovery = discovery.with_text_keys()
    space_x, space_y = space_x.with_text_keys(), space_y.with_text_keys()
    pairs = _without_seeds(discovery, space_x, space_y, given)
    listed = set(discovery.pair_keys_)
    ways = _measured(discovery, space_x, space_y, pairs, asked, place, as_random_state(random_state))
    return Rehearsal(
        pairs=len(pairs),
        seeds=len(given) - len(pairs),
        found=sum((space_x.keys[left], space_y.keys[right]) in listed for left, right in pairs.tolist()),
        queries_across=ways.get("queries_across"),
        index_across=ways.get("index_across"),
        given_queries=ways.get("given_queries"),
        held_out=_held_out(discovery),
    )


def _as_they_are(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Vectors (k, d) for an index that compares by cosine."""
    return normalise_rows(vectors, None)


def _without_seeds(
    discovery: AnchorDiscovery, x: Embeddings, y: Embeddings, pairs: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Those of the pairs (g, 2) of which neither row has the key of a seed's."""
    seeds_x, seeds_y = ({seed[side] for seed in discovery.seed_keys_} for side in (0, 1))
    kept = [x.keys[left] not in seeds_x and y.keys[right] not in seeds_y for left, right in pairs.tolist()]
    return pairs[np.asarray(kept, dtype=bool)]


def _measured(
    discovery: AnchorDiscovery,
    x: Embeddings,
    y: Embeddings,
    pairs: NDArray[np.int64],
    asked: Embeddings | None,
    device: torch.device,
    random_state: int,
) -> dict[str, Way]:
    """The ways, by name, as far as pairs (p, 2) and queries that are asked allow."""
    ways: dict[str, Way] = {}
    if len(pairs) < FEWEST_PAIRS:
        return ways
    chance = np.random.default_rng(random_state)
    texts = x.take(pairs[:, 0])
    groups = groups_of(discovery, texts, random_state)

    index = loaded(_as_they_are, y.vectors, device)
    own = torch.from_numpy(pairs[:, 1]).to(device)
    found = ten_nearest(loaded(discovery.translate, texts.vectors, device), index)
    ways["queries_across"] = way_of(outcomes_of(found, ten_nearest(index[own], index), own), len(index), groups, chance)
    if len(pairs) < FEWEST_TEXTS:
        return ways

    native = loaded(_as_they_are, texts.vectors, device)
    carried = loaded(discovery.translate_back, y.vectors[pairs[:, 1]], device)
    own = torch.arange(len(native), device=device)
    outcomes = outcomes_of(ten_nearest(native, carried), ten_nearest(native, native), own)
    ways["index_across"] = way_of(outcomes, len(carried), groups, chance)
    if asked is not None:
        queries = loaded(_as_they_are, asked.vectors, device)
        outcomes = outcomes_of(ten_nearest(queries, carried), ten_nearest(queries, native))
        ways["given_queries"] = way_of(outcomes, len(carried), groups_of(discovery, asked, random_state), chance)
    return ways


def _held_out(discovery: AnchorDiscovery) -> Estimate:
    """What the discovery measured when it chose its maps, and what that is worth."""
    forward, back = (_scores(discovery, name) for name in ("map", "map_back"))
    trusted = int((~discovery.seed_is_suspect_).sum())
    measured = None not in (forward.own_rank, forward.overlap, back.own_rank, back.overlap)
    if not measured:
        caveat = "The discovery had too few pairs to hold some out: nothing can be said without known pairs."
    elif trusted >= ENOUGH_KNOWN:
        caveat = "Measured by the discovery on seeds that it held out."
    elif discovery.health_.map.verdict == "ok":
        caveat = (
            "Measured by the discovery on pairs that it found and held out, which are easier than the rest: more will "
            "be lost."
        )
    else:
        caveat = (
            f"The map is not called right and there are fewer than {ENOUGH_KNOWN} seeds, so that what the discovery "
            "held out says nothing: give known pairs."
        )
    telling = measured and (trusted >= ENOUGH_KNOWN or discovery.health_.map.verdict == "ok")
    return Estimate(forward, back, telling, caveat)


def _scores(discovery: AnchorDiscovery, name: str) -> HeldOut:
    own_rank, overlap = (discovery.map_scores_[name][field] for field in ("own_rank", "overlap"))
    return HeldOut(None if own_rank is None else float(own_rank), None if overlap is None else float(overlap))


def _told_with_interval(interval: Interval | None) -> str:
    return f"{interval.estimate:.3f} ({interval.low:.3f} to {interval.high:.3f})" if interval else "-"
