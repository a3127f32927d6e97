"""A lexicon: a table of the translations of every row of X that are probably acceptable."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from kedge.estimators import AnchorDiscovery
from kedge.estimators.pair_inputs import PairsLike
from kedge.estimators.translations import Translations, find_translations
from kedge.judging.health import Answer
from kedge.spaces import Embeddings
from kedge.spaces.conversion import SpaceLike, as_space
from kedge.spaces.embeddings import Key
from kedge.spaces.pairs import write_table
from kedge.spaces.writing.atomic import atomic_path

COLUMNS = ("source", "target", "probability", "rank")
"""Columns of a lexicon's table."""


class Translation(NamedTuple):
    """A key of X, a key of Y, the probability that the second is an acceptable translation, and its rank, from 1."""

    source: Key
    target: Key
    probability: float
    rank: int


@dataclass(frozen=True)
class Lexicon:
    """Translations between two spaces; by default `entries` lists those at least as probable as `min_confidence`."""

    x: Embeddings
    y: Embeddings
    translations: Translations
    min_confidence: float

    @property
    def answer(self) -> Answer:
        """Whether the translations are good enough for a lexicon."""
        return self.translations.answer

    def entries(self, min_confidence: float | None = None) -> Iterator[Translation]:
        """The translations with at least this probability, in the order of X, the best of each row first."""
        rows, ranks = self.translations.listed(self.min_confidence if min_confidence is None else min_confidence)
        targets = self.translations.rows[rows, ranks].tolist()
        probabilities = self.translations.probability[rows, ranks].tolist()
        for row, rank, target, probability in zip(rows.tolist(), ranks.tolist(), targets, probabilities, strict=True):
            yield Translation(self.x.keys[row], self.y.keys[target], probability, rank + 1)

    def surest(self, count: int) -> list[Translation]:
        """The `count` most probable entries."""
        return sorted(self.entries(), key=lambda entry: -entry.probability)[:count]

    def write(self, path: Path, *, spreadsheet_safe: bool = False) -> int:
        """Write the entries as a tab-separated table, and return how many there are."""
        entries = list(self.entries())
        lines = ((str(one.source), str(one.target), f"{one.probability:.4f}", str(one.rank)) for one in entries)
        with atomic_path(path) as temporary:
            write_table(temporary, COLUMNS, lines, spreadsheet_safe=spreadsheet_safe)
        return len(entries)


def make_lexicon(
    discovery: AnchorDiscovery,
    x: SpaceLike,
    y: SpaceLike,
    *,
    top: int = 3,
    min_confidence: float = 0.5,
    known: PairsLike = None,
    device: str = "auto",
) -> Lexicon:
    """For each row of X the best `top` rows of Y, with the probability that each is an acceptable translation.

    No new discovery is needed. Several rows of X may share a translation, and a row may have several. The probabilities
    are calibrated on the seeds that do not look wrong and on `known` pairs, each held out in turn; if there are none,
    by how fast rivals thin out. Spaces and pairs are accepted in any form that `AnchorDiscovery.fit` takes, but a row
    may have several known partners.
    """
    space_x, space_y = as_space(x, "x"), as_space(y, "y")
    found = find_translations(
        discovery, space_x, space_y, top=top, known=known, min_confidence=min_confidence, device=device
    )
    return Lexicon(space_x, space_y, found, min_confidence)
