"""What an alignment is for: retrieval across spaces, and its evaluation."""

from kedge.tasks.evaluation import Evaluation, evaluate, gold_by_key
from kedge.tasks.retrieval import RetrievalScores, retrieval_scores
from kedge.tasks.search import Neighbour, search

__all__ = [
    "Evaluation",
    "Neighbour",
    "RetrievalScores",
    "evaluate",
    "gold_by_key",
    "retrieval_scores",
    "search",
]
