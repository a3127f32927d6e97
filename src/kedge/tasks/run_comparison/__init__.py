"""Several runs over the same spaces, side by side: what each found, where they differ, and which to trust.

Here live the comparison of runs and its tables (`side_by_side`), how far their pairs agree (`agreement`), and the
choice of one (`trust`). May import the modules of `kedge.tasks`, `kedge.estimators` and everything below.
"""

from kedge.tasks.run_comparison.agreement import Disagreement, PairAgreement
from kedge.tasks.run_comparison.side_by_side import (
    GOLD_COLUMNS,
    RUN_COLUMNS,
    RunComparison,
    compare_runs,
    keys_of_runs,
)
from kedge.tasks.run_comparison.trust import GoldScore, RunSummary, Trust

__all__ = [
    "GOLD_COLUMNS",
    "RUN_COLUMNS",
    "Disagreement",
    "GoldScore",
    "PairAgreement",
    "RunComparison",
    "RunSummary",
    "Trust",
    "compare_runs",
    "keys_of_runs",
]
