"""What an alignment is for: search, evaluation, a lexicon, rehearsal, comparing runs, stitching, export.

Each task is a module or package of its own; all public names are re-exported here. May import `kedge.estimators` and
everything below it; knows nothing about pages, figures or the command line.
"""

from kedge.tasks.calibration import calibration_error, reliability, wilson_interval
from kedge.tasks.common_evaluation import MemberPairEvaluation, evaluate_common, gold_tuples_by_key
from kedge.tasks.evaluation import SCORE_NAMES, Evaluation, Truth, as_percent, evaluate, gold_by_key
from kedge.tasks.key_search import Neighbour, search
from kedge.tasks.lexicon import Lexicon, Translation, make_lexicon
from kedge.tasks.rehearsal import (
    DIRECTION_NAMES,
    METRIC_NAMES,
    DirectionResult,
    QueryCluster,
    Rehearsal,
    Relevance,
    SearchMetrics,
    read_relevance,
    rehearse,
)
from kedge.tasks.retrieval_quality import RetrievalScores, neighbour_scores, retrieval_scores, shared_scores
from kedge.tasks.run_comparison import (
    COMMON_COLUMNS,
    GOLD_COLUMNS,
    RUN_COLUMNS,
    CommonComparison,
    RunComparison,
    compare_common_runs,
    compare_runs,
    keys_of_runs,
)
from kedge.tasks.search_quality import SEARCH_NAMES, SearchScores, search_scores
from kedge.tasks.stitching import MLPHead, Stitcher, StitchScores, stitch_scores
from kedge.tasks.suggestion import Suggestion, suggest
from kedge.tasks.translation_export import about_member_translation, about_translation, export_bytes, export_lines
from kedge.tasks.watching import (
    CANARY_TEXTS,
    Audit,
    Drift,
    ModelGroup,
    Since,
    as_canary,
    audit,
    check_canary,
    drift,
    prefix_cost,
    since,
)

__all__ = [
    "CANARY_TEXTS",
    "COMMON_COLUMNS",
    "DIRECTION_NAMES",
    "GOLD_COLUMNS",
    "METRIC_NAMES",
    "RUN_COLUMNS",
    "SCORE_NAMES",
    "SEARCH_NAMES",
    "Audit",
    "CommonComparison",
    "DirectionResult",
    "Drift",
    "Evaluation",
    "Lexicon",
    "MLPHead",
    "MemberPairEvaluation",
    "ModelGroup",
    "Neighbour",
    "QueryCluster",
    "Rehearsal",
    "Relevance",
    "RetrievalScores",
    "RunComparison",
    "SearchMetrics",
    "SearchScores",
    "Since",
    "StitchScores",
    "Stitcher",
    "Suggestion",
    "Translation",
    "Truth",
    "about_member_translation",
    "about_translation",
    "as_canary",
    "as_percent",
    "audit",
    "calibration_error",
    "check_canary",
    "compare_common_runs",
    "compare_runs",
    "drift",
    "evaluate",
    "evaluate_common",
    "export_bytes",
    "export_lines",
    "gold_by_key",
    "gold_tuples_by_key",
    "keys_of_runs",
    "make_lexicon",
    "neighbour_scores",
    "prefix_cost",
    "read_relevance",
    "rehearse",
    "reliability",
    "retrieval_scores",
    "search",
    "search_scores",
    "shared_scores",
    "since",
    "stitch_scores",
    "suggest",
    "wilson_interval",
]
