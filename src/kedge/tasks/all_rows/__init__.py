"""What a run says of all rows, however many: who corresponds to whom, over batches that an engine hands out."""

from kedge.tasks.all_rows.match_job import PAIRS, MatchSummary, match_all

__all__ = ["PAIRS", "MatchSummary", "match_all"]
