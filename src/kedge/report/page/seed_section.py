"""The page's section on the seeds: the run's opinion of each, kept apart from what was found."""

from __future__ import annotations

from typing import Any

from kedge.estimators import AnchorDiscovery
from kedge.judging.health import describe_opinions
from kedge.report.page.row_texts import RowTexts

_MAX_ROWS = 100


def seed_words(discovery: AnchorDiscovery, texts: RowTexts) -> dict[str, Any]:
    """Values for the template: the number of seeds by opinion, and a table with the most doubtful seeds first."""
    opinions, set_aside = discovery.seed_opinion_.tolist(), int(discovery.seed_is_suspect_.sum())
    seeds = zip(
        discovery.seed_keys_,
        opinions,
        discovery.seed_rank_.tolist(),
        discovery.seed_found_keys_,
        discovery.seed_is_suspect_.tolist(),
        strict=True,
    )
    doubtful = sorted(seeds, key=lambda seed: -seed[2])
    return {
        "opinions": describe_opinions(opinions, set_aside),
        "set_aside": set_aside,
        "rows": [
            {
                "x": texts.of("x", str(left)) or left,
                "y": texts.of("y", str(right)) or right,
                "opinion": opinion + (", set aside" if suspect else ""),
                "rank": f"{rank:g}",
                "found": texts.of("y", str(found)) or found,
            }
            for (left, right), opinion, rank, found, suspect in doubtful[:_MAX_ROWS]
        ],
        "more": max(len(doubtful) - _MAX_ROWS, 0),
    }
