"""Is the map right? Judged without labels, and without asking for pairs that may not exist.

Where rows *recognise* their counterparts (`recognition`), the map is right. But noise in many dimensions can be fitted
until rows seem to recognise others; a random start on the same spaces shows how far. Where rows do not recognise their
counterparts, because few items are shared or rows look too much alike, the spaces are compared as wholes: the map
competes with what the same rounds of the same method make of random rotations (`chance`).

Rivals are grown for as long as a discovery may take, since more attempts fit noise better. Reflections of a space onto
itself that the data do not contradict (`symmetries`) are rivals too, unless seeds decide against them. Without seeds,
so is the map's own mirror image: if spaces look the same turned over, nothing says which way round they belong.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from kedge.geometry import unit
from kedge.judging.chance import SAMPLE, Ground, Rival
from kedge.judging.health import UNCERTAIN, Answer, Verdict, sentence, verdict_of
from kedge.judging.isolation import Isolation
from kedge.judging.recognition import MIN_ROWS, Choices, Recognition, count_recognised, probable_rows
from kedge.matching import Comparison, Match, Problem
from kedge.models.cross_fitting import cross_fitted
from kedge.solving.steps import Log

RECOGNISED_SCALE = 2.0
"""The score per recognised share: half of the rows make a score of 1. Closeness and agreement are not scaled."""

# How far noise can be fitted depends on the rows per dimension: with this many, fewer rows show it as well.
_CHANCE_ROWS, _CHANCE_ROWS_PER_DIM = 2000, 8
_RIVALS = 3
# The number of cross-fitted models that read the rows, which is enough for a verdict.
_FOLDS = 4
# A share of recognised rows up to which chance need not be measured.
_HARDLY = 0.05
# More rounds fit noise better: they can make about this much more seem recognised, so that what exceeds chance by less
# is compared with longer rounds, too.
_MORE_BY_SHARP_ROUNDS = 0.2
# If this share of rows is recognised beyond chance, closeness need not be measured.
_SIGNIFICANT = 0.2
_TINY = 1e-6
# Gains are compared with what the best rival gains, or with this share of all there is to gain if that is more.
_MIN_GAIN = 0.05
# A mirror image that comes within this share of the map's own gain is as good as the map.
_AS_GOOD = 0.02
# Seeds decide for a map against its image if they are closer by this much, on average, under the map.
_DECISIVE = 0.1
# This many seeds are enough for most pairs of spaces.
_ENOUGH_SEEDS = 15
_CENTER = "Center the spaces: rows that are not centered are all alike."


@dataclass(frozen=True)
class Judgement:
    """The answer, and what it rests on: see `Health`.

    `chance_rate` is the share of rows that seem recognised after a random start, already subtracted from the
    recognition; `significant` says whether more rows are recognised than chance explains; `isolation`, which rows look
    like nothing else and are left out. `known_rank` is the mean reciprocal rank of held-out known pairs if nothing but
    these shows that the map is right.
    """

    answer: Answer
    recognition: Recognition
    chance_rate: float
    significant: bool
    closeness: float | None
    agreement: float | None
    isolation: Isolation = field(compare=False, repr=False)
    known_rank: float | None = None

    @property
    def verdict(self) -> Verdict:
        """Whether it is "ok", "uncertain" or "failed"."""
        return self.answer.verdict

    @property
    def score(self) -> float:
        """How good it is, from 0 to 1."""
        return self.answer.score

    @property
    def reason(self) -> str:
        """What the verdict rests on, in a sentence."""
        return self.answer.reason

    @property
    def advice(self) -> str:
        """What to do next."""
        return self.answer.advice

    @property
    def ok(self) -> bool:
        """Whether the verdict is ok."""
        return self.answer.verdict == "ok"

    @property
    def recognised(self) -> float:
        """The approximate share of rows that recognise their counterpart."""
        return self.recognition.share

    def _repr_html_(self) -> str:
        """The answer as HTML, for notebooks."""
        return self.answer._repr_html_()


class Standing(NamedTuple):
    """By how much a map beats its best rivals in closeness and in agreement, and whether a mirror image is as good.

    Closeness is in units of what the best rival gains over no map at all, agreement in units of what that rival lacks
    to be perfect.
    """

    closeness: float
    agreement: float
    mirrored: bool = False


@dataclass(frozen=True)
class _ChanceRate:
    """The share of rows that seem recognised after a random start, and the rotation (kx, ky) that its match implies."""

    share: float
    rotation: Tensor


@dataclass(frozen=True)
class _Rivals:
    """Rotations (r, kx, ky) grown from random ones, with their values (r,) and agreements (r,)."""

    rotations: Tensor
    values: Tensor
    agreements: Tensor

    def each(self) -> list[Rival]:
        """The rivals one by one."""
        values, agreements = self.values.tolist(), self.agreements.tolist()
        return [Rival(*rival) for rival in zip(self.rotations, values, agreements, strict=True)]


class LabelFreeJudge:
    """Judges matches of one problem.

    What random starts reach on it is measured once, when first needed; the same match always gets the same judgement.
    """

    def __init__(self, problem: Problem, random_state: int, log: Log, *, disjoint: bool = False) -> None:
        self._problem = problem
        self._random_state = random_state
        self._log = log
        self._disjoint = disjoint
        self._last: tuple[Match, Judgement] | None = None

    def judge(self, problem: Problem, match: Match, rotation: Tensor | None = None) -> Judgement:
        """Judge the map that a match of all rows, or of a part of them, implies.

        If the match follows from a rotation (dx, dy) that was found without pairs, that is the map.
        """
        if self._last is None or self._last[0] is not match:
            self._last = match, self._judge(problem, match, rotation)
        return self._last[1]

    def probable(self, compared: Comparison, match: Match) -> Tensor:
        """Mask (n,) of the rows of X whose mutual pair is more likely right than wrong."""
        return probable_rows(compared, match)

    def _judge(self, part: Problem, match: Match, rotation: Tensor | None) -> Judgement:
        recognition = self._recognition(part, match)
        chance_rate = self._chance_rate if recognition.share > _HARDLY else 0.0
        significant = recognition.exceeds(chance_rate, _SIGNIFICANT)
        if not significant and recognition.exceeds(0.0, _SIGNIFICANT):
            # Fewer rows are easier to fit, so their chance rate may ask too much: measure it on more rows.
            chance_rate = min(chance_rate, self._chance_rate_of_all)
            significant = recognition.exceeds(chance_rate, _SIGNIFICANT)
        if significant and not recognition.exceeds(chance_rate, _SIGNIFICANT + _MORE_BY_SHARP_ROUNDS):
            # For the verdict alone, since rows that have a counterpart are not free to fit noise: the count stays.
            significant = recognition.exceeds(self._sharp_chance_rate(part, match), _SIGNIFICANT)
        standing = None
        enough = min(len(self._problem.x), len(self._problem.y)) >= MIN_ROWS
        if enough and not (significant and self._seeded and not self._ground.may_be_symmetric):
            standing = self._standing(part, match, rotation, random_rivals=not significant)
            if significant and self._seeded and not standing.mirrored:
                standing = None  # rows that recognise each other are proof enough
        recognition = recognition.less(chance_rate)
        answer = self._answer(recognition, significant, standing)
        closeness, agreement = (None, None) if standing is None else standing[:2]
        return Judgement(answer, recognition, chance_rate, significant, closeness, agreement, self._isolation)

    @property
    def _seeded(self) -> bool:
        return len(self._problem.seeds_x) > 0

    def _recognition(self, part: Problem, match: Match) -> Recognition:
        """How many rows of a sample recognise their counterpart; none if the spaces are disjoint or too small."""
        sample, sample_match = _sample_of_match(part, match, self._generator())
        if self._disjoint or min(len(sample.x), len(sample.y)) < MIN_ROWS:
            return Recognition(0.0, 0.0, len(sample.x), len(sample.y))
        return self._recognised(sample, sample_match)

    def _recognised(self, sample: Problem, match: Match) -> Recognition:
        honest = cross_fitted(sample, *match.pairs(), self._generator(), _FOLDS)
        isolated = Isolation.from_problem(sample) if self._isolation.any else None
        return count_recognised(Choices.from_comparison(honest, honest.match(), self._generator(), isolated))

    @cached_property
    def _isolation(self) -> Isolation:
        return Isolation.from_problem(self._problem)

    @cached_property
    def _chance_rate(self) -> float:
        """The share of rows that seem to recognise a counterpart after a random start."""
        return self._measure_chance("chance", self._chance_ground).share

    @cached_property
    def _chance_rate_of_all(self) -> float:
        """The same on as many rows as matches are judged on, which takes longer."""
        if self._chance_ground is self._ground:
            return self._chance_rate
        return self._measure_chance("chance-of-all", self._ground).share

    def _sharp_chance_rate(self, part: Problem, match: Match) -> float:
        """The same after as many rounds as a discovery may take, down to its last temperature.

        It is 0 if that random start found the map that is judged, or its mirror image: that was no chance.
        """
        ground, by_chance = self._chance_ground, self._sharp_chance
        found = ground.rotation(part, match)
        return 0.0 if ground.same_or_image(found, by_chance.rotation.to(found)) else by_chance.share

    @cached_property
    def _sharp_chance(self) -> _ChanceRate:
        return self._measure_chance("chance-sharp", self._chance_ground, sharply=True)

    def _measure_chance(self, stage: str, ground: Ground, *, sharply: bool = False) -> _ChanceRate:
        def measure() -> _ChanceRate:
            match = ground.match_by_chance(self, sharply=sharply)
            return _ChanceRate(self._recognised(ground.sample, match).share, ground.rotation(ground.sample, match))

        return self._log.once(stage, _ChanceRate, measure)

    def _standing(self, part: Problem, match: Match, rotation: Tensor | None, *, random_rivals: bool) -> Standing:
        """How the map compares with its rivals."""
        ground = self._ground
        start = ground.rotation(part, match) if rotation is None else ground.within_axes(rotation)
        found = ground.improved(start)
        if not ground.same(start, found.rotation):  # annealing has moved away from it: it was not even a local optimum
            return Standing(0.0, 0.0)
        images = ground.images(found) if self._seeded else [-found.rotation, *ground.images(found)]
        mirrors = self._others(found, [ground.improved(image) for image in images])
        mirrors = [mirror for mirror in mirrors if not self._seeds_decide(found, mirror)]
        nothing = ground.value_of_nothing
        min_gain = _MIN_GAIN * (1 - nothing)  # similarities are at most 1
        gained = max(found.value - nothing, min_gain)
        mirrored = any(found.value - mirror.value < _AS_GOOD * gained for mirror in mirrors)
        rivals = self._others(found, self._random_rivals) if random_rivals else mirrors
        value = max((rival.value for rival in rivals), default=nothing)
        agreement = max((rival.agreement for rival in rivals), default=0.0)
        return Standing(
            (found.value - value) / max(value - nothing, min_gain),
            (found.agreement - agreement) / max(1 - agreement, _TINY),
            mirrored,
        )

    def _others(self, found: Rival, rivals: list[Rival]) -> list[Rival]:
        """The rivals that are not the map itself."""
        return [rival for rival in rivals if not self._ground.same(found.rotation, rival.rotation)]

    def _seeds_decide(self, found: Rival, image: Rival) -> bool:
        """Whether seeds decide for the map and against its image."""
        if not self._seeded:
            return False
        ground, problem = self._ground, self._problem
        x = unit(problem.take_x(problem.seeds_x).float() @ ground.axes_x)
        y = unit(problem.take_y(problem.seeds_y).float() @ ground.axes_y)
        by_map, by_image = ((unit(x @ rival.rotation) * y).sum(dim=1).mean() for rival in (found, image))
        return float(by_map - by_image) > _DECISIVE

    @cached_property
    def _ground(self) -> Ground:
        return self._ground_of(SAMPLE)

    @cached_property
    def _chance_ground(self) -> Ground:
        """A ground of fewer rows, if these are enough to measure chance; otherwise the ground on which maps compete."""
        x, y = self._problem.x, self._problem.y
        rows = max(_CHANCE_ROWS, _CHANCE_ROWS_PER_DIM * max(self._problem.dims))
        return self._ground if rows >= min(SAMPLE, max(len(x), len(y))) else self._ground_of(rows)

    def _ground_of(self, rows: int) -> Ground:
        rest = self._isolation.rest(self._problem)
        return Ground.from_sample(rest.sample(rows, self._generator()), self._random_state)

    @cached_property
    def _random_rivals(self) -> list[Rival]:
        """The rivals that grow from random rotations."""

        def grow() -> _Rivals:
            rivals = []
            for number in range(1, _RIVALS + 1):
                rivals.append(self._ground.grown_from_chance(number))
                self._log.report("rivals", number, _RIVALS, agreement=rivals[-1].agreement)
            return _Rivals(
                torch.stack([rival.rotation for rival in rivals]),
                torch.tensor([rival.value for rival in rivals], dtype=torch.float64),
                torch.tensor([rival.agreement for rival in rivals], dtype=torch.float64),
            )

        return self._log.once("rivals", _Rivals, grow).each()

    def _answer(self, recognition: Recognition, significant: bool, standing: Standing | None) -> Answer:
        if standing is not None and standing.mirrored and (significant or _score(standing) >= UNCERTAIN):
            reason = f"Mirror images fit as well: {recognition}, but turned over along some axes it brings the spaces "
            reason += "just as close."
            seeds = "Check the seeds: they do not" if self._seeded else "Give three seeds: they would"
            return Answer(UNCERTAIN, "uncertain", reason, f"{seeds} decide which way round the spaces belong.")
        if significant:
            score = min(1.0, RECOGNISED_SCALE * recognition.share)
            return Answer(score, "ok", f"{sentence(recognition)}.", "Look at a few pairs of high confidence.")
        if standing is None:
            reason = f"Nothing can be said of fewer than {MIN_ROWS} rows."
            return Answer(0.0, "uncertain", reason, self._more_rows)
        closeness, agreement = standing.closeness, standing.agreement
        score = _score(standing)
        verdict = verdict_of(score)
        how = f"{closeness:.0%} closer than" if closeness > 0.005 else "no closer than"
        reason = f"It brings the spaces {how} the best of {_RIVALS} random starts does, and maps continued on two "
        reason += f"halves of the rows agree {max(agreement, 0.0):.0%} better; {recognition}."
        advice = {
            "ok": "It translates any vector; whether the files share items is another question.",
            "uncertain": f"Try it on a few vectors whose place you know. {self._remedy}",
            "failed": self._remedy,
        }[verdict]
        return Answer(score, verdict, reason, advice)

    @property
    def _more_rows(self) -> str:
        return "Give more rows of both spaces; look at the pairs yourself." if self._problem.centered else _CENTER

    @property
    def _remedy(self) -> str:
        """The advice that helps most often, given the centering and the number of seeds."""
        seeds = len(self._problem.seeds_x)
        if not self._problem.centered:
            return _CENTER
        if seeds < _ENOUGH_SEEDS:
            given = "1 was" if seeds == 1 else f"{seeds} were"
            return f"Give more seeds: {given} given; {_ENOUGH_SEEDS} are enough for most spaces."
        return "Give more seeds, check that they are right, and that both files hold the same kind of things."

    def _generator(self) -> torch.Generator:
        return torch.Generator().manual_seed(self._random_state)


def _score(standing: Standing) -> float:
    """The geometric mean, from 0 to 1: both are needed, but much of one makes up for little of the other."""
    return min(math.sqrt(max(standing.closeness, 0.0) * max(standing.agreement, 0.0)), 1.0)


def _sample_of_match(problem: Problem, match: Match, generator: torch.Generator) -> tuple[Problem, Match]:
    """A part of the problem small enough to judge quickly: rows of X together with their partners.

    The seeds are left out: they would pull every model towards the same map.
    """
    drawn = torch.randperm(len(problem.x), generator=generator)[:SAMPLE].to(problem.device)
    partners = torch.unique(match.partner[drawn])
    if len(partners) < min(SAMPLE, len(problem.y)):  # fill up, so that rows keep rivals
        others = torch.randperm(len(problem.y), generator=generator).to(problem.device)
        others = others[~torch.isin(others, partners)][: SAMPLE - len(partners)]
        partners = torch.unique(torch.cat([partners, others]))
    sample = replace(problem.without_seeds(), x=problem.take_x(drawn), y=problem.take_y(partners), exact=True)
    return sample, Match(
        torch.searchsorted(partners, match.partner[drawn]),
        match.margin[drawn],
        match.row_hubness[drawn],
        match.column_hubness[partners],
    )
