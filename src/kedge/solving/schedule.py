"""How long the alternation runs, and which attempts it makes in turn."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kedge.errors import InputError

FINGERPRINT_ROWS = 20_000
"""Fingerprints are computed on at most this many rows of a space."""

DENSE_ROWS = 8_000
"""Of larger spaces, this many rows in the densest regions are tried first."""

FINISH_ROWS = 15_000
"""Up to this many rows of a space, finishing uses all of them; the last match covers all rows in any case."""

FINISH_ROWS_OF_X = 8_000
"""In larger spaces, finishing uses this many rows of X, and the rows of Y that may be their counterparts."""

SOFT_ROWS = 40_000
"""The soft finish fits its rotation on at most this many rows of a space."""

MAX_RANK = 1024
"""Enough for all principal axes."""

# With fewer seeds than this, even the first attempt uses fingerprints.
_FEW_SEEDS = 10


@dataclass(frozen=True)
class Schedule:
    """One attempt of the alternation.

    It anneals `sample_size` rows of each space in `rank` principal axes for `anneal_rounds` rounds, while epsilon falls
    from `epsilon_start` to `epsilon_end` (in units of cosine similarity), and then finishes on everything in at most
    `finish_rounds` rounds. With 0 rounds of annealing, finishing starts from the seeds alone.

    `fingerprints` says whether coordinates that need no pairs support the seeds; with `hints` they also count as
    similarity during annealing, otherwise they only provide its start. During annealing each axis of either space is
    divided by its standard deviation to the power `whitening`. The rows of X are annealed in `parts`, one part per
    round; with `both_ways`, so are those of Y. If `weighted`, directions count more, the more of the last match lies
    along them. With `components`, the attempt starts from matches of independent components; these are annealed on
    the spaces both as they are and half-whitened, whatever `whitening` says.
    """

    sample_size: int = 8000
    rank: int = 150
    anneal_rounds: int = 20
    epsilon_start: float = 0.1
    epsilon_end: float = 0.02
    finish_rounds: int = 10
    fingerprints: bool = False
    whitening: float = 0.0
    parts: int = 2
    both_ways: bool = False
    hints: bool = True
    weighted: bool = False
    components: bool = False

    def __post_init__(self) -> None:
        for name, minimum in (
            ("sample_size", 1),
            ("rank", 1),
            ("anneal_rounds", 0),
            ("finish_rounds", 1),
            ("parts", 1),
        ):
            if getattr(self, name) < minimum:
                raise InputError(f"Schedule: {name} must be at least {minimum}, got {getattr(self, name)}")
        if not 0 <= self.whitening <= 1:
            raise InputError(f"Schedule: whitening must be between 0 and 1, got {self.whitening}")
        if not self.epsilon_start >= self.epsilon_end > 0:
            raise InputError(
                f"Schedule: epsilon_start >= epsilon_end > 0 is needed, got {self.epsilon_start}, {self.epsilon_end}"
            )

    def describe(self, seeds: int) -> str:
        """What is tried, in a few words."""
        start = f"{seeds} seed{'' if seeds == 1 else 's'}"
        if self.fingerprints:
            start = f"fingerprints and {start}" if seeds else "fingerprints"
        if self.components:
            start = f"components, {start}"
        rounds = f"{self.anneal_rounds} rounds" if self.anneal_rounds else "no annealing"
        return f"from {start}, {rounds}{', whitened' if self.whitening else ''}"


def schedules_for(seeds: int, whiten: float | None = None, rows: int = 0) -> tuple[Schedule, ...]:
    """The schedules to try, quickest first, on spaces whitened to the strength `whiten`; None tries 0 and a half.

    `seeds` and `rows` are how many there are. Fingerprints need rows that have a counterpart, so in large spaces the
    rows in dense regions are tried first.
    """
    few = min(rows, DENSE_ROWS) or DENSE_ROWS
    brief = Schedule()
    second = Schedule(anneal_rounds=40, whitening=0.5, both_ways=True, weighted=True)
    quick = Schedule(sample_size=few, anneal_rounds=30, fingerprints=True, parts=1)
    dense = Schedule(sample_size=few, anneal_rounds=100, fingerprints=True, parts=1)
    slow = replace(dense, sample_size=max(few, min(rows, FINGERPRINT_ROWS)))
    cooler = replace(slow, anneal_rounds=60, epsilon_start=0.07)
    # Where no items are shared, fingerprints mislead as similarities, annealing both ways averages over more
    # neighbours, and without weights the directions that are not known yet drown the others.
    wide = replace(slow, fingerprints=seeds < _FEW_SEEDS, hints=False, both_ways=True, weighted=True)
    # With all rows and all axes, a low temperature throughout leads on even from the vaguest start.
    cold = replace(wide, sample_size=SOFT_ROWS, rank=MAX_RANK, anneal_rounds=120, parts=4, weighted=False)
    cold = replace(cold, epsilon_start=0.015, epsilon_end=0.015)
    # Components correspond even where similarities do not, and where no item is in both files.
    parts = replace(wide, sample_size=few, anneal_rounds=60, parts=2, components=True)
    many = [cold] if rows > FINGERPRINT_ROWS else []
    if seeds >= _FEW_SEEDS:
        tried = [brief, second, parts, wide, _half_whitened(wide), dense, slow, _half_whitened(slow), cooler]
    elif seeds:
        tried = [quick, dense, parts, *many, wide, _half_whitened(wide), slow, _half_whitened(slow), cooler]
    else:  # without seeds, a quick attempt is seldom enough
        tried = [
            dense,
            _half_whitened(dense),
            parts,
            *many,
            wide,
            _half_whitened(wide),
            slow,
            _half_whitened(slow),
            cooler,
        ]
    tried = list(dict.fromkeys(tried))  # in small spaces, schedules that differ only in sample size are the same
    if whiten is None:
        return tuple(tried)
    return tuple(replace(schedule, whitening=whiten) for schedule in tried if not schedule.whitening)


def _half_whitened(schedule: Schedule) -> Schedule:
    """The same, half-whitened: some spaces, above all of images, vary so much along a few axes that others drown."""
    return replace(schedule, whitening=0.5)
