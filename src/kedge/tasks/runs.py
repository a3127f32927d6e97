"""Several runs over the same spaces, side by side: what each found, where they differ, and which to trust."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kedge.errors import InputError
from kedge.estimators import AnchorDiscovery
from kedge.runs.folder import settings_of
from kedge.spaces import Embeddings
from kedge.tasks.echoes import Disagreement, Echo, Partners
from kedge.tasks.evaluation import Truth, as_percent
from kedge.tasks.trust import RunFindings, Score, Trust, trust_by_health, trust_by_truth

RUN_COLUMNS = ("run", "map", "pairs", "found", "should be right", "same as others", "anchors", "seeds", "seconds")
"""What tables of runs are headed by."""

SCORE_COLUMNS = ("precision", "recall")
"""The same of what the truth says."""


@dataclass(frozen=True)
class RunsCompared:
    """Runs side by side.

    `echoes[i][j]` is what run j makes of the pairs of run i. `agreed` pairs are in all runs, with a mean confidence
    (None where there are none). To `disputed` rows of X runs give different partners; `disagreements` are some of them,
    those that a second run is surest of first. `settings` are those that differ, with a value for each run. `remarks`
    say how the spaces of the runs differ.
    """

    runs: tuple[RunFindings, ...]
    echoes: tuple[tuple[Echo, ...], ...]
    agreed: int
    agreed_confidence: float | None
    disputed: int
    disagreements: tuple[Disagreement, ...]
    settings: Mapping[str, tuple[Any, ...]]
    remarks: tuple[str, ...]
    trust: Trust

    @property
    def names(self) -> tuple[str, ...]:
        """What the runs are called."""
        return tuple(run.name for run in self.runs)

    def table(self) -> list[tuple[str, ...]]:
        """The rows of a table for people: a run each, in the order of `RUN_COLUMNS`, and of `SCORE_COLUMNS` where the
        truth is known.
        """
        return [
            (
                run.name,
                *(f"{answer.verdict} {answer.score:.2f}" for answer in (run.health.map, run.health.pairs)),
                f"{run.pairs:,}",
                as_percent(run.expected),
                as_percent(run.others),
                f"{run.anchors:,}",
                f"{run.seeds:,}",
                "-" if run.seconds is None else f"{run.seconds:.1f}",
                *((as_percent(run.score.precision), as_percent(run.score.recall)) if run.score else ()),
            )
            for run in self.runs
        ]

    def echo_table(self) -> list[tuple[str, ...]]:
        """The same of the pairs: a row for each run, and in it what each run makes of its pairs."""
        return [
            (name, *("" if other == number else _cell(echo) for other, echo in enumerate(row)))
            for number, (name, row) in enumerate(zip(self.names, self.echoes, strict=True))
        ]

    def disagreement_table(self) -> list[tuple[str, ...]]:
        """The same of the disagreements: a key of X, and its partner in each run."""
        return [
            (each.key, *(f"{partner.key} {partner.confidence:.2f}" if partner else "-" for partner in each.partners))
            for each in self.disagreements
        ]

    def setting_table(self) -> list[tuple[str, ...]]:
        """The same of the settings that differ: a name, and a value for each run."""
        return [
            (name.replace("_", " "), *("-" if value is None else str(value) for value in values))
            for name, values in self.settings.items()
        ]


def compare_runs(
    discoveries: Mapping[str, AnchorDiscovery], *, truth: Truth | None = None, examples: int = 10
) -> RunsCompared:
    """Put runs side by side, by name.

    Parameters
    ----------
    discoveries : mapping
        At least two discoveries, fitted or loaded, over the same spaces.
    truth : Truth, optional
        Then it decides which run to trust.
    examples : int
        How many disagreements to list at most.

    Raises
    ------
    InputError
        One run alone, or runs whose spaces have no key in common.
    """
    if len(discoveries) < 2:
        raise InputError(f"at least two runs are needed to compare them, got {len(discoveries)}")
    named = {name: discovery.with_text_keys() for name, discovery in discoveries.items()}
    remarks = tuple(_remarks(named))
    partners = Partners(list(named.values()))
    echoes = tuple(tuple(partners.echo(one, other) for other in range(len(named))) for one in range(len(named)))
    scores = None if truth is None else [_score(discovery, truth) for discovery in named.values()]
    runs = tuple(
        _findings(name, discovery, row[:number] + row[number + 1 :], scores[number] if scores else None)
        for number, ((name, discovery), row) in enumerate(zip(named.items(), echoes, strict=True))
    )
    agreed = partners.agreed()
    disputed, disagreements = partners.disputed(examples)
    return RunsCompared(
        runs=runs,
        echoes=echoes,
        agreed=len(agreed),
        agreed_confidence=float(agreed.mean()) if len(agreed) else None,
        disputed=disputed,
        disagreements=disagreements,
        settings=_settings_that_differ(named.values()),
        remarks=remarks,
        trust=trust_by_health(runs, echoes) if scores is None else trust_by_truth(runs, scores),
    )


def keys_of_runs(discoveries: Iterable[AnchorDiscovery]) -> tuple[Embeddings, Embeddings]:
    """The keys of X and of Y in any of the runs, those of the first in its own order, to read pairs by.

    A run does not hold the vectors of its spaces: all are 1 here.
    """
    runs = [discovery.with_text_keys() for discovery in discoveries]
    spaces = []
    for side in ("X", "Y"):
        keys = list(dict.fromkeys(key for run in runs for key in _keys(run, side)))
        spaces.append(Embeddings(keys, np.ones((len(keys), 1), dtype=np.float32), f"{side} of the runs"))
    return spaces[0], spaces[1]


def _cell(echo: Echo) -> str:
    """How much is the same, of how many pairs that both speak of."""
    return "-" if echo.share is None else f"{as_percent(echo.share)} of {echo.same + echo.contradicted:,}"


def _keys(run: AnchorDiscovery, side: str) -> list[str]:
    """The keys of X or of Y, in the order of the rows."""
    place = "XY".index(side)
    unmatched = run.unmatched_keys_x_ if side == "X" else run.unmatched_keys_y_
    keys = np.empty(len(run.pairs_) + len(unmatched), dtype=object)
    in_pairs = np.zeros(len(keys), dtype=bool)
    in_pairs[run.pairs_[:, place]] = True
    keys[run.pairs_[:, place]] = [pair[place] for pair in run.pair_keys_]
    keys[~in_pairs] = unmatched
    return keys.tolist()


def _findings(name: str, run: AnchorDiscovery, echoes: Sequence[Echo], score: Score | None) -> RunFindings:
    timings = run.provenance_.get("timings")
    together = Echo(*(sum(each) for each in zip(*echoes, strict=True)))
    return RunFindings(
        name=name,
        health=run.health_,
        pairs=len(run.pairs_),
        anchors=len(run.anchors_x_),
        seeds=len(run.seeds_),
        expected=float(run.pair_confidence_.mean()) if len(run.pairs_) else None,
        others=together.share,
        seconds=sum(timings.values()) if timings else None,
        inputs=run.provenance_.get("inputs", {}),
        score=score,
    )


def _score(run: AnchorDiscovery, truth: Truth) -> Score:
    found = {left for left, _ in truth.pairs.intersection(run.pair_keys_)}
    return Score(truth.share_right(run.pair_keys_), len(found) / len(truth.known))


def _settings_that_differ(runs: Iterable[AnchorDiscovery]) -> dict[str, tuple[Any, ...]]:
    """What runs were asked for differently, and what they were given: by name, a value for each run."""
    told = [
        settings_of(run)
        | {"seeds": len(run.seeds_), "first rows read": run.provenance_.get("limit")}
        | {"kedge": run.provenance_.get("kedge")}
        for run in runs
    ]
    values = {name: tuple(each[name] for each in told) for name in told[0]}
    return {name: each for name, each in values.items() if any(value != each[0] for value in each)}


def _remarks(runs: Mapping[str, AnchorDiscovery]) -> Iterable[str]:
    """How the spaces of the other runs differ from those of the first; if they have nothing in common, an error."""
    (first, reference), *others = runs.items()
    for side in ("X", "Y"):
        keys = set(_keys(reference, side))
        for name, run in others:
            other = set(_keys(run, side))
            common = len(keys & other)
            if not common:
                raise InputError(
                    f"{name}: its {side} and that of {first} have no key in common; compare runs over the same spaces, "
                    "X and Y the same way round"
                )
            if common < len(keys | other):
                yield f"{side} of {first} ({len(keys):,} keys) and {name} ({len(other):,}): {common:,} are in both."
            files = [each.provenance_.get("inputs", {}).get(side.lower()) for each in (reference, run)]
            if all(files) and files[0]["sha256"] != files[1]["sha256"]:
                yield f"{side} of {name} was read from another file ({files[1]['file']}) than that of {first}."
