"""Pure tensor functions: normalising, spectra, and the linear maps that pairs imply. Imports nothing else of kedge."""

from kedge.geometry.canonical import canonical_directions, canonical_loadings, held_out_correlations, recolored_rotation
from kedge.geometry.eigen import eigh, leading_eigh
from kedge.geometry.independent import Components
from kedge.geometry.isotonic import never_rising
from kedge.geometry.least_squares import refine_rotation, ridge
from kedge.geometry.moments import Moments, moments_of
from kedge.geometry.normalise import center_of, denormalise, normalise, principal_axes, standardise, unit, whiten
from kedge.geometry.procrustes import emphasis, nearest_rotation, orthogonal_map
from kedge.geometry.relative import relative
from kedge.geometry.spectrum import Spectrum, leading_directions
from kedge.geometry.sphere import exponential_map

__all__ = [
    "Components",
    "Moments",
    "Spectrum",
    "canonical_directions",
    "canonical_loadings",
    "center_of",
    "denormalise",
    "eigh",
    "emphasis",
    "exponential_map",
    "held_out_correlations",
    "leading_directions",
    "leading_eigh",
    "moments_of",
    "nearest_rotation",
    "never_rising",
    "normalise",
    "orthogonal_map",
    "principal_axes",
    "recolored_rotation",
    "refine_rotation",
    "relative",
    "ridge",
    "standardise",
    "unit",
    "whiten",
]
