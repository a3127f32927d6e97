"""The fit of one case of `before_after.py`, in a process of its own: `python one_fit.py CASE.npz ANSWER.npz`.

Runs with whichever kedge is on the path, old or new, and so uses only names that all versions have.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path

import numpy as np
import torch

import kedge


def main(case_file: str, answer_file: str) -> None:
    """Fit the spaces of a case and write all that is compared."""
    case = np.load(case_file)
    torch.set_num_threads(int(case["threads"]))
    discovery = kedge.AnchorDiscovery(random_state=int(case["random_state"]), device="cpu")
    few = kedge.Embeddings([str(row) for row in range(60)], np.random.default_rng(0).random((60, 5), dtype=np.float32))
    discovery.fit(few, few, np.arange(15)[:, None].repeat(2, axis=1))  # loads everything
    loaded = _bytes("VmRSS")
    x, y = (kedge.Embeddings(case[f"keys_{side}"].tolist(), case[side]) for side in "xy")
    began = time.perf_counter()
    discovery.fit(x, y, case["seeds"])
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - loaded
    if hasattr(discovery, "translate_back"):  # until `translate` took `back`
        back = discovery.translate_back(case["queries_y"])
    else:
        back = discovery.translate(case["queries_y"], back=True)
    answers = {"map": discovery.health_.map, "pairs": discovery.health_.pairs}
    seeds = set(map(tuple, case["seeds"].tolist()))  # which were among the pairs, some time ago
    found = [number for number, pair in enumerate(discovery.pairs_.tolist()) if tuple(pair) not in seeds]
    description = {
        "package": str(Path(kedge.__file__).parent),
        "seconds": seconds,
        "peak_bytes": peak,
        "pair_keys": [list(map(str, discovery.pair_keys_[number])) for number in found],
        "verdicts": {name: answer.verdict for name, answer in answers.items()},
        "scores": {name: float(answer.score) for name, answer in answers.items()},
    }
    np.savez(
        answer_file,
        description=json.dumps(description),
        pairs=discovery.pairs_[found],
        pair_confidence=discovery.pair_confidence_[found],
        confidence=discovery.confidence_,
        match=discovery.match_,
        forth=discovery.translate(case["queries_x"]),
        back=back,
    )


def _bytes(name: str) -> int:
    """A figure of Linux's account of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


if __name__ == "__main__":
    main(*sys.argv[1:])
