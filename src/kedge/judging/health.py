"""The two label-free answers to "did it work?": is the map right, and are the pairs right?

They come apart where two files hold the same kind of things but few, or none, of the same things: the map is then as
right as ever, and there is hardly a pair to be found.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from html import escape
from typing import Any, Literal

from kedge.storage.schema import Share, restore

Verdict = Literal["ok", "uncertain", "failed"]

OK, UNCERTAIN = 0.3, 0.15
"""Minimum scores of the two better verdicts."""


def verdict_of(score: float) -> Verdict:
    """What a score comes to."""
    return "ok" if score >= OK else "uncertain" if score >= UNCERTAIN else "failed"


def sentence(statement: object) -> str:
    """A statement with a capital letter."""
    words = str(statement)
    return words[:1].upper() + words[1:]


@dataclass(frozen=True)
class Answer:
    """To one of the two questions: `score` in [0, 1], a verdict, and one sentence each of reason and advice."""

    score: Share
    verdict: Verdict
    reason: str
    advice: str

    def _repr_html_(self) -> str:
        """For notebooks."""
        return f"<p>{_described(self)}</p>"


@dataclass(frozen=True)
class Interval:
    """A share, and where it lies with 90 % probability; `estimate` is None where only bounds can be given."""

    estimate: Share | None
    low: Share
    high: Share

    def __str__(self) -> str:
        if self.estimate is None:
            return f"at least {self.low:.0%}" if self.low >= 0.01 else "unknown"
        low, high = f"{100 * self.low:.0f}", f"{100 * self.high:.0f}"
        return f"about {self.estimate:.0%}" + (f", between {low} and {high}%" if low != high else "")


@dataclass(frozen=True)
class Overlap:
    """The shares of the items of X and of Y that the other space has too."""

    x: Interval
    y: Interval

    def __str__(self) -> str:
        of_x, of_y = str(self.x), str(self.y)
        return "unknown" if of_x == of_y == "unknown" else f"{of_x} of X's items; {of_y} of Y's"


@dataclass(frozen=True)
class Health:
    """Both answers, and what they rest on.

    `recognised` is about the share of the rows of the smaller space that recognise their counterpart; `closeness` and
    `agreement` say by how much the map beats the best of some random starts in how close it brings the spaces, and in
    how far two halves of the rows agree about it (None where that was not needed, or could not be measured); `mutual`
    is the share of rows of X in mutual pairs.
    """

    map: Answer
    pairs: Answer
    overlap: Overlap
    recognised: Share
    closeness: float | None
    agreement: float | None
    mutual: Share

    def _repr_html_(self) -> str:
        """For notebooks: a line for each answer, and what is shared."""
        answers = {each.name: getattr(self, each.name) for each in fields(self)}
        rows = [
            f"<tr><th>{sentence(name)}</th><td>{_described(answer)}</td></tr>"
            for name, answer in answers.items()
            if isinstance(answer, Answer)
        ]
        shared = f"<tr><th>In both</th><td>{escape(str(self.overlap))}</td></tr>"
        return f"<table>{''.join(rows)}{shared}</table>"

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Health:
        """From what `asdict` made of one; anything else is an `InputError`."""
        health: Health = restore(Health, stored, "health")
        return health


def _described(answer: Answer) -> str:
    """An answer in HTML."""
    return f"<b>{answer.verdict}</b> ({answer.score:.2f}): {escape(answer.reason)} {escape(answer.advice)}"
