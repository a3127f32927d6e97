"""Pure functions on tensors: normalise, project, and the linear maps that pairs imply."""

from kedge.geometry.canonical import (
    PairModel,
    Spectrum,
    canonical_directions,
    canonical_map,
    choose_ridge,
    coloured_rotation,
    fit_pair_model,
    held_out_correlations,
)
from kedge.geometry.eigen import eigh
from kedge.geometry.least_squares import least_squares_on_sphere, refine_rotation, ridge
from kedge.geometry.moments import Moments, moments_of
from kedge.geometry.normalise import center_of, denormalise, normalise, principal_axes, standardise, unit, whiten
from kedge.geometry.procrustes import nearest_rotation, orthogonal_map
from kedge.geometry.relative import relative
from kedge.geometry.sphere import exponential_map

__all__ = [
    "Moments",
    "PairModel",
    "Spectrum",
    "canonical_directions",
    "canonical_map",
    "center_of",
    "choose_ridge",
    "coloured_rotation",
    "denormalise",
    "eigh",
    "exponential_map",
    "fit_pair_model",
    "held_out_correlations",
    "least_squares_on_sphere",
    "moments_of",
    "nearest_rotation",
    "normalise",
    "orthogonal_map",
    "principal_axes",
    "refine_rotation",
    "relative",
    "ridge",
    "standardise",
    "unit",
    "whiten",
]
