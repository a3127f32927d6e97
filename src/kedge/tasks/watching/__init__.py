"""Watching an index: has the model changed (`drift`), are there several (`audit`), is it still the same (`canary`)?

May import `kedge.estimators` and everything below it, and the top-level modules of `kedge.tasks`.
"""

from kedge.tasks.watching.canary import CANARY_TEXTS, as_canary, check_canary
from kedge.tasks.watching.change_point import Since, since
from kedge.tasks.watching.drift_verdict import UNCHANGED, Drift, drift, prefix_cost
from kedge.tasks.watching.store_audit import Audit, ModelGroup, audit

__all__ = [
    "CANARY_TEXTS",
    "UNCHANGED",
    "Audit",
    "Drift",
    "ModelGroup",
    "Since",
    "as_canary",
    "audit",
    "check_canary",
    "drift",
    "prefix_cost",
    "since",
]
