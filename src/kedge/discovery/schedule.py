"""How the alternation spends its time, and what it tries in turn."""

from __future__ import annotations

from dataclasses import dataclass

from kedge.errors import InputError

FINGERPRINT_ROWS = 20_000
"""Of at most so many rows of a space fingerprints are taken."""

FINISH_ROWS = 30_000
"""Of at most so many rows of X the map is fitted while it is finished; the last match is of all."""

# With fewer seeds than this, fingerprints help them from the first attempt on.
_FEW_SEEDS = 10


@dataclass(frozen=True)
class Schedule:
    """One attempt of the alternation.

    `sample_size` rows of each space and `rank` principal axes for `anneal_rounds` rounds, epsilon falling
    from `epsilon_start` to `epsilon_end` (in units of cosine similarity); then at most `finish_rounds` rounds on
    everything. `fingerprints` says whether what can be compared without any pair helps the seeds.
    """

    sample_size: int = 8000
    rank: int = 150
    anneal_rounds: int = 20
    epsilon_start: float = 0.1
    epsilon_end: float = 0.02
    finish_rounds: int = 10
    fingerprints: bool = False

    def __post_init__(self) -> None:
        for name in ("sample_size", "rank", "anneal_rounds", "finish_rounds"):
            if getattr(self, name) < 1:
                raise InputError(f"Schedule: {name} must be at least 1, got {getattr(self, name)}")
        if not self.epsilon_start >= self.epsilon_end > 0:
            raise InputError(
                f"Schedule: epsilon_start >= epsilon_end > 0 is needed, got {self.epsilon_start}, {self.epsilon_end}"
            )

    def describe(self, seeds: int) -> str:
        """What is tried, in a few words."""
        start = f"{seeds} seed{'' if seeds == 1 else 's'}"
        if self.fingerprints:
            start = f"fingerprints and {start}" if seeds else "fingerprints"
        return f"from {start}, {self.anneal_rounds} rounds"


def schedules_for(seeds: int) -> tuple[Schedule, ...]:
    """What to try, quickest first, with so many seeds.

    Fingerprints need all the rows they can get: in small samples drawn apart, few rows have their counterpart.
    """
    quick = Schedule(sample_size=FINGERPRINT_ROWS, anneal_rounds=30, fingerprints=True)
    slow = Schedule(sample_size=FINGERPRINT_ROWS, anneal_rounds=100, fingerprints=True)
    cooler = Schedule(sample_size=FINGERPRINT_ROWS, anneal_rounds=60, epsilon_start=0.07, fingerprints=True)
    if seeds >= _FEW_SEEDS:
        return Schedule(), slow, cooler
    return (quick, slow, cooler) if seeds else (slow, cooler)  # without any, a quick attempt is seldom enough
