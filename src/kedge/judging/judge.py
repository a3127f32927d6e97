"""Is the map right? Judged without labels, and without asking for pairs that may not exist.

Where rows *recognise* their counterparts (`recognition`), the map is right. Noise in many directions can be fitted so
that rows seem to recognise others; how far, a random start on the same spaces shows. Where rows do not, because few
items are shared or because rows look too much alike, the spaces as wholes are compared, and the map competes with what
the same rounds of the same method make of random rotations. A wrong map is one local optimum among many, and no better
than the others; the right one stands out, twice over. It brings the rows of X *closer* to those of Y; that alone a map
can do which is right about topics and wrong about everything else. And when it goes on apart on two halves of the rows,
the two maps that come of it still take rows to the same places: they *agree*, since the details are there to be found
in either half.

Without seeds the map's own mirror image is among its rivals: of spaces that look the same turned inside out nobody can
tell which way round they belong.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from kedge.geometry import nearest_rotation, orthogonal_map, unit
from kedge.judging.health import UNCERTAIN, Answer, sentence, verdict_of
from kedge.judging.recognition import FEWEST_ROWS, Choices, Recognition, count_recognised
from kedge.matching import Match, Rows, row_blocks, transport_step
from kedge.matching.problem import Problem
from kedge.models.cross_fitting import cross_fitted
from kedge.runs.arrays import Array, between
from kedge.runs.checkpoint import Kept
from kedge.runs.journal import Journal
from kedge.solving.alignment import Turned, pair_moments
from kedge.solving.annealing import anneal, finish, leading_axes
from kedge.solving.schedule import Schedule
from kedge.solving.steps import Step

RECOGNISED_SCALE = 2.0
"""Half of the rows recognised make a score of 1; closeness and agreement are scores as they are."""

_SAMPLE = 4000
# What noise can be fitted to depends on the rows a dimension: with so many, fewer rows show it as well.
_ILLUSION_ROWS, _ILLUSION_ROWS_PER_DIM = 2000, 8
_RIVALS = 3
_ROUNDS = Schedule(sample_size=_SAMPLE, anneal_rounds=20, epsilon_end=0.04, finish_rounds=4, parts=1)
_ROUNDS_APART = Schedule(anneal_rounds=10, epsilon_start=0.06, epsilon_end=0.04, parts=1)
# Rounds with the spaces held still, for the plan to settle before it is valued.
_ROUNDS_TO_VALUE = 3
# Rows are read by so many models, which is enough for a verdict.
_FOLDS = 4
# A share of recognised rows that is not worth a second look.
_HARDLY = 0.05
# With so many rows recognised for sure, closeness need not be measured.
_SURELY = 0.2
# A rival that takes so many rows to where the map takes them is the map.
_SAME_MAP = 0.2
_COMPARED = 1000
_TINY = 1e-6
# A mirror image that comes within this share of the map's own gain is as good as the map.
_AS_GOOD = 0.02
# Seeds that are enough for most pairs of spaces.
_ENOUGH_SEEDS = 15
_CENTER = "Center the spaces: uncenterd rows are all alike."


@dataclass(frozen=True)
class Judged:
    """The answer, and what it rests on: see `Health`.

    `illusion` is the share of rows that seem recognised after a random start, by which the recognition is less already;
    `surely` whether it is beyond doubt that rows are recognised.
    """

    answer: Answer
    recognition: Recognition
    illusion: float
    surely: bool
    closeness: float | None
    agreement: float | None


class Judge:
    """Judges matches of one problem; what random starts come to on it is measured once, when first asked for.

    The same match always gets the same judgement.
    """

    def __init__(self, problem: Problem, random_state: int, journal: Journal, *, disjoint: bool = False) -> None:
        self._problem = problem
        self._random_state = random_state
        self._journal = journal
        self._disjoint = disjoint

    def judge(self, part: Problem, match: Match) -> Judged:
        """Whether the map is right that a match implies, of all rows or of a part of them."""
        recognition = self._recognition(part, match)
        illusion = self._illusion if recognition.share > _HARDLY else 0.0
        surely = recognition.share - illusion - 2 * recognition.share_error >= _SURELY
        standing = None
        if min(len(self._problem.x), len(self._problem.y)) >= FEWEST_ROWS and not (surely and self._seeded):
            standing = self._standing(part, match, random_rivals=not surely)
        recognition = recognition.less(illusion)
        answer = self._answer(recognition, surely, standing)
        return Judged(answer, recognition, illusion, surely, *(standing or (None, None)))

    @property
    def _seeded(self) -> bool:
        return len(self._problem.seeds_x) > 0

    def _recognition(self, part: Problem, match: Match) -> Recognition:
        """How many rows of a sample recognise their counterpart; none, where it is known that there are none."""
        sample, sample_match = _sample_of_match(part, match, self._generator())
        if self._disjoint or min(len(sample.x), len(sample.y)) < FEWEST_ROWS:
            return Recognition(0.0, 0.0, len(sample.x), len(sample.y))
        return self._recognised(sample, sample_match)

    def _recognised(self, sample: Problem, match: Match) -> Recognition:
        honest = cross_fitted(sample, *match.pairs(), self._generator(), _FOLDS)
        return count_recognised(Choices.of(honest, honest.match(), self._generator()))

    @cached_property
    def _illusion(self) -> float:
        """The share of rows that seem to recognise a counterpart after a random start."""
        ground = self._ground_of_illusion

        def measure() -> dict[str, Tensor]:
            rotation = ground.annealed(_random_rotation(ground.x, ground.y, self._generator()))
            start = Turned(ground.axes_x @ rotation, ground.axes_y)
            match = finish(ground.sample, lambda: start, _ROUNDS.finish_rounds, Journal()).match
            return {"share": torch.tensor(self._recognised(ground.sample, match).share, dtype=torch.float64)}

        expected = Kept({"share": Array((), "F64", least=0, most=1)})
        return float(self._journal.once("illusion", ground.x.device, expected, measure)["share"])

    def _standing(self, part: Problem, match: Match, *, random_rivals: bool) -> tuple[float, float]:
        """By how much the map beats its best rivals in closeness and in agreement.

        Closeness counts in units of what the best rival has gained over no map at all, agreement in units of what it
        lacks to be perfect.
        """
        ground = self._ground
        start = ground.rotation(part, match)
        found = ground.improved(start)
        if not ground.same(start, found.rotation):  # the rounds have left it behind: it was not even an optimum
            return 0.0, 0.0
        rivals = list(self._random_rivals) if random_rivals else []
        if not self._seeded:
            rivals.append(ground.improved(-found.rotation))
        rivals = [rival for rival in rivals if not ground.same(found.rotation, rival.rotation)]
        nothing = ground.value_of_nothing
        value = max((rival.value for rival in rivals), default=nothing)
        agreement = max((rival.agreement for rival in rivals), default=0.0)
        return (
            (found.value - value) / max(value - nothing, _TINY),
            (found.agreement - agreement) / max(1 - agreement, _TINY),
        )

    @cached_property
    def _ground(self) -> _Ground:
        return self._ground_of(_SAMPLE)

    @cached_property
    def _ground_of_illusion(self) -> _Ground:
        """Fewer rows, where they are enough; often the same ground, which is made once."""
        x, y = self._problem.x, self._problem.y
        rows = max(_ILLUSION_ROWS, _ILLUSION_ROWS_PER_DIM * max(x.dim, y.dim))
        return self._ground if rows >= min(_SAMPLE, max(len(x), len(y))) else self._ground_of(rows)

    def _ground_of(self, rows: int) -> _Ground:
        return _Ground.of(self._problem.without_seeds().sample(rows, self._generator()), self._random_state)

    @cached_property
    def _random_rivals(self) -> list[_Candidate]:
        """What random rotations become."""
        ground = self._ground
        rotations = between(1, "rivals", ground.x.shape[1], ground.y.shape[1])
        tensors = {"rotations": rotations, "values": between(1e6, "rivals", 2, dtype="F64")}
        expected = Kept(tensors, lambda state: 1 <= len(state["values"]) <= _RIVALS)
        kept = self._journal.recall("rivals", ground.x.device, expected)
        rivals = []
        if kept is not None:
            rivals = [_Candidate(r, *v) for r, v in zip(kept["rotations"], kept["values"].tolist(), strict=True)]
        for number in range(len(rivals) + 1, _RIVALS + 1):
            generator = torch.Generator().manual_seed((self._random_state + number) % 2**63)
            rivals.append(ground.improved(_random_rotation(ground.x, ground.y, generator)))
            self._journal.tell(Step("rivals", number, _RIVALS, {"agreement": rivals[-1].agreement}))
            self._journal.keep(
                "rivals",
                rotations=torch.stack([rival.rotation for rival in rivals]),
                values=torch.tensor([(rival.value, rival.agreement) for rival in rivals], dtype=torch.float64),
            )
        return rivals

    def _answer(self, recognition: Recognition, surely: bool, standing: tuple[float, float] | None) -> Answer:
        if surely:
            if standing is not None and standing[0] < _AS_GOOD:
                reason = f"It may be upside down: {recognition}, but its mirror image brings the spaces just as close."
                advice = "Give a seed or two: the spaces look the same turned inside out, and only a pair can tell."
                return Answer(UNCERTAIN, "uncertain", reason, advice)
            score = min(1.0, RECOGNISED_SCALE * recognition.share)
            return Answer(score, "ok", f"{sentence(recognition)}.", "Look at a few pairs of high confidence.")
        if standing is None:
            reason = f"Nothing can be said of fewer than {FEWEST_ROWS} rows."
            return Answer(0.0, "uncertain", reason, self._more_rows)
        closeness, agreement = standing
        score = min(max(min(closeness, agreement), 0.0), 1.0)
        verdict = verdict_of(score)
        how = f"{closeness:.0%} closer than" if closeness > 0.005 else "no closer than"
        reason = f"It brings the spaces {how} the best of {_RIVALS} random starts does, and what two halves of the "
        reason += f"rows make of it agrees {max(agreement, 0.0):.0%} better; {recognition}."
        advice = {
            "ok": "It carries any vector across; whether the files share items is another question.",
            "uncertain": f"Try it on a few vectors whose place you know. {self._remedy}",
            "failed": self._remedy,
        }[verdict]
        return Answer(score, verdict, reason, advice)

    @property
    def _more_rows(self) -> str:
        return "Give more rows of both spaces; look at the pairs yourself." if self._problem.centerd else _CENTER

    @property
    def _remedy(self) -> str:
        """What helps most often, given what was done."""
        seeds = len(self._problem.seeds_x)
        if not self._problem.centerd:
            return _CENTER
        if seeds < _ENOUGH_SEEDS:
            return f"Give more seeds: there were {seeds}, {_ENOUGH_SEEDS} are enough for most spaces."
        return "Give more seeds, check that they are right, and that both files hold the same kind of things."

    def _generator(self) -> torch.Generator:
        return torch.Generator().manual_seed(self._random_state)


@dataclass(frozen=True)
class _Candidate:
    """A rotation (kx, ky), how close it brings the spaces, and how far two halves of the rows agree about it."""

    rotation: Tensor
    value: float
    agreement: float


@dataclass(frozen=True)
class _Ground:
    """Where maps compete: unit rows x (n, kx) and y (m, ky) of a sample, in the leading axes (dx, kx) and (dy, ky)."""

    sample: Problem
    axes_x: Tensor
    axes_y: Tensor
    x: Tensor
    y: Tensor
    random_state: int

    @classmethod
    def of(cls, sample: Problem, random_state: int) -> _Ground:
        axes_x, axes_y = (leading_axes(rows, _ROUNDS.rank) for rows in (sample.x, sample.y))
        x, y = unit(sample.x.gathered() @ axes_x), unit(sample.y.gathered() @ axes_y)
        return cls(sample, axes_x, axes_y, x, y, random_state)

    @cached_property
    def value_of_nothing(self) -> float:
        """Of a random rotation as it is."""
        generator = torch.Generator().manual_seed(self.random_state)
        return self._value(_random_rotation(self.x, self.y, generator))

    def rotation(self, problem: Problem, match: Match) -> Tensor:
        """The rotation (kx, ky) that the mutual pairs of a match imply."""
        cross = pair_moments(problem, *match.pairs()).cross.to(self.axes_x.dtype)
        return nearest_rotation((self.axes_x.T @ cross @ self.axes_y).double()).to(self.x.dtype)

    def annealed(self, rotation: Tensor) -> Tensor:
        """What a rotation (kx, ky) becomes by some rounds of annealing."""
        return anneal(self.sample, self.x, self.y, lambda: rotation, _ROUNDS, Journal())

    def improved(self, rotation: Tensor) -> _Candidate:
        """The same, with what it is worth."""
        better = self.annealed(rotation)
        apart = [
            anneal(half, self.x[rows_x], self.y[rows_y], lambda: better, _ROUNDS_APART, Journal())
            for half, rows_x, rows_y in self._halves
        ]
        return _Candidate(better, self._value(better), self._agreement(*apart))

    def same(self, one: Tensor, other: Tensor) -> bool:
        """Whether two rotations are one map, more or less."""
        return self._agreement(one, other) >= _SAME_MAP

    @cached_property
    def _halves(self) -> list[tuple[Problem, Tensor, Tensor]]:
        """Two disjoint parts of the sample, and which rows they are."""
        generator = torch.Generator().manual_seed(self.random_state)
        orders = [torch.randperm(len(rows), generator=generator).to(rows.device) for rows in (self.x, self.y)]
        parts = [[order[part::2] for order in orders] for part in (0, 1)]
        return [(replace(self.sample, x=Rows.shared(self.x[i]), y=Rows.shared(self.y[j])), i, j) for i, j in parts]

    def _agreement(self, one: Tensor, other: Tensor) -> float:
        """The share of rows that two rotations take to the same place, among all places that one of them knows."""
        rows = self.x[:_COMPARED]
        nearest = (unit(rows @ one) @ unit(rows @ other).T).argmax(dim=1)
        return float((nearest == torch.arange(len(rows), device=rows.device)).float().mean())

    def _value(self, rotation: Tensor) -> float:
        """Mean similarity under the entropic plan, less what it costs to be a plan: greater is closer."""
        epsilon, mapped = _ROUNDS.epsilon_end, unit(self.x @ rotation)
        potential = self.y.new_zeros(len(self.y))
        for _ in range(_ROUNDS_TO_VALUE):
            potential = transport_step(
                Rows.shared(mapped), self.y, potential, epsilon, values=self.y[:, :1], budget=self.sample.budget
            ).potential
        total = 0.0
        for _, block in row_blocks(mapped, self.y, self.sample.budget, scale=1 / epsilon, bias=potential / epsilon):
            total += float(block.logsumexp(dim=1).double().sum())
        return epsilon * (total / len(mapped) - math.log(len(self.y))) - float(potential.double().mean())


def _random_rotation(x: Tensor, y: Tensor, generator: torch.Generator) -> Tensor:
    """A rotation (dx, dy) that knows nothing."""
    rows = max(x.shape[1], y.shape[1])
    left, right = (torch.randn(rows, space.shape[1], generator=generator).to(space) for space in (x, y))
    return orthogonal_map(left, right)


def _sample_of_match(problem: Problem, match: Match, generator: torch.Generator) -> tuple[Problem, Match]:
    """A part of the problem small enough to judge quickly: rows of X together with their partners.

    Without the seeds: they would pull every model towards the same map.
    """
    drawn = torch.randperm(len(problem.x), generator=generator)[:_SAMPLE].to(problem.x.device)
    partners = torch.unique(match.partner[drawn])
    if len(partners) < min(_SAMPLE, len(problem.y)):  # fill up, so that rows keep rivals
        others = torch.randperm(len(problem.y), generator=generator).to(problem.y.device)
        others = others[~torch.isin(others, partners)][: _SAMPLE - len(partners)]
        partners = torch.unique(torch.cat([partners, others]))
    sample = replace(
        problem.without_seeds(),
        x=Rows.shared(problem.x.take(drawn)),
        y=Rows.shared(problem.y.take(partners)),
        exact=True,
    )
    return sample, Match(
        torch.searchsorted(partners, match.partner[drawn]),
        match.margin[drawn],
        match.row_hubness[drawn],
        match.column_hubness[partners],
    )
