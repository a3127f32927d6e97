"""The products and selections behind matching, each beside plain torch, checked before it is timed.

    python benchmarks/matching.py                               20,074 rows, an odd number of columns
    python benchmarks/matching.py --rows 20000 --dim 100

"Kedge" here is what `row_blocks` and `largest` do; the rest of a matching is the same in both.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
import torch

from kedge.geometry import unit
from kedge.matching import largest, match_csls, row_blocks
from setting import new_parser, timed

REPEATS = 9
BLOCK = 1024


def main() -> None:
    """Print a table row per comparison, with the ratio of median times."""
    parser = new_parser(__doc__)
    parser.add_argument("--rows", type=int, default=20_074)
    parser.add_argument("--dim", type=int, default=300)
    arguments = parser.parse_args()
    generator = torch.Generator().manual_seed(0)
    b = unit(torch.randn(arguments.rows, arguments.dim, generator=generator))
    a = b[torch.randperm(len(b), generator=generator)]
    a = unit(a + 0.05 * torch.randn(a.shape, generator=generator))
    plain = torch.mm(a[:BLOCK], b.T)
    _, block = next(row_blocks(a[:BLOCK], b))
    torch.testing.assert_close(block, plain, rtol=0, atol=1e-5)
    torch.testing.assert_close(largest(block, 10)[0], block.topk(10, dim=1).values)

    print(f"{BLOCK} rows against {len(b)} x {arguments.dim}, float32, {os.cpu_count()} CPU cores\n")
    print("| what | plain torch, ms | kedge, ms | ratio |\n|---|---|---|---|")
    compare(
        "product, rows on cache lines",
        lambda: torch.mm(a[:BLOCK], b.T, out=plain),
        lambda: torch.mm(a[:BLOCK], b.T, out=block),
    )
    compare("top 10", lambda: block.topk(10, dim=1), lambda: largest(block, 10))
    compare("top 2", lambda: block.topk(2, dim=1), lambda: largest(block, 2))
    print(f"\nall rows by CSLS: {timed(lambda: match_csls(a, b))[0]:.1f} s")


def compare(name: str, plain: Callable[[], object], ours: Callable[[], object]) -> None:
    """Print a table row with the median times of both, which are timed alternately."""
    times = np.array([[timed(plain)[0], timed(ours)[0]] for _ in range(REPEATS + 1)][1:])  # the first warms up
    before, after = 1000 * np.median(times, axis=0)
    print(f"| {name} | {before:.1f} | {after:.1f} | {before / after:.1f} |")


if __name__ == "__main__":
    main()
