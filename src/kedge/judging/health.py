"""The answers to "did it work?", each for one use: is the map fit for searching, and are the found pairs right?

They differ where two files hold the same kind of items, but share few or none: the map then serves as well as ever, but
there are hardly any pairs to find. They also differ where rows look so much alike that counterparts do not come first,
although the map as a whole is right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Literal

from kedge.storage.schema import Share, restore

Verdict = Literal["ok", "uncertain", "failed"]

OK, UNCERTAIN = 0.3, 0.15
"""Minimum scores of the two better verdicts, except for a search that was measured: see `answers`."""

_OPINIONS = {
    "agrees": "agree with what was found",
    "near": "near it",
    "contradicted": "contradicted",
    "unknown": "about which nothing is known",
}
SEED_OPINIONS = tuple(_OPINIONS)
"""Opinions on a seed: its partner was found; is near; is not; nothing can be said, since the map is not ok."""


def verdict_of(score: float) -> Verdict:
    """The verdict for a score."""
    return "ok" if score >= OK else "uncertain" if score >= UNCERTAIN else "failed"


def describe_opinions(opinions: Sequence[str], set_aside: int) -> str:
    """How many seeds have each of the opinions, and how many were set aside."""
    counts = {opinion: opinions.count(opinion) for opinion in SEED_OPINIONS}
    said = ", ".join(f"{count:,} {_OPINIONS[opinion]}" for opinion, count in counts.items() if count)
    return said + (f" ({set_aside:,} of them set aside)" if set_aside else "")


def sentence(statement: object) -> str:
    """A statement with a capital letter."""
    words = str(statement)
    return words[:1].upper() + words[1:]


@dataclass(frozen=True)
class Answer:
    """Whether the result serves one use: `score` in [0, 1], a verdict, and one sentence each of reason and advice.

    `basis` says in a few words what the verdict rests on, such as held-out known pairs, recognition or random starts.
    """

    score: Share
    verdict: Verdict
    reason: str
    advice: str
    basis: str = ""

    def _repr_html_(self) -> str:
        """The answer as HTML, for notebooks."""
        return f"<p>{_described(self)}</p>"


@dataclass(frozen=True)
class Interval:
    """A share with the interval that holds it with 90 % probability; `estimate` is None if there are only bounds."""

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
    """An answer for each use, and what they rest on.

    `searching`: does a translated vector find what it should? `pairs`: are the found pairs, which do not include the
    seeds, right? `lexicon`: are translations right? It is None in a run, since a lexicon is made afterwards and carries
    its own answer: `make_lexicon(...).answer`, and what `kedge lexicon` prints.
    `judged`: is the map right, whether or not one can search with it? It is uncertain if only known pairs show that,
    and None in runs that were written before it was kept.
    `recognised` is the approximate share of the smaller space's rows that recognise their counterpart. `closeness` and
    `agreement` say by how much the map beats its best rival, of random starts or mirror images, in how close it brings
    the spaces, and in how far two halves of the rows agree about it (None if that was not needed, or could not be
    measured). `mutual` is the share of rows of X in mutual pairs.
    """

    searching: Answer
    pairs: Answer
    overlap: Overlap
    recognised: Share
    closeness: float | None
    agreement: float | None
    mutual: Share
    lexicon: Answer | None = None
    judged: Answer | None = None

    @property
    def map(self) -> Answer:
        """The answer for searching, which is what the map is for."""
        return self.searching

    @property
    def judgement(self) -> Answer:
        """Whether the map is right; in a run that does not hold that, the answer for searching."""
        return self.searching if self.judged is None else self.judged

    @property
    def answers(self) -> dict[str, Answer]:
        """The answers that were given, by use."""
        given = {"searching": self.searching, "pairs": self.pairs, "lexicon": self.lexicon}
        return {use: answer for use, answer in given.items() if answer is not None}

    def _repr_html_(self) -> str:
        """HTML for notebooks: a line for each answer, and what is shared."""
        rows = [
            f"<tr><th>{sentence(use)}</th><td>{_described(answer)}</td></tr>" for use, answer in self.answers.items()
        ]
        shared = f"<tr><th>In both</th><td>{escape(str(self.overlap))}</td></tr>"
        return f"<table>{''.join(rows)}{shared}</table>"

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Health:
        """Restore what `asdict` made of a `Health`; raises an `InputError` for anything else."""
        health: Health = restore(Health, stored, "health")
        return health


def _described(answer: Answer) -> str:
    """An answer in HTML."""
    basis = f" [by {escape(answer.basis)}]" if answer.basis else ""
    return f"<b>{answer.verdict}</b> ({answer.score:.2f}): {escape(answer.reason)}{basis} {escape(answer.advice)}"
