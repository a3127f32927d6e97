"""The answers about a common space: for every pair of spaces, every loop, and the whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal

from kedge.judging.health import OK, UNCERTAIN, Answer, verdict_of
from kedge.judging.judge import RECOGNISED_SCALE
from kedge.judging.recognition import Recognition
from kedge.many.numerics.loops import CLOSED, Loop, closures
from kedge.many.uniting import Union
from kedge.storage.schema import Count, Share, restore

BREAKS_LOOPS = Answer(
    0.0,
    "failed",
    "It looks right by itself, but no loop through it closes, while all other pairs close theirs.",
    "Check that both spaces are what they are said to be; give seeds.",
)
"""Both answers for a pair of spaces that breaks its loops."""


@dataclass(frozen=True)
class PairHealth:
    """For two spaces, by name: is the map right, and are the pairs right?

    `how` says how they were aligned. `recognised` estimates the share of rows that recognise their counterpart in
    common coordinates; `closure` is the mean share of rows that come back, beyond chance, over the loops through these
    two spaces (None without a loop).
    """

    first: str
    second: str
    how: Literal["alone", "through neighbours", "not run"]
    map: Answer
    pairs: Answer
    recognised: Share
    closure: Share | None


@dataclass(frozen=True)
class LoopHealth:
    """For three spaces, by name: the share of rows that come back, and the share expected by chance.

    `chains` counts the rows whose partners are all sure, `kept` is the share of these that comes back, and `closed`
    says whether that is enough (None if there are too few chains to say).
    """

    spaces: tuple[str, ...]
    back: Share
    chance: Share
    chains: Count
    kept: Share
    closed: bool | None


@dataclass(frozen=True)
class CommonHealth:
    """All answers about a common space.

    `map` and `pairs` are those for the whole, `each` those for the pairs of spaces, `loops` those for the loops;
    `left_out` says, by name, why a space does not belong.
    """

    map: Answer
    pairs: Answer
    each: tuple[PairHealth, ...]
    loops: tuple[LoopHealth, ...]
    left_out: dict[str, str]

    @classmethod
    def from_parts(
        cls, each: Sequence[PairHealth], loops: Sequence[LoopHealth], left_out: Mapping[str, str]
    ) -> CommonHealth:
        """Derive the answers for the whole from those for the pairs and the loops."""
        inside = [one for one in each if not {one.first, one.second} & set(left_out)]
        of_map = _whole("map", inside, left_out, _suspicious(inside, loops))
        return cls(of_map, _whole("pairs", inside, left_out, ()), tuple(each), tuple(loops), dict(left_out))

    def without(self, name: str) -> CommonHealth:
        """The answers for all other spaces."""
        return CommonHealth.from_parts(
            [pair for pair in self.each if name not in (pair.first, pair.second)],
            [loop for loop in self.loops if name not in loop.spaces],
            {other: why for other, why in self.left_out.items() if other != name},
        )

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any], where: str) -> CommonHealth:
        """Restore the result of `asdict`; raises `InputError` for anything else."""
        health: CommonHealth = restore(CommonHealth, stored, where)
        return health


def judge_union(union: Union, names: Sequence[str]) -> CommonHealth:
    """The answers about a union of spaces with these names."""
    closed = closures(union.loops)
    each = []
    for s in range(len(names)):
        for t in range(s + 1, len(names)):
            recognition = None
            if s in union.members and t in union.members:
                recognition = union.recognised.get((union.members.index(s), union.members.index(t)))
            answers = _pair_answers(union, (s, t), recognition)
            if answers is not None:
                how = union.outcomes[s, t].how if (s, t) in union.outcomes else "not run"
                share = 0.0 if recognition is None else recognition.share
                each.append(PairHealth(names[s], names[t], how, *answers, share, closed.get((s, t))))
    left_out = {names[s]: _why(union, s, names) for s in range(len(names)) if s not in union.members}
    return CommonHealth.from_parts(each, loop_healths(union.loops, names), left_out)


def loop_healths(loops: Sequence[Loop], names: Sequence[str]) -> tuple[LoopHealth, ...]:
    """Loops over spaces with these names."""
    return tuple(
        LoopHealth(
            tuple(names[space] for space in loop.spaces), loop.back, loop.chance, loop.chains, loop.kept, loop.closed
        )
        for loop in loops
    )


def _pair_answers(union: Union, pair: tuple[int, int], recognition: Recognition | None) -> tuple[Answer, Answer] | None:
    """Both answers for two spaces; None if nothing is known about them."""
    found = union.outcomes.get(pair)
    if found is None and recognition is None:
        return None
    share = 0.0 if recognition is None else recognition.share
    if pair in union.breaking:
        return BREAKS_LOOPS, BREAKS_LOOPS
    if found is None:
        score = min(1.0, RECOGNISED_SCALE * share)
        reason = f"It was not run by itself; in common coordinates {recognition}."
        of_map = Answer(score, verdict_of(score), reason, "Run the pair by itself, if much depends on it.")
    else:
        of_map = found.judged.answer
        if found.how == "through neighbours" and of_map.verdict == "ok":
            reason = f"{of_map.reason} It failed by itself, and was found through the other spaces."
            of_map = Answer(of_map.score, of_map.verdict, reason, of_map.advice)
    score = min(RECOGNISED_SCALE * share, of_map.score)
    reason = f"About {share:.0%} of the rows recognise their counterpart in common coordinates."
    advice = "Use groups of high probability first, and look at a few of them."
    return of_map, Answer(score, verdict_of(score), reason, advice)


def _suspicious(each: Sequence[PairHealth], loops: Sequence[LoopHealth]) -> list[LoopHealth]:
    """Loops that do not close although each of their three pairs was aligned by itself and looks right."""
    right = {frozenset((one.first, one.second)) for one in each if one.map.verdict == "ok" and one.how == "alone"}
    return [
        loop
        for loop in loops
        if loop.closed is False and all(frozenset(two) in right for two in combinations(loop.spaces, 2))
    ]


def _whole(
    question: Literal["map", "pairs"],
    each: Sequence[PairHealth],
    left_out: Mapping[str, str],
    broken: Sequence[LoopHealth],
) -> Answer:
    """The answer for the whole: the mean score of the pairs, capped below "ok" if a pair fails or a loop is broken."""
    if not each:
        reason = "No two of the spaces could be aligned."
        return Answer(0.0, "failed", reason, "Give seeds; check that the spaces hold the same kind of things.")
    answers = [getattr(one, question) for one in each]
    score = sum(answer.score for answer in answers) / len(answers)
    failing = [f"{one.first} and {one.second}" for one in each if getattr(one, question).verdict != "ok"]
    reason = f"{len(each) - len(failing)} of {len(each)} pairs of spaces are ok"
    if left_out:
        reason += f"; {', '.join(left_out)} {'is' if len(left_out) == 1 else 'are'} left out"
    if failing or broken:
        score = min(score, (OK + UNCERTAIN) / 2)
    if broken:
        reason += f"; {len(broken)} loops do not close (fewer than {CLOSED:.0%} of the sure rows come back)"
    advice = "Look at a few groups of high probability."
    if failing:
        advice = f"Do not rely on {failing[0]}{' and others' if len(failing) > 1 else ''}: give seeds between them."
    elif broken:
        advice = "One of the pairs in these loops is wrong, but it is not known which: give seeds."
    return Answer(score, verdict_of(score), f"{reason}.", advice)


def _why(union: Union, space: int, names: Sequence[str]) -> str:
    """Why a space is left out."""
    tried = {pair: found for pair, found in union.outcomes.items() if space in pair}
    if any(pair in union.breaking for pair in tried):
        return "its pairs look right by themselves, but break their loops"
    others = sorted(names[one] for pair in tried for one in pair if one != space)
    best = max((found.judged.score for found in tried.values()), default=0.0)
    return f"no map between it and {', '.join(others)} is ok (best score {best:.2f})"
