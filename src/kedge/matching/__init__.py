"""Who corresponds to whom: reductions of a similarity that is never stored, and what is built on them."""

from kedge.matching.assignment import assign_distinct
from kedge.matching.blocks import DEFAULT_BUDGET, row_blocks
from kedge.matching.candidates import Candidates, exact_is_quick, find_candidates, nearest_of
from kedge.matching.comparison import Agreement, CandidateComparison, Comparison, ExactComparison
from kedge.matching.csls import Match, hubness, match_csls
from kedge.matching.half_precision import COLUMNS_OF_A_BIAS, in_halves
from kedge.matching.kernels.backend import Precision, current_precision, use_fused, using_precision
from kedge.matching.neighbours import best_partners, greatest, top_k
from kedge.matching.processes import Processes, processes, several_processes
from kedge.matching.rows import Rows, as_rows
from kedge.matching.seconds import second_margins
from kedge.matching.sinkhorn import SinkhornResult, epsilon_schedule, sinkhorn
from kedge.matching.softmin import BlockedSoftmin, Softmin
from kedge.matching.transport import TransportStep, balanced, transport_step

__all__ = [
    "COLUMNS_OF_A_BIAS",
    "DEFAULT_BUDGET",
    "Agreement",
    "BlockedSoftmin",
    "CandidateComparison",
    "Candidates",
    "Comparison",
    "ExactComparison",
    "Match",
    "Precision",
    "Processes",
    "Rows",
    "SinkhornResult",
    "Softmin",
    "TransportStep",
    "as_rows",
    "assign_distinct",
    "balanced",
    "best_partners",
    "current_precision",
    "epsilon_schedule",
    "exact_is_quick",
    "find_candidates",
    "greatest",
    "hubness",
    "in_halves",
    "match_csls",
    "nearest_of",
    "processes",
    "row_blocks",
    "second_margins",
    "several_processes",
    "sinkhorn",
    "top_k",
    "transport_step",
    "use_fused",
    "using_precision",
]
