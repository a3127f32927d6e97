"""The estimators, as scikit-learn users know them: a façade over solving, judging and models, which it may import."""

from kedge.estimators.anchor_discovery import AnchorDiscovery
from kedge.estimators.known_anchors import KnownAnchors
from kedge.estimators.persistence import load

__all__ = ["AnchorDiscovery", "KnownAnchors", "load"]
