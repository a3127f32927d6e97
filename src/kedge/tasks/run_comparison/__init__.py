"""Several runs over the same spaces, side by side: what each found, where they differ, and which to trust.

This package holds the comparison of runs and its tables (`side_by_side`), how far their pairs agree (`agreement`), and
the choice of a run (`trust`); runs of many spaces are compared by their groups (`common_runs`). May import the modules
of `kedge.tasks`, `kedge.estimators` and everything below.
"""

from kedge.tasks.run_comparison.agreement import Disagreement, PairAgreement
from kedge.tasks.run_comparison.common_runs import (
    COMMON_COLUMNS,
    CommonComparison,
    CommonRunSummary,
    compare_common_runs,
)
from kedge.tasks.run_comparison.side_by_side import (
    GOLD_COLUMNS,
    RUN_COLUMNS,
    RunComparison,
    compare_runs,
    keys_of_runs,
)
from kedge.tasks.run_comparison.trust import GoldScore, RunSummary, TrustedRun

__all__ = [
    "COMMON_COLUMNS",
    "GOLD_COLUMNS",
    "RUN_COLUMNS",
    "CommonComparison",
    "CommonRunSummary",
    "Disagreement",
    "GoldScore",
    "PairAgreement",
    "RunComparison",
    "RunSummary",
    "TrustedRun",
    "compare_common_runs",
    "compare_runs",
    "keys_of_runs",
]
