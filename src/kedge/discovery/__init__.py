"""The method: start, alternation, finish, the paper's optimiser, confidence, health, and the estimators."""

from kedge.discovery.checkpoint import discard
from kedge.discovery.description import holds_run, read_description
from kedge.discovery.estimator import AnchorDiscovery
from kedge.discovery.health import Answer, Health, Interval, Overlap
from kedge.discovery.known import KnownAnchors
from kedge.discovery.paper import PaperSettings
from kedge.discovery.schedule import Schedule
from kedge.discovery.steps import Step
from kedge.discovery.storage import check_target, load
from kedge.discovery.translation import Translation

__all__ = [
    "AnchorDiscovery",
    "Answer",
    "Health",
    "Interval",
    "KnownAnchors",
    "Overlap",
    "PaperSettings",
    "Schedule",
    "Step",
    "Translation",
    "check_target",
    "discard",
    "holds_run",
    "load",
    "read_description",
]
