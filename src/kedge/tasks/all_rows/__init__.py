"""Apply a run to all rows of large spaces, in batches handed out by an engine: match them, or rewrite their vectors.

May import the modules of `kedge.tasks`, `kedge.estimators` and everything below.
"""

from kedge.tasks.all_rows.match_job import PAIRS, MatchSummary, match_all
from kedge.tasks.all_rows.rewriting import PARTS, Arrival, compare_all, rewrite_all

__all__ = ["PAIRS", "PARTS", "Arrival", "MatchSummary", "compare_all", "match_all", "rewrite_all"]
