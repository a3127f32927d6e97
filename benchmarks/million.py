"""A million rows against a million: one discovery of synthetic spaces whose pairs are known.

    python benchmarks/million.py                     on a GPU
    python benchmarks/million.py --rows 200000

2,000 clusters in 300 dimensions whose spread falls from 1 to 0.06; Y is X turned, shuffled and with noise (0.2 of the
spread in every dimension); 15 seeds. Time is all of `fit`, files aside; the first run of a kernel compiles it.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch

from kedge import AnchorDiscovery, Step
from setting import describe_machine

DIM, CLUSTERS, SEEDS = 300, 2000, 15


def main() -> None:
    """Make the spaces, discover, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--device", default="auto")
    arguments = parser.parse_args()
    x, y, truth = make_spaces(arguments.rows)
    stages: dict[str, float] = {}
    began = last = time.perf_counter()

    def on_step(step: Step) -> None:
        nonlocal last
        now = time.perf_counter()
        stages[step.stage] = stages.get(step.stage, 0.0) + now - last
        last = now

    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    seeds = np.stack([np.arange(SEEDS), truth[:SEEDS]], axis=1)
    discovery = AnchorDiscovery(device=arguments.device, on_step=on_step).fit(x, y, seeds)
    seconds = time.perf_counter() - began
    right = float(np.mean(discovery.match_ == truth))
    print(
        f"{describe_machine(arguments.device)}: {arguments.rows} x {arguments.rows} x {DIM}: {seconds:.1f} s "
        f"({', '.join(f'{name} {spent:.1f}' for name, spent in stages.items())}), "
        f"rows right {right:.4f}, pairs {len(discovery.pairs_)}, {discovery.health_.verdict}"
    )
    if torch.cuda.is_available():
        print(f"peak memory of the GPU: {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB")


def make_spaces(rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """X (n, 300), Y (n, 300), and for every row of X its row in Y (n,)."""
    place = "cuda" if torch.cuda.is_available() else "cpu"
    generator = torch.Generator(place).manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, device=place, generator=generator)

    spread = torch.logspace(0, -1.2, DIM, device=place)
    centres = normal(CLUSTERS, DIM) * spread
    member = torch.randint(0, CLUSTERS, (rows,), device=place, generator=generator)
    x = centres[member] + 0.7 * normal(rows, DIM) * spread
    turn, _ = torch.linalg.qr(normal(DIM, DIM))
    y = x @ turn + 0.2 * normal(rows, DIM) * spread
    order = torch.randperm(rows, device=place, generator=generator)
    return x.cpu().numpy(), y[order].cpu().numpy(), order.argsort().cpu().numpy()


if __name__ == "__main__":
    main()
