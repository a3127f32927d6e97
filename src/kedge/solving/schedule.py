"""How the alternation spends its time, and what it tries in turn."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kedge.errors import InputError

FINGERPRINT_ROWS = 20_000
"""Of at most so many rows of a space fingerprints are taken."""

DENSE_ROWS = 8_000
"""Where there are more rows, so many of those in dense places are tried first."""

FINISH_ROWS = 15_000
"""Up to so many rows of a space the map is finished on all of them; the last match is of all rows in any case."""

FINISH_ROWS_OF_X = 8_000
"""Where there are more, so many rows of X are taken, and the rows of Y that may be their counterparts."""

SOFT_ROWS = 40_000
"""Of at most so many rows of a space the soft finish takes its rotation."""

MAX_RANK = 1024
"""As many principal axes as there are."""

# With fewer seeds than this, fingerprints help them from the first attempt on.
_FEW_SEEDS = 10


@dataclass(frozen=True)
class Schedule:
    """One attempt of the alternation.

    `sample_size` rows of each space and `rank` principal axes for `anneal_rounds` rounds, epsilon falling
    from `epsilon_start` to `epsilon_end` (in units of cosine similarity); then at most `finish_rounds` rounds on
    everything. `fingerprints` says whether what can be compared without any pair helps the seeds. While it anneals,
    each axis of either space is divided by its deviation to the power `whitening`. With 0 rounds of annealing the seeds
    alone are what finishing starts from. The rows of X are annealed in `parts`, one after the other, a round each;
    `both_ways`, those of Y are too. Fingerprints count as similarity while it anneals, unless they are only what it
    starts from (`hints`). `weighted`, directions count the more, the more of the last match lies along them.
    `components` says whether the attempt starts from matches of independent components; these are annealed on the
    spaces as they are and half-whitened, whatever `whitening` says.
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
    """What to try, quickest first, with so many seeds and rows, on spaces whitened to this strength; None tries 0 and a
    half.

    Fingerprints need rows that have a counterpart: of many, those in dense places are tried before all of them.
    """
    few = min(rows, DENSE_ROWS) or DENSE_ROWS
    brief = Schedule()
    second = Schedule(anneal_rounds=40, whitening=0.5, both_ways=True, weighted=True)
    quick = Schedule(sample_size=few, anneal_rounds=30, fingerprints=True, parts=1)
    dense = Schedule(sample_size=few, anneal_rounds=100, fingerprints=True, parts=1)
    slow = replace(dense, sample_size=max(few, min(rows, FINGERPRINT_ROWS)))
    cooler = replace(slow, anneal_rounds=60, epsilon_start=0.07)
    # Where nothing is shared, fingerprints mislead as similarities, both ways average over more neighbours, and
    # directions of which nothing is known yet drown the others.
    wide = replace(slow, fingerprints=seeds < _FEW_SEEDS, hints=False, both_ways=True, weighted=True)
    # All rows and all axes know the way from the vaguest start, if nothing is blurred.
    cold = replace(wide, sample_size=SOFT_ROWS, rank=MAX_RANK, anneal_rounds=120, parts=4, weighted=False)
    cold = replace(cold, epsilon_start=0.015, epsilon_end=0.015)
    # Components correspond where similarities do not, and where no item is in both files.
    parts = replace(wide, sample_size=few, anneal_rounds=60, parts=2, components=True)
    many = [cold] if rows > FINGERPRINT_ROWS else []
    if seeds >= _FEW_SEEDS:
        tried = [brief, second, parts, wide, _half_whitened(wide), dense, slow, _half_whitened(slow), cooler]
    elif seeds:
        tried = [quick, dense, parts, *many, wide, _half_whitened(wide), slow, _half_whitened(slow), cooler]
    else:  # without any, a quick attempt is seldom enough
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
    tried = list(dict.fromkeys(tried))  # where there are no more rows than are tried first, that was that
    if whiten is None:
        return tuple(tried)
    return tuple(replace(schedule, whitening=whiten) for schedule in tried if not schedule.whitening)


def _half_whitened(schedule: Schedule) -> Schedule:
    """Some spaces, of images above all, vary in a few directions so much more than in others that these drown."""
    return replace(schedule, whitening=0.5)
