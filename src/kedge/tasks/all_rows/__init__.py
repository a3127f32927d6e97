"""What a run says of all rows, however many, over batches that an engine hands out: partners, or other vectors."""

from kedge.tasks.all_rows.match_job import PAIRS, MatchSummary, match_all
from kedge.tasks.all_rows.rewriting import PARTS, Arrival, compare_all, rewrite_all

__all__ = ["PAIRS", "PARTS", "Arrival", "MatchSummary", "compare_all", "match_all", "rewrite_all"]
