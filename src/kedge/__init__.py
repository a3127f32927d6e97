"""kedge: find the pairs between two embedding spaces.

>>> import kedge
>>> x, y = kedge.read_embeddings("x.vec"), kedge.read_embeddings("y.npz")
>>> discovery = kedge.AnchorDiscovery(n_anchors=300).fit(x, y, kedge.read_pairs("seeds.tsv", x, y))
>>> discovery.health_.searching.verdict, discovery.pair_keys_[:3]

Public names are imported on first use, so that `import kedge` and `kedge --help` are fast.
"""

import os

TYPE_CHECKING = False  # not imported from typing, which takes longer than all of this

__version__ = "0.1.0"

# Idle threads of torch sleep instead of spinning, provided that kedge loads torch first; for the library as well as the
# command line. Spinning is no faster, and several times slower if other processes use the same cores.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

if TYPE_CHECKING:
    from kedge.errors import InputError, KedgeError
    from kedge.estimators import AnchorDiscovery, KnownAnchors, load
    from kedge.estimators.judge_map import judge
    from kedge.judging.health import Health
    from kedge.many.common_space import CommonSpace
    from kedge.models.side import Side
    from kedge.models.translator import Translator
    from kedge.runs.translators import load_translator
    from kedge.solving.paper import PaperSettings
    from kedge.solving.schedule import Schedule
    from kedge.solving.steps import Step
    from kedge.spaces import Embeddings, read_embeddings, read_pairs, write_embeddings
    from kedge.tasks import (
        Audit,
        Drift,
        Rehearsal,
        RetrievalScores,
        Stitcher,
        StitchScores,
        audit,
        drift,
        read_relevance,
        rehearse,
        retrieval_scores,
    )

_HOME = {
    "AnchorDiscovery": "kedge.estimators",
    "Audit": "kedge.tasks",
    "CommonSpace": "kedge.many.common_space",
    "Drift": "kedge.tasks",
    "Embeddings": "kedge.spaces",
    "Health": "kedge.judging.health",
    "InputError": "kedge.errors",
    "KedgeError": "kedge.errors",
    "KnownAnchors": "kedge.estimators",
    "PaperSettings": "kedge.solving.paper",
    "Rehearsal": "kedge.tasks",
    "RetrievalScores": "kedge.tasks",
    "Schedule": "kedge.solving.schedule",
    "Step": "kedge.solving.steps",
    "StitchScores": "kedge.tasks",
    "Stitcher": "kedge.tasks",
    "Side": "kedge.models.side",
    "Translator": "kedge.models.translator",
    "audit": "kedge.tasks",
    "drift": "kedge.tasks",
    "judge": "kedge.estimators.judge_map",
    "load": "kedge.estimators",
    "load_translator": "kedge.runs.translators",
    "read_embeddings": "kedge.spaces",
    "read_pairs": "kedge.spaces",
    "read_relevance": "kedge.tasks",
    "rehearse": "kedge.tasks",
    "retrieval_scores": "kedge.tasks",
    "write_embeddings": "kedge.spaces",
}

__all__ = [
    "AnchorDiscovery",
    "Audit",
    "CommonSpace",
    "Drift",
    "Embeddings",
    "Health",
    "InputError",
    "KedgeError",
    "KnownAnchors",
    "PaperSettings",
    "Rehearsal",
    "RetrievalScores",
    "Schedule",
    "Side",
    "Step",
    "StitchScores",
    "Stitcher",
    "Translator",
    "__version__",
    "audit",
    "drift",
    "judge",
    "load",
    "load_translator",
    "read_embeddings",
    "read_pairs",
    "read_relevance",
    "rehearse",
    "retrieval_scores",
    "write_embeddings",
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'kedge' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
