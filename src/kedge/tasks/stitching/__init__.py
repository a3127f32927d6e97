"""Zero-shot stitching: a classifier trained on one space serves the other unchanged.

This package holds the `Stitcher`, the classifiers it trains (`heads`) and their scores (`label_scores`). May import
`kedge.estimators` and everything below.
"""

from kedge.tasks.stitching.heads import MLPHead
from kedge.tasks.stitching.label_scores import StitchScores, stitch_scores
from kedge.tasks.stitching.stitcher import Coordinates, Space, Stitcher

__all__ = ["Coordinates", "MLPHead", "Space", "StitchScores", "Stitcher", "stitch_scores"]
