"""The paper's experiments, each on the data at hand or on the original files: words, images, reviews."""

from kedge.experiments.parts import Parts
from kedge.experiments.results import Result
from kedge.experiments.tables import Table

__all__ = ["Parts", "Result", "Table"]
