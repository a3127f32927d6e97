"""Several runs over many spaces, side by side: what each found, and how far their groups agree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

from kedge.errors import InputError
from kedge.judging.health import Answer
from kedge.many.common_space import CommonSpace
from kedge.tasks.run_comparison.agreement import PairAgreement

COMMON_COLUMNS = ("run", "map", "pairs", "spaces", "groups", "expected precision", "agreement", "left out")
"""Headers of the table of runs."""

_AGREES = 0.5


@dataclass(frozen=True)
class CommonRunSummary:
    """A run: its answers, members, number of groups of two or more rows, their mean probability, and spaces left out.

    `agreement` is the mean share of its pairs that the other runs have as well (None if none can be compared).
    """

    name: str
    map: Answer
    pairs: Answer
    members: tuple[str, ...]
    groups: int
    expected_precision: float | None
    agreement: float | None
    left_out: tuple[str, ...]


@dataclass(frozen=True)
class CommonComparison:
    """Runs side by side.

    `agreements[i][j]` is how far the pairs in groups of run i agree with run j. `trusted` is the name of the run to
    trust, or None; `reason` says why.
    """

    runs: tuple[CommonRunSummary, ...]
    agreements: tuple[tuple[PairAgreement, ...], ...]
    trusted: str | None
    reason: str

    def table(self) -> list[tuple[str, ...]]:
        """Rows of a printable table, in the order of `COMMON_COLUMNS`."""
        return [
            (
                run.name,
                run.map.verdict,
                run.pairs.verdict,
                str(len(run.members)),
                f"{run.groups:,}",
                _percent(run.expected_precision),
                _percent(run.agreement),
                ", ".join(run.left_out) or "-",
            )
            for run in self.runs
        ]

    def agreement_table(self) -> list[tuple[str, ...]]:
        """For each run, how far its pairs agree with each other run."""
        return [
            (run.name, *("" if one == other else _percent(each.share) for other, each in enumerate(row)))
            for one, (run, row) in enumerate(zip(self.runs, self.agreements, strict=True))
        ]


def compare_common_runs(runs: Mapping[str, CommonSpace]) -> CommonComparison:
    """Compare named runs over many spaces; members count as the same if their names and vectors are equal."""
    if len(runs) < 2:
        raise InputError(f"at least two runs are needed to compare them, got {len(runs)}")
    first = next(iter(runs))
    for name, common in runs.items():
        if len(_shared_members(runs[first], common)) < 2:
            raise InputError(
                f"{name}: has fewer than two members in common with {first} (of the same name and vectors); compare "
                "runs over the same spaces"
            )
    agreements = tuple(tuple(_agreement(one, other) for other in runs.values()) for one in runs.values())
    summaries = tuple(
        _summary(name, common, row[:number] + row[number + 1 :])
        for number, ((name, common), row) in enumerate(zip(runs.items(), agreements, strict=True))
    )
    return CommonComparison(summaries, agreements, *_trust(summaries))


def _summary(name: str, common: CommonSpace, others: tuple[PairAgreement, ...]) -> CommonRunSummary:
    many = (common.groups_ >= 0).sum(axis=1) > 1
    shares = [each.share for each in others if each.share is not None]
    return CommonRunSummary(
        name,
        common.health_.map,
        common.health_.pairs,
        tuple(common.members_),
        int(many.sum()),
        float(common.group_probability_[many].mean()) if many.any() else None,
        sum(shares) / len(shares) if shares else None,
        tuple(common.health_.left_out),
    )


def _agreement(one: CommonSpace, other: CommonSpace) -> PairAgreement:
    """How many pairs in groups of one run are in one group of another run too, or contradicted by it."""
    names = _shared_members(one, other)
    here = [list(one.members_).index(name) for name in names]
    there = [list(other.members_).index(name) for name in names]
    partners = [{group[place]: group for group in other.groups_.tolist() if group[place] >= 0} for place in there]
    same = contradicted = unknown = 0
    for group in one.groups_.tolist():
        for a, b in combinations(range(len(names)), 2):
            left, right = group[here[a]], group[here[b]]
            if left < 0 or right < 0:
                continue
            found = partners[a].get(left)
            back = partners[b].get(right)
            if found and found[there[b]] == right:
                same += 1
            elif (found and found[there[b]] >= 0) or (back and back[there[a]] >= 0):
                contradicted += 1
            else:
                unknown += 1
    return PairAgreement(same, contradicted, unknown)


def _shared_members(one: CommonSpace, other: CommonSpace) -> list[str]:
    return [
        name
        for name, member in one.members_.items()
        if name in other.members_ and other.members_[name].checksum == member.checksum
    ]


def _trust(runs: tuple[CommonRunSummary, ...]) -> tuple[str | None, str]:
    """Of the runs that agree with the others and whose map is ok, the one with most members, then the surest pairs."""
    agreeing = [run for run in runs if run.agreement is None or run.agreement >= _AGREES]
    ok = [run for run in agreeing if run.map.verdict == "ok"]
    if not ok:
        why = "none of them has a map that is ok" if agreeing else "they contradict each other"
        return None, f"{why}; give seeds, or seeds between more of the spaces"
    best = max(ok, key=lambda run: (len(run.members), run.pairs.score))
    return (
        best.name,
        f"its map is ok for {len(best.members)} spaces, and its pairs are the surest ({best.pairs.reason})",
    )


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"
