"""How an experiment is run: what every experiment is told, and the random states it consists of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from kedge.experiments.pairs_of_spaces import ANCHORS, SEEDS
from kedge.experiments.parts import OnPart, Parts, describe_machine
from kedge.solving.steps import OnStep


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Where results go, which random states are run, on which device, and who is told.

    Parameters
    ----------
    out : Path
        A folder; finished parts are kept in it, and not done again.
    paper_optimiser : bool
        Whether to run the paper's optimiser too, which takes very long without a GPU.
    figures : bool
        Whether to draw figures (needs `kedge[plot]`).
    """

    out: Path
    random_states: Sequence[int]
    on_part: OnPart
    on_step: OnStep | None = None
    device: str = "auto"
    paper_optimiser: bool = False
    figures: bool = True

    def settings(self) -> dict[str, Any]:
        """What all results depend on, the data aside."""
        return {
            "paper_optimiser": self.paper_optimiser,
            "seeds": SEEDS,
            "anchors": ANCHORS,
            **describe_machine(self.device),
        }

    def states(
        self, name: str, settings: Mapping[str, Any], run: Callable[..., dict[str, Any]]
    ) -> list[dict[str, Any]]:
        """The results of `run` for all random states, read where they are finished."""
        parts = Parts(self.out / "parts", settings, self.on_part)
        run = partial(run, device=self.device, paper_optimiser=self.paper_optimiser, on_step=self.on_step)
        return [parts.get(f"{name}-state-{state}", partial(run, state)) for state in self.random_states]
