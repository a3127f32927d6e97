"""The results of a rehearsal: metrics in each direction, or the discovery's own estimate if nothing was measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from kedge.errors import InputError
from kedge.tasks.rehearsal.judged import JudgedSearches
from kedge.tasks.rehearsal.metrics import DirectionResult, as_cell, as_text

DIRECTION_NAMES = {
    "translated_queries": "translated queries",
    "translated_index": "translated index",
    "given_queries": "translated index, your queries",
}
"""Table names of the directions of a `Rehearsal`."""

MIN_PAIRS = 10
"""With fewer known pairs nothing is measured, and the discovery's held-out scores are all there is."""

MIN_TEXTS = 100
"""In a smaller index the right texts would be found by chance too often for the result to mean anything."""

Metric = Literal["self_recall_1", "self_recall_10", "overlap", "ndcg", "recall_1", "recall_10", "judged_ndcg"]
Direction = Literal["both", "queries", "index"]

_MEASURED_IN: dict[Direction, tuple[str, ...]] = {
    "both": tuple(DIRECTION_NAMES),
    "queries": ("translated_queries",),
    "index": ("translated_index", "given_queries"),
}


@dataclass(frozen=True)
class HeldOut:
    """Scores of a map on the pairs that the discovery held out; None if there were too few pairs.

    `mrr` is the mean reciprocal rank of the partner among at most about 5,000 rows, `overlap` the share of the
    partner's ten nearest neighbours that is found.
    """

    mrr: float | None
    overlap: float | None


@dataclass(frozen=True)
class Estimate:
    """The discovery's own scores, which stand in for a measurement if there are no known pairs.

    `translated_queries` is for the map that `translate` uses, `translated_index` for the one of `translate` with
    `back`. `meaningful` says whether these figures mean anything, and `caveat` how far to trust them.
    """

    translated_queries: HeldOut
    translated_index: HeldOut
    meaningful: bool
    caveat: str

    def table(self) -> list[tuple[str, ...]]:
        """Rows of a printable table: direction, mean reciprocal rank, overlap."""
        held_out = {"translated_queries": self.translated_queries, "translated_index": self.translated_index}
        return [(DIRECTION_NAMES[name], as_text(each.mrr), as_text(each.overlap)) for name, each in held_out.items()]


class LowestMetric(NamedTuple):
    """The lowest value of a metric and the direction that has it; both are given by field name."""

    metric: str
    direction: str
    value: float


@dataclass(frozen=True)
class Rehearsal:
    """What searches would lose if the model were changed.

    `pairs` is the number of known pairs it was measured on. Of these, `found` are also among the pairs that the run
    found and learned from, so they are easier than others. Another `seeds` known pairs were left out because they share
    a row with a seed. A direction is None if it was not measured, `given_queries` also if no queries were given.
    `held_out` holds the discovery's own scores. `judged_queries` are searches with real queries whose relevant texts
    are known; everything else except `given_queries` uses texts of the index in place of queries, which flatters.
    """

    pairs: int
    seeds: int
    found: int
    translated_queries: DirectionResult | None
    translated_index: DirectionResult | None
    given_queries: DirectionResult | None
    held_out: Estimate
    judged_queries: JudgedSearches | None = None

    @property
    def is_estimate(self) -> bool:
        """Whether nothing was measured and `held_out` is all there is."""
        return self.translated_queries is None

    @property
    def directions(self) -> dict[str, DirectionResult]:
        """The measured directions, by name."""
        named = {name: getattr(self, name) for name in DIRECTION_NAMES}
        return {name: result for name, result in named.items() if result is not None}

    @property
    def flattery(self) -> float | None:
        """How much it flatters to use texts of the index as queries; None if it was not measured.

        This is how often such a text finds itself among ten, minus the recall@10 of judged queries, both translated.
        """
        if self.judged_queries is None or self.translated_queries is None:
            return None
        itself, found = self.translated_queries.metrics.self_recall_10, self.judged_queries.searches
        asked = found["translated_queries"].metrics.recall_10.estimate
        return None if itself is None or itself.estimate is None or asked is None else itself.estimate - asked

    @property
    def remarks(self) -> tuple[str, ...]:
        """Sentences about what the metrics leave out."""
        if self.is_estimate:
            return ()
        remarks = []
        if self.flattery is not None:
            effect, often = ("flatters", "more") if self.flattery >= 0 else ("understates", "less")
            remarks.append(
                f"The queries here are texts of the index, not what people ask. That {effect}: they find themselves "
                f"among ten {often} often than your queries find what is relevant, by {abs(self.flattery):.3f}."
            )
        else:
            remarks.append(
                "The queries here are texts of the index, not what people ask, and such figures flatter: real queries "
                "may find less than half of that. Give some with what they should find (--queries with --relevant), or "
                "make stand-ins from the texts (--proxy)."
            )
        if self.translated_index is None:
            remarks.append(f"The translated index was not measured: that needs at least {MIN_TEXTS} known texts.")
        if self.found:
            overlap = self.held_out.translated_queries.overlap
            honest = "" if overlap is None else f" (translated queries, on pairs it held out: overlap@10 {overlap:.3f})"
            remarks.append(
                f"The run found {self.found} of these pairs itself and learnt from them; other texts lose more{honest}."
            )
        return tuple(remarks)

    def table(self) -> list[tuple[str, ...]]:
        """Rows of a printable table: direction, number of queries, number of rows in the index, metrics."""
        return [
            (DIRECTION_NAMES[name], f"{result.queries}", f"{result.index}", *map(as_cell, result.metrics.in_order()))
            for name, result in self.directions.items()
        ]

    def lowest(self, metric: Metric = "self_recall_10", direction: Direction = "both") -> LowestMetric | None:
        """The lowest value of a metric over the measured directions, in both or in one; None if there is no value.

        In an estimate the mean reciprocal rank stands in for "self_recall_10", which is hardly ever below it;
        "self_recall_1" and "ndcg" have no stand-in. "recall_1", "recall_10" and "judged_ndcg" refer to judged queries.
        """
        if metric not in get_args(Metric):
            raise InputError(f"metric must be one of {', '.join(get_args(Metric))}, got {metric!r}")
        if direction not in _MEASURED_IN:
            raise InputError(f"direction must be one of {', '.join(_MEASURED_IN)}, got {direction!r}")
        values = [each for each in self._values(metric) if each.direction in _MEASURED_IN[direction]]
        return min(values, key=lambda each: each.value, default=None)

    def _values(self, metric: Metric) -> list[LowestMetric]:
        """The value of a metric in each direction where it is known."""
        field: str = metric
        values: dict[str, float | None]
        if metric in ("recall_1", "recall_10", "judged_ndcg"):
            sides, judged = ("translated_queries", "translated_index"), self.judged_queries
            named = metric.removeprefix("judged_")
            values = {} if judged is None else {name: judged.value(name, named) for name in sides}
        elif not self.is_estimate:
            intervals = {name: getattr(result.metrics, metric) for name, result in self.directions.items()}
            values = {name: interval and interval.estimate for name, interval in intervals.items()}
        elif metric in ("self_recall_10", "overlap") and self.held_out.meaningful:
            field = "mrr" if metric == "self_recall_10" else metric
            sides = ("translated_queries", "translated_index")
            values = {name: getattr(getattr(self.held_out, name), field) for name in sides}
        else:
            values = {}
        return [LowestMetric(field, name, value) for name, value in values.items() if value is not None]
