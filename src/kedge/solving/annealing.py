"""The loops of { match the rows; fit the map to the match }: soft and cooling, then hard, or soft to the end."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from kedge.geometry import PairModel, principal_axes, unit
from kedge.judging.recognition import probable_rows
from kedge.matching import Candidates, Match, Rows, balanced, epsilon_schedule, processes, transport_step
from kedge.matching.comparing import compare
from kedge.matching.problem import Problem
from kedge.runs.arrays import Array, between
from kedge.runs.checkpoint import Kept
from kedge.runs.journal import (
    Journal,
    candidates_from,
    candidates_kept,
    candidates_state,
    match_from,
    match_kept,
    match_state,
    model_from,
    model_kept,
    model_state,
)
from kedge.solving.alignment import Reading, Turned, fit_model, known_and_found
from kedge.solving.schedule import Schedule
from kedge.solving.starts import SEED_SHARE, rotation_with_seeds
from kedge.solving.steps import Step

PAIRS_PER_DIM = 2
"""With fewer probable pairs a dimension, all mutual ones are learned from: most of them lead to a neighbour of the
counterpart, if not to itself, and many of them say more than a few that are right.
"""

# The soft finish: a rotation only, in so many rounds, from warm to not so cold.
_SOFT_ROUNDS, _WARM, _COOL = 15, 0.1, 0.04
# Annealing may be over when rows are so sure of their partners, on average: finishing does the rest.
_SHARP = 0.8
# The hard finish stops when the share of mutual pairs moves by less.
_SETTLED = 0.002
# Where fewer rows have the partner that they have among all, candidates are looked for again.
_AS_EXACT = 0.99
# Under which names they are kept, the first ones and those that were looked for again.
_CANDIDATES = {False: "candidates", True: "candidates-again"}


def leading_axes(rows: Rows, rank: int) -> Tensor:
    """At most `rank` principal axes (d, k) of rows that every process holds, the same to the last sign in each."""
    return processes().from_first(principal_axes(rows.gathered(), min(rank, rows.dim)))


def anneal(
    problem: Problem,
    x: Tensor,
    y: Tensor,
    start: Callable[[], Tensor],
    schedule: Schedule,
    journal: Journal,
    hints: tuple[Tensor, Tensor] | None = None,
    *,
    fade: bool = True,
    until_sharp: bool = False,
) -> Tensor:
    """A better rotation (kx, ky) between coordinates x (n, kx) and y (m, ky) of the problem's rows.

    Each round takes one Sinkhorn step between a part of x that has its turn, rotated, and y at a falling epsilon, and
    a new rotation from all of x to where the last plans of its parts send it. `start` gives the first one. `hints`
    (n, k) and (m, k) are shared coordinates that count as similarity too. They and the seeds count less and less,
    unless they are not to `fade`. It may be over early, if only `until_sharp`.
    """
    count = min(schedule.parts, len(x))
    parts = [Rows.shared(x[turn::count]) for turn in range(count)]
    kept = journal.recall("anneal", y.device, _annealed(schedule.anneal_rounds, len(parts), x, y))
    if kept is None:
        done, rotation, potential = 0, start(), y.new_zeros(len(y))
        crosses = torch.zeros(len(parts), x.shape[1], y.shape[1], dtype=torch.float64, device=y.device)
        received = y.new_full((len(parts), len(y)), -torch.inf)
    else:
        done, rotation, potential = int(kept["round"]), kept["rotation"], kept["potential"]
        crosses, received = kept["crosses"], kept["received"]
        if until_sharp and float(kept["sharpness"]) >= _SHARP:
            return rotation
    epsilons = epsilon_schedule(schedule.epsilon_start, schedule.epsilon_end, schedule.anneal_rounds)
    for index, epsilon in enumerate(epsilons[done:], start=done + 1):
        # What was known at the start fades: it leads the way, but the match it leads to knows better, and
        # neither a wrong seed nor a misleading fingerprint must have the last word.
        remaining = 1 - (index - 1) / len(epsilons) if fade else 1.0
        turn = (index - 1) % len(parts)
        source, target = unit(x[turn::count] @ rotation), y
        if hints is not None:
            source = torch.cat([source, remaining * hints[0][turn::count]], dim=1)
            target = torch.cat([target, remaining * hints[1]], dim=1)
        plan = transport_step(Rows.shared(source), target, potential, epsilon, values=y, budget=problem.budget)
        # Of the other parts, what was found at their last turn.
        crosses[turn] = processes().sum((parts[turn].own.T @ plan.targets).double())
        received[turn] = plan.received
        seen = min(index, len(parts))
        potential = balanced(potential, received.logsumexp(dim=0) - math.log(seen), epsilon, 1 / seen)
        scale = len(x) / sum(len(part) for part in parts[:seen])
        rotation = rotation_with_seeds(scale * crosses.sum(dim=0), x, y, problem, SEED_SHARE * remaining)
        journal.tell(Step("anneal", index, len(epsilons), {"epsilon": epsilon, "sharpness": plan.sharpness}))
        journal.keep(
            "anneal",
            round=index,
            rotation=rotation,
            potential=potential,
            crosses=crosses,
            received=received,
            sharpness=plan.sharpness,
        )
        if until_sharp and plan.sharpness >= _SHARP:
            break
    return rotation


def _annealed(rounds: int, parts: int, x: Tensor, y: Tensor) -> Kept:
    """What the state of annealing must be, between coordinates x (n, kx) in parts and y (m, ky)."""
    kx, ky = x.shape[1], y.shape[1]
    tensors = {
        "round": Array((), "I64", least=1, most=rounds),
        "rotation": between(1, kx, ky),
        "potential": between(1e3, len(y)),
        "crosses": between(len(x), parts, kx, ky, dtype="F64"),
        "received": between(1e6, parts, len(y), infinite=True),
        "sharpness": Array((), least=0, most=1),
    }
    return Kept(tensors)


@dataclass(frozen=True)
class Finished:
    """A match of the rows that were gone over, and whether the rounds settled.

    `candidates` are those that were compared, where not all rows were.
    """

    match: Match
    settled: bool
    candidates: Candidates | None = None

    @property
    def share(self) -> float:
        """The share of the rows of X in mutual pairs."""
        return float(self.match.mutual.float().mean())


def finish(
    problem: Problem,
    start: Callable[[], Reading],
    rounds: int,
    journal: Journal,
    *,
    share_before: float = math.inf,
) -> Finished:
    """Hard rounds over all axes, from a first reading, until the share of mutual pairs settles.

    Each matches the rows as they are read, and fits the pair model to the pairs that are probably right, by which the
    next round reads; to all mutual pairs, where such are few. `share_before` is that of the match which the first
    reading was fitted to, if there was one. Candidates, where not all rows are compared, are looked for in the first
    round, and once more when the share has settled, or halfway, if by then too few rows have the partner that they have
    among all.
    """
    device, sizes, dims = problem.y.device, (len(problem.x), len(problem.y)), (problem.x.dim, problem.y.dim)
    yes_or_no = Array((), "BOOL")
    last, known_share = Array((), "I64", least=1, most=rounds - 1), Array((), least=0, most=1)
    expected = model_kept(*dims, round=last, share=known_share, again=yes_or_no)
    kept = journal.recall("finish", device, expected)
    again = kept is not None and bool(kept["again"])
    found = None if problem.exact else journal.recall(_CANDIDATES[again], device, candidates_kept(*sizes))
    candidates = None if found is None else candidates_from(found)
    if problem.exact or candidates is not None:
        finished = journal.recall("finished", device, match_kept(*sizes, settled=yes_or_no))
        if finished is not None:
            return Finished(match_from(finished), bool(finished["settled"]), candidates)
    elif not again:  # without the candidates of the rounds before
        kept = None
    reading: Reading
    if kept is None:
        done, reading, share = 0, start(), share_before
    else:
        done, reading, share = int(kept["round"]), model_from(kept), float(kept["share"])
    for index in range(done + 1, rounds + 1):
        compared = compare(problem, reading, candidates)
        if candidates is None and compared.candidates is not None:
            candidates = compared.candidates
            journal.keep(_CANDIDATES[again], **candidates_state(candidates))
        match = compared.match()
        previous, share = share, float(match.mutual.float().mean())
        journal.tell(Step("finish", index, rounds, {"mutual": share}))
        settled = share > 0 and abs(share - previous) < _SETTLED
        if index == rounds:
            break
        if settled or index == rounds // 2:
            agreement = None if again else compared.candidate_recall(match)
            if agreement is not None and agreement.share < _AS_EXACT:
                again, candidates = True, None
            elif settled:
                break
        reading = next_reading(problem, match, probable_rows(compared, match))
        journal.keep("finish", round=index, share=share, again=again, **model_state(reading))
    journal.keep("finished", settled=settled, **match_state(match))
    return Finished(match, settled, candidates)


def next_reading(problem: Problem, match: Match, probable: Tensor) -> PairModel:
    """The pair model of the seeds and the pairs in a mask (n,) of rows; of all mutual pairs, where these are few."""
    enough = int(probable.sum()) >= PAIRS_PER_DIM * min(problem.x.dim, problem.y.dim)
    return fit_model(problem, *known_and_found(problem, match, probable if enough else None))


def finish_softly(problem: Problem, sample: Problem, rotation: Callable[[], Tensor], journal: Journal) -> Finished:
    """The match by a rotation (dx, dy) that is improved over all axes of a sample, but never by hard pairs.

    Where few items are shared, mutual pairs lead to neighbours of counterparts that are not there. A rotation fitted to
    soft matches averages over such neighbours; anything more flexible, or sharper, learns them by heart.
    """
    journal = journal.of("soft")

    def improved() -> Turned:
        x, y = sample.x.gathered(), sample.y.gathered()
        schedule = Schedule(anneal_rounds=_SOFT_ROUNDS, epsilon_start=_WARM, epsilon_end=_COOL, parts=1)
        found = anneal(sample, x, y, rotation, schedule, journal, fade=False)
        return Turned(found, torch.eye(problem.y.dim, dtype=found.dtype, device=found.device))

    return replace(finish(problem, improved, 1, journal), settled=True)
