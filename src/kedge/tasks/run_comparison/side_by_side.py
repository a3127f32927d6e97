"""Several runs over the same spaces, side by side: what each found, where they differ, and which to trust."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kedge.errors import InputError
from kedge.estimators import AnchorDiscovery
from kedge.estimators.persistence import settings_of
from kedge.spaces import Embeddings
from kedge.tasks.evaluation import Truth, as_percent
from kedge.tasks.run_comparison.agreement import Disagreement, PairAgreement, Partners
from kedge.tasks.run_comparison.trust import GoldScore, RunSummary, TrustedRun, trust_by_gold, trust_by_health

RUN_COLUMNS = ("run", "searching", "pairs", "found", "expected precision", "agreement", "anchors", "seeds", "seconds")
"""Headers of the table of runs."""

GOLD_COLUMNS = ("precision", "recall")
"""Further headers if gold pairs are given."""


@dataclass(frozen=True)
class RunComparison:
    """Runs side by side.

    `agreements[i][j]` is how far the pairs of run i agree with run j. `agreed` is the number of pairs that all runs
    share, `agreed_confidence` their mean confidence (None if there are none). `disputed` is the number of rows of X
    with different partners in different runs; `disagreements` lists some of them, by the confidence of the second
    partner. `settings` holds the settings that differ, with a value for each run. `remarks` say how the spaces of the
    runs differ.
    """

    runs: tuple[RunSummary, ...]
    agreements: tuple[tuple[PairAgreement, ...], ...]
    agreed: int
    agreed_confidence: float | None
    disputed: int
    disagreements: tuple[Disagreement, ...]
    settings: Mapping[str, tuple[Any, ...]]
    remarks: tuple[str, ...]
    trust: TrustedRun

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the runs."""
        return tuple(run.name for run in self.runs)

    def table(self) -> list[tuple[str, ...]]:
        """Rows of a printable table, one per run: `RUN_COLUMNS`, followed by `GOLD_COLUMNS` if gold pairs are given."""
        return [
            (
                run.name,
                *(answer.verdict for answer in (run.health.searching, run.health.pairs)),
                f"{run.pairs:,}",
                as_percent(run.expected_precision),
                as_percent(run.agreement),
                f"{run.anchors:,}",
                f"{run.seeds:,}",
                "-" if run.seconds is None else f"{run.seconds:.1f}",
                *map(as_percent, run.gold or ()),
            )
            for run in self.runs
        ]

    def agreement_table(self) -> list[tuple[str, ...]]:
        """Rows of a printable table, one per run: how far its pairs agree with each other run."""
        return [
            (name, *("" if other == number else _as_cell(each) for other, each in enumerate(row)))
            for number, (name, row) in enumerate(zip(self.names, self.agreements, strict=True))
        ]

    def disagreement_table(self) -> list[tuple[str, ...]]:
        """Rows of a printable table, one per disagreement: a key of X, and its partner in each run."""
        return [
            (each.key, *(f"{partner.key} {partner.confidence:.2f}" if partner else "-" for partner in each.partners))
            for each in self.disagreements
        ]

    def setting_table(self) -> list[tuple[str, ...]]:
        """Rows of a printable table, one per setting that differs: its name, and its value in each run."""
        return [
            (name.replace("_", " "), *("-" if value is None else str(value) for value in values))
            for name, values in self.settings.items()
        ]


def compare_runs(
    discoveries: Mapping[str, AnchorDiscovery], *, truth: Truth | None = None, examples: int = 10
) -> RunComparison:
    """Compare named runs side by side.

    Parameters
    ----------
    discoveries : mapping
        At least two discoveries, fitted or loaded, over the same spaces.
    truth : Truth, optional
        Gold pairs, which then decide which run to trust.
    examples : int
        The maximum number of disagreements to list.

    Raises
    ------
    InputError
        If there is only one run, or if the spaces of two runs have no key in common.
    """
    if len(discoveries) < 2:
        raise InputError(f"at least two runs are needed to compare them, got {len(discoveries)}")
    named = {name: discovery.with_text_keys() for name, discovery in discoveries.items()}
    remarks = tuple(_remarks(named))
    partners = Partners(list(named.values()))
    numbers = range(len(named))
    agreements = tuple(tuple(partners.agreement(one, other) for other in numbers) for one in numbers)
    scores = None if truth is None else [_gold_score(discovery, truth) for discovery in named.values()]
    runs = tuple(
        _summary(name, discovery, row[:number] + row[number + 1 :], scores[number] if scores else None)
        for number, ((name, discovery), row) in enumerate(zip(named.items(), agreements, strict=True))
    )
    agreed = partners.agreed()
    disputed, disagreements = partners.disputed(examples)
    return RunComparison(
        runs=runs,
        agreements=agreements,
        agreed=len(agreed),
        agreed_confidence=float(agreed.mean()) if len(agreed) else None,
        disputed=disputed,
        disagreements=disagreements,
        settings=_settings_that_differ(named.values()),
        remarks=remarks,
        trust=trust_by_health(runs, agreements) if scores is None else trust_by_gold(runs, scores),
    )


def keys_of_runs(discoveries: Iterable[AnchorDiscovery]) -> tuple[Embeddings, Embeddings]:
    """Spaces with the keys of X and Y in any of the runs, to read pairs with; those of the first run keep their order.

    A run does not hold the vectors of its spaces, so every vector is a placeholder of ones.
    """
    runs = [discovery.with_text_keys() for discovery in discoveries]
    spaces = []
    for side in ("X", "Y"):
        keys = list(dict.fromkeys(key for run in runs for key in _keys(run, side)))
        spaces.append(Embeddings(keys, np.ones((len(keys), 1), dtype=np.float32), f"{side} of the runs"))
    return spaces[0], spaces[1]


def _as_cell(agreement: PairAgreement) -> str:
    """The share of pairs that are the same, and out of how many."""
    known = agreement.same + agreement.contradicted
    return "-" if agreement.share is None else f"{as_percent(agreement.share)} of {known:,}"


def _keys(run: AnchorDiscovery, side: str) -> list[str]:
    """The keys of X or Y, in row order."""
    place = "XY".index(side)
    unmatched = run.x_.unmatched_keys if side == "X" else run.y_.unmatched_keys
    linked = run.linked_pairs()
    keys = np.empty(len(linked.keys) + len(unmatched), dtype=object)
    in_pairs = np.zeros(len(keys), dtype=bool)
    in_pairs[linked.rows[:, place]] = True
    keys[linked.rows[:, place]] = [pair[place] for pair in linked.keys]
    keys[~in_pairs] = unmatched
    return keys.tolist()


def _summary(
    name: str, run: AnchorDiscovery, with_others: Sequence[PairAgreement], gold: GoldScore | None
) -> RunSummary:
    timings = run.provenance_.get("timings")
    together = PairAgreement(*(sum(each) for each in zip(*with_others, strict=True)))
    return RunSummary(
        name=name,
        health=run.health_,
        pairs=len(run.pairs_),
        anchors=len(run.anchors_x_),
        seeds=len(run.seeds_),
        expected_precision=float(run.pair_confidence_.mean()) if len(run.pairs_) else None,
        agreement=together.share,
        seconds=sum(timings.values()) if timings else None,
        inputs=run.provenance_.get("inputs", {}),
        gold=gold,
    )


def _gold_score(run: AnchorDiscovery, truth: Truth) -> GoldScore:
    return GoldScore(truth.share_right(run.pair_keys_), truth.share_found(run.pair_keys_, run.seed_keys_))


def _settings_that_differ(runs: Iterable[AnchorDiscovery]) -> dict[str, tuple[Any, ...]]:
    """The settings and inputs that differ between runs, by name, with a value for each run."""
    described = [
        settings_of(run)
        | {"seeds": len(run.seeds_), "first rows read": run.provenance_.get("limit")}
        | {"kedge": run.provenance_.get("kedge")}
        for run in runs
    ]
    values = {name: tuple(each[name] for each in described) for name in described[0]}
    return {name: each for name, each in values.items() if any(value != each[0] for value in each)}


def _remarks(runs: Mapping[str, AnchorDiscovery]) -> Iterable[str]:
    """How the spaces of the other runs differ from those of the first; raises if they have no key in common."""
    (first, reference), *others = runs.items()
    for side in ("X", "Y"):
        keys = set(_keys(reference, side))
        for name, run in others:
            other = set(_keys(run, side))
            common = len(keys & other)
            if not common:
                raise InputError(
                    f"{name}: its {side} and that of {first} have no key in common; compare runs over the same spaces, "
                    "with X and Y in the same order"
                )
            if common < len(keys | other):
                yield f"{side} has {len(keys):,} keys in {first} and {len(other):,} in {name}; {common:,} are in both."
            files = [each.provenance_.get("inputs", {}).get(side.lower()) for each in (reference, run)]
            if all(files) and files[0]["sha256"] != files[1]["sha256"]:
                yield f"{side} of {name} was read from another file ({files[1]['file']}) than {side} of {first}."
