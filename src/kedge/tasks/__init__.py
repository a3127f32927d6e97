"""What an alignment is for: retrieval across spaces and its evaluation, search, stitching."""

from kedge.tasks.evaluation import Evaluation, evaluate, gold_by_key
from kedge.tasks.heads import MLPHead
from kedge.tasks.retrieval import RetrievalScores, neighbour_scores, retrieval_scores
from kedge.tasks.search import Neighbour, search
from kedge.tasks.stitching import Stitcher, StitchScores, stitch_scores

__all__ = [
    "Evaluation",
    "MLPHead",
    "Neighbour",
    "RetrievalScores",
    "StitchScores",
    "Stitcher",
    "evaluate",
    "gold_by_key",
    "neighbour_scores",
    "retrieval_scores",
    "search",
    "stitch_scores",
]
