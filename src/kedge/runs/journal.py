"""What a discovery tells while it runs, and what it keeps so that it can go on after it was stopped."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from kedge.geometry import PairModel
from kedge.matching import Candidates, Match, processes
from kedge.runs.arrays import MOST_CORRELATED, Array, between, rows_of
from kedge.runs.checkpoint import Checkpoint, Kept
from kedge.solving.steps import OnStep, Step


@dataclass(frozen=True)
class Journal:
    """Tells every step to `on_step`, remembers it in `history`, and keeps states in a `checkpoint`, if there is one.

    `stage` is the name under which states are kept, and `attempt` what steps say is being tried. Of several processes
    only the first tells and writes, and what it recalls, all recall. The checkpoint is this one's inside `with`.
    """

    on_step: OnStep | None = None
    checkpoint: Checkpoint | None = None
    history: list[Step] = field(default_factory=list)
    stage: str = ""
    attempt: str = ""

    def __enter__(self) -> Journal:
        if self.checkpoint is not None:
            self.history.extend(processes().object_from_first(self.checkpoint.open() if processes().leads else None))
        return self

    def __exit__(self, *_: object) -> None:
        if self.checkpoint is not None:
            self.checkpoint.close()

    def of(self, stage: str, attempt: str = "") -> Journal:
        """The same journal for a part of the work."""
        return replace(self, stage=f"{self.stage}{stage}-", attempt=attempt or self.attempt)

    def apart(self) -> Journal:
        """The same journal for work whose steps are no part of the discovery's history."""
        return replace(self, history=[])

    def tell(self, step: Step) -> None:
        """Report a step that is done."""
        step = replace(step, attempt=self.attempt)
        self.history.append(step)
        if self.on_step is not None and processes().leads:
            self.on_step(step)

    def keep(self, name: str, **state: Tensor | float) -> None:
        """Keep a state in place of the last one of that name; complete or not at all."""
        if self.checkpoint is not None and processes().leads:
            tensors = {key: torch.as_tensor(value).cpu().contiguous() for key, value in state.items()}
            self.checkpoint.write(self.stage + name, tensors, self.history)

    def recall(self, name: str, device: torch.device, expected: Kept) -> dict[str, Tensor] | None:
        """The state last kept under that name, or None; raises `InputError` if it is not what it must be."""
        if self.checkpoint is None:
            return None
        kept = self.checkpoint.read(self.stage + name, expected) if processes().leads else None
        state = processes().object_from_first(kept)
        return None if state is None else {key: value.to(device) for key, value in state.items()}

    def once(
        self, name: str, device: torch.device, expected: Kept, compute: Callable[[], dict[str, Tensor]]
    ) -> dict[str, Tensor]:
        """The state kept under that name; where there is none, what is computed, and kept."""
        state = self.recall(name, device, expected)
        if state is None:
            state = compute()
            self.keep(name, **state)
        return state


def match_state(match: Match) -> dict[str, Tensor]:
    """A match as a state to keep."""
    return {
        "partner": match.partner,
        "margin": match.margin,
        "row_hubness": match.row_hubness,
        "column_hubness": match.column_hubness,
    }


def match_kept(rows_x: int, rows_y: int, **more: Array) -> Kept:
    """What the state of a match of so many rows must be; nobody shares a partner with the row that it prefers."""
    tensors = {
        "partner": rows_of(rows_y, rows_x),
        "margin": between(1e9, rows_x, infinite=True),
        "row_hubness": between(1e9, rows_x),
        "column_hubness": between(1e9, rows_y),
    }

    def distinct(state: Mapping[str, Tensor]) -> bool:
        taken = state["partner"][state["margin"] > 0]
        return len(torch.unique(taken)) == len(taken)

    return Kept(tensors | more, distinct)


def match_from(state: Mapping[str, Tensor]) -> Match:
    """The match that a kept state holds."""
    return Match(state["partner"], state["margin"], state["row_hubness"], state["column_hubness"])


def candidates_state(candidates: Candidates) -> dict[str, Tensor]:
    """Candidates as a state to keep."""
    return {"of_a": candidates.of_a, "of_b": candidates.of_b, "probes": torch.tensor(candidates.probes)}


def candidates_kept(rows_x: int, rows_y: int) -> Kept:
    """What the state of candidates for so many rows must be."""
    of_a = rows_of(rows_y, rows_x, "candidates", least=-1, dtype="I32")
    of_b = rows_of(rows_x, rows_y, "candidates", least=-1, dtype="I32")
    return Kept({"of_a": of_a, "of_b": of_b, "probes": rows_of(2**31)})


def candidates_from(state: Mapping[str, Tensor]) -> Candidates:
    """The candidates that a kept state holds."""
    return Candidates(state["of_a"], state["of_b"], int(state["probes"]))


def model_state(model: PairModel) -> dict[str, Tensor | float]:
    """A pair model as a state to keep."""
    return {
        "directions_x": model.directions_x,
        "directions_y": model.directions_y,
        "correlations": model.correlations,
        "ridge": model.ridge,
    }


def model_kept(dim_x: int, dim_y: int, **more: Array) -> Kept:
    """What the state of a pair model between so many dimensions must be."""
    tensors = {
        "directions_x": between(1e15, dim_x, "shared", dtype="F64"),
        "directions_y": between(1e15, dim_y, "shared", dtype="F64"),
        "correlations": Array(("shared",), "F64", least=0, most=MOST_CORRELATED),
        "ridge": Array((), least=0, most=1e6),
    }
    return Kept(tensors | more)


def model_from(state: Mapping[str, Tensor]) -> PairModel:
    """The pair model that a kept state holds."""
    return PairModel(state["directions_x"], state["directions_y"], state["correlations"], float(state["ridge"]))
