"""What an alignment is for: retrieval across spaces and its evaluation, search, stitching."""

from kedge.tasks.calibration import calibration_error, reliability
from kedge.tasks.evaluation import SCORE_NAMES, Evaluation, Truth, as_percent, evaluate, gold_by_key
from kedge.tasks.heads import MLPHead
from kedge.tasks.retrieval import RetrievalScores, neighbour_scores, retrieval_scores, shared_scores
from kedge.tasks.search import Neighbour, search
from kedge.tasks.searching import SEARCH_NAMES, SearchScores, search_scores
from kedge.tasks.stitching import Stitcher, StitchScores, stitch_scores

__all__ = [
    "SCORE_NAMES",
    "SEARCH_NAMES",
    "Evaluation",
    "MLPHead",
    "Neighbour",
    "RetrievalScores",
    "SearchScores",
    "StitchScores",
    "Stitcher",
    "Truth",
    "as_percent",
    "calibration_error",
    "evaluate",
    "gold_by_key",
    "neighbour_scores",
    "reliability",
    "retrieval_scores",
    "search",
    "search_scores",
    "shared_scores",
    "stitch_scores",
]
