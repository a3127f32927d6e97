"""Matching rows of two spaces, by reductions over a similarity matrix that is never stored.

May import geometry and below; `kernels` is the only folder that depends on Triton.
"""

from kedge.matching.assignment import assign_distinct
from kedge.matching.blocks import DEFAULT_BUDGET, map_rows, require_budget, row_blocks, row_pieces
from kedge.matching.candidates import Candidates, exact_is_quick, find_candidates, nearest_of
from kedge.matching.comparison import CandidateComparison, CandidateRecall, Comparison, ExactComparison
from kedge.matching.csls import Match, hubness, match_csls, second_margins
from kedge.matching.half_precision import COLUMNS_PER_BIAS, to_half
from kedge.matching.kernels.backend import Precision, current_precision, use_fused, using_precision
from kedge.matching.neighbours import best_partners, largest, top_k, top_k_both
from kedge.matching.problem import Problem, draw_rows
from kedge.matching.readings import CosineReading, Reading, compare, compare_among, held, read_y
from kedge.matching.sinkhorn import BlockedSoftmin, SinkhornResult, Softmin, epsilon_schedule, sinkhorn
from kedge.matching.transport import TransportStep, balanced, transport_step, transport_targets, transport_value

__all__ = [
    "COLUMNS_PER_BIAS",
    "DEFAULT_BUDGET",
    "BlockedSoftmin",
    "CandidateComparison",
    "CandidateRecall",
    "Candidates",
    "Comparison",
    "CosineReading",
    "ExactComparison",
    "Match",
    "Precision",
    "Problem",
    "Reading",
    "SinkhornResult",
    "Softmin",
    "TransportStep",
    "assign_distinct",
    "balanced",
    "best_partners",
    "compare",
    "compare_among",
    "current_precision",
    "draw_rows",
    "epsilon_schedule",
    "exact_is_quick",
    "find_candidates",
    "held",
    "hubness",
    "largest",
    "map_rows",
    "match_csls",
    "nearest_of",
    "read_y",
    "require_budget",
    "row_blocks",
    "row_pieces",
    "second_margins",
    "sinkhorn",
    "to_half",
    "top_k",
    "top_k_both",
    "transport_step",
    "transport_targets",
    "transport_value",
    "use_fused",
    "using_precision",
]
