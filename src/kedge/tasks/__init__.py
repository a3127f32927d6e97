"""What an alignment is for: retrieval across spaces and its evaluation, search, rehearsal, stitching, export."""

from kedge.tasks.calibration import calibration_error, reliability
from kedge.tasks.evaluation import SCORE_NAMES, Evaluation, Truth, as_percent, evaluate, gold_by_key
from kedge.tasks.export import about_translation, export_bytes, export_lines
from kedge.tasks.heads import MLPHead
from kedge.tasks.rehearsal import WAY_NAMES, Rehearsal, rehearse
from kedge.tasks.retrieval import RetrievalScores, neighbour_scores, retrieval_scores, shared_scores
from kedge.tasks.runs import RUN_COLUMNS, SCORE_COLUMNS, RunsCompared, compare_runs, keys_of_runs
from kedge.tasks.search import Neighbour, search
from kedge.tasks.searching import SEARCH_NAMES, SearchScores, search_scores
from kedge.tasks.stitching import Stitcher, StitchScores, stitch_scores
from kedge.tasks.suggestion import Suggestion, suggest
from kedge.tasks.ways import FIGURE_NAMES, QueryCluster, SearchFigures, Way

__all__ = [
    "FIGURE_NAMES",
    "RUN_COLUMNS",
    "SCORE_COLUMNS",
    "SCORE_NAMES",
    "SEARCH_NAMES",
    "WAY_NAMES",
    "Evaluation",
    "MLPHead",
    "Neighbour",
    "QueryCluster",
    "Rehearsal",
    "RetrievalScores",
    "RunsCompared",
    "SearchFigures",
    "SearchScores",
    "StitchScores",
    "Stitcher",
    "Suggestion",
    "Truth",
    "Way",
    "about_translation",
    "as_percent",
    "calibration_error",
    "compare_runs",
    "evaluate",
    "export_bytes",
    "export_lines",
    "gold_by_key",
    "keys_of_runs",
    "neighbour_scores",
    "rehearse",
    "reliability",
    "retrieval_scores",
    "search",
    "search_scores",
    "shared_scores",
    "stitch_scores",
    "suggest",
]
