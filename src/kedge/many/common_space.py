"""`CommonSpace`: one common space for three, five or ten spaces."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from kedge.errors import InputError
from kedge.estimators.devices import Loaded, load_space, resolve_device, to_numpy
from kedge.estimators.inputs import RandomState, as_random_state
from kedge.many.common_health import CommonHealth, judge_union
from kedge.many.common_run import CommonContents, read_common_run, write_common_run
from kedge.many.fitted_common import FittedCommonSpace, Matrix
from kedge.many.joining import Joined, join
from kedge.many.member import Member
from kedge.many.numerics.grouping import Groups
from kedge.many.seed_tuples import as_seed_tuples
from kedge.many.uniting import Union, member_of, unite
from kedge.matching import DEFAULT_BUDGET, exact_is_quick, require_budget
from kedge.solving.steps import Log, OnStep
from kedge.spaces import Embeddings
from kedge.spaces.conversion import SpaceLike, as_space
from kedge.spaces.embeddings import Key, texts_of
from kedge.storage.checksum import matrix_checksum

OnPair = Callable[[str, str, str], None]
"""Called with the names of two spaces that have been aligned, and the verdict."""


class CommonSpace(FittedCommonSpace):
    """One common space for many: a map into it and back for each, and groups of rows that are one item.

    Parameters
    ----------
    disjoint : bool
        Whether the spaces are known to have no items in common except the seeds, so that no groups are searched for.
    min_confidence : float
        Rows are merged into one group if the probability that they are one item is at least this. It applies to each
        step by itself: a group of three rows or more has the product of its steps' probabilities, which may be lower.
        It only decides which groups are listed, and changes no map.
    device : str
        "auto", "cpu", "cuda" or "cuda:N": where pairs of spaces are aligned. Grouping, and `add`, run on the CPU.
    random_state : int, NumPy generator or None
        The same number gives the same result on the same machine.
    on_step : callable, optional
        Called with a `Step` after each step.
    on_pair : callable, optional
        Called with two names and a verdict after each pair of spaces.

    Attributes
    ----------
    members_ : dict of Member
        The spaces that belong, by name, in the order in which they were given.
    groups_ : int array, shape (g, k)
        For every item its rows in the k members, -1 where it has none; the largest and most probable groups first.
        Every row of every member is in one group, alone if it has no counterpart.
    group_probability_ : float array, shape (g,)
        The probability that all rows of a group are one item.
    group_keys_ : list of tuples
        The keys of the rows, None where there is none.
    seeds_ : int array, shape (a, k)
        The seeds given to `fit` as rows of the members, -1 where unknown.
    health_ : CommonHealth
        Whether it worked, judged without labels: `health_.map` and `health_.pairs` for the whole, `health_.each` for
        all pairs of spaces, `health_.loops` for the triangles, and `health_.left_out`, the spaces that do not belong.
    matches_ : dict of int arrays, shape (n,)
        By two names, for every row of the first space its best candidate in the second: the row in its group, or the
        likeliest row if there is none. Set by `fit` only; it is not saved with a run.
    random_state_ : int
    provenance_ : dict
        Inputs and timings that a loaded run was saved with.

    Examples
    --------
    >>> common = kedge.CommonSpace().fit({"minilm": x, "bge": y, "me5": z}, seeds=[("cat", "cat", "chat"), ...])
    >>> common.translate(vectors, source="bge", target="minilm")
    >>> common.groups_frame()
    """

    def __init__(
        self,
        *,
        disjoint: bool = False,
        min_confidence: float = 0.5,
        device: str = "auto",
        random_state: RandomState = 0,
        on_step: OnStep | None = None,
        on_pair: OnPair | None = None,
    ) -> None:
        self.disjoint = disjoint
        self.min_confidence = min_confidence
        self.device = device
        self.random_state = random_state
        self.on_step = on_step
        self.on_pair = on_pair

    # -- fitting ----------------------------------------------------------------------------------

    def fit(self, spaces: Mapping[str, SpaceLike], seeds: Any = None) -> CommonSpace:
        """Find the common space.

        Parameters
        ----------
        spaces : dict of spaces
            At least two, by name; each in any form that `AnchorDiscovery.fit` takes. They may differ in dimensions, and
            any space may lack any items.
        seeds : optional
            Rows that are known to be one item: tuples with a key or row for each space in order, None where unknown; a
            DataFrame whose columns are names of spaces; dicts from names to keys; or a dict from two names to pairs,
            {("minilm", "bge"): [("cat", "chat"), ...]}.
        """
        if not 0 <= self.min_confidence <= 1:
            raise InputError(f"min_confidence must be between 0 and 1, got {self.min_confidence!r}")
        given = _as_spaces(spaces, minimum=2)
        known = as_seed_tuples(seeds, given)
        self.random_state_ = as_random_state(self.random_state)
        loaded = self._load(given, resolve_device(self.device))
        names = list(given)
        union = unite(
            loaded,
            torch.from_numpy(known).to(loaded[0].rows.device),
            self.random_state_,
            Log(self.on_step),
            disjoint=self.disjoint,
            min_confidence=self.min_confidence,
            on_pair=lambda pair, found: self._report(names[pair[0]], names[pair[1]], found.judged.verdict),
        )
        self.health_ = judge_union(union, names)
        self.members_ = _members(union, given, loaded)
        self.seeds_ = known[:, list(union.members)]
        keys_of = [given[name].keys for name in self.members_]
        self._name(to_numpy(union.groups.rows), to_numpy(union.groups.probability), keys_of)
        self.matches_ = _matches(union, list(self.members_))
        self.provenance_ = {}
        return self

    def add(self, spaces: Mapping[str, SpaceLike], seeds: Any = None) -> CommonSpace:
        """Let further spaces join without moving the members, so that stored common coordinates stay valid.

        Parameters
        ----------
        spaces : dict of spaces
            The new spaces, and one or more members under their names, exactly as they were fitted. Each new space is
            aligned with three of these members at most, those with which it has most seeds; a new space that has joined
            counts as one of them.
        seeds : optional
            As for `fit`, between any of these spaces.

        Returns
        -------
        CommonSpace
            A new object; its `health_` has the answers for the new pairs too.
        """
        self._check_fitted()
        given = _as_spaces(spaces, minimum=2)
        old = [name for name in given if name in self.members_]
        new = [name for name in given if name not in self.members_]
        if not old or not new:
            raise InputError(
                f"spaces: joining needs at least one member ({', '.join(self.members_)}) and one new space, got "
                f"{', '.join(given)}"
            )
        for name in old:
            self._require_same(name, given[name])
        known = torch.from_numpy(as_seed_tuples(seeds, given))
        places = {name: place for place, name in enumerate(given)}
        joined = self._copy()
        loaded = dict(zip(given, self._load(given, torch.device("cpu")), strict=True))

        def seeds_between(first: str, second: str) -> int:
            return int((known[:, [places[first], places[second]]] >= 0).all(dim=1).sum())

        while new:
            at_hand = [name for name in given if name in joined.members_]
            name = max(new, key=lambda one: max(seeds_between(one, other) for other in at_hand))
            new.remove(name)
            partners = sorted(at_hand, key=lambda other: -seeds_between(name, other))
            found = join(
                loaded[name],
                {other: loaded[other] for other in partners},
                joined.members_,
                known[:, [places[one] for one in (name, *partners)]],
                Groups(torch.from_numpy(joined.groups_), torch.from_numpy(joined.group_probability_)),
                self.random_state_,
                Log(self.on_step),
                min_confidence=self.min_confidence,
                disjoint=self.disjoint,
                name=name,
                checksum=matrix_checksum(given[name].vectors),
            )
            for pair in found.each:
                self._report(pair.first, pair.second, pair.map.verdict)
            joined._take_in(name, given[name], found)
        return joined

    def without(self, name: str) -> CommonSpace:
        """A copy without one of its members; the others stay where they are."""
        self.require_member(name)
        if len(self.members_) < 3:
            raise InputError(f"{name}: cannot leave: a common space needs two members, and has {len(self.members_)}")
        left = self._copy()
        place = list(self.members_).index(name)
        del left.members_[name]
        kept = [number for number in range(len(self.members_)) if number != place]
        keys_of = self._keys_by_row()
        sizes = (self.groups_[:, kept] >= 0).sum(axis=1)
        probability = np.where(sizes == 1, np.float32(1), self.group_probability_)  # of a row that is left alone
        left._name(self.groups_[sizes > 0][:, kept], probability[sizes > 0], [keys_of[one] for one in kept])
        left.seeds_ = self.seeds_[:, kept]
        left.health_ = self.health_.without(name)
        return left

    # -- keeping ----------------------------------------------------------------------------------

    def save(self, folder: str | Path, *, overwrite: bool = False, extra: Mapping[str, Any] | None = None) -> None:
        """Write a run folder (safetensors, JSON, TSV), with keys as text; `extra` entries go into `run.json`."""
        self._check_fitted()
        self.provenance_ = self.provenance_ | dict(extra or {})
        texts = []
        for place in range(len(self.members_)):
            keys = [group[place] for group in self.group_keys_ if group[place] is not None]
            texts.append(dict(zip(keys, texts_of(keys, list(self.members_)[place]), strict=True)))
        contents = CommonContents(
            tuple(self.members_.values()),
            self.groups_,
            self.group_probability_,
            [
                tuple(None if key is None else texts[place][key] for place, key in enumerate(group))
                for group in self.group_keys_
            ],
            self.seeds_,
            self.health_,
            {"disjoint": self.disjoint, "min_confidence": self.min_confidence, "random_state": self.random_state_},
            self.provenance_,
        )
        write_common_run(contents, Path(folder), overwrite=overwrite)

    @classmethod
    def load(cls, folder: str | Path) -> CommonSpace:
        """Read a run folder back; raises `InputError` if anything in it has changed since it was written."""
        contents = read_common_run(Path(folder))
        found = cls(**contents.settings)
        found.random_state_ = contents.settings["random_state"]
        found.members_ = {member.name: member for member in contents.members}
        found.groups_, found.group_probability_ = contents.groups, contents.probability
        found.group_keys_ = list(contents.keys)
        found.seeds_, found.health_ = contents.seeds, contents.health
        found.provenance_ = dict(contents.provenance)
        return found

    # -- parts ------------------------------------------------------------------------------------

    def _load(self, given: Mapping[str, Embeddings], device: torch.device) -> list[Loaded]:
        largest = max(len(space) for space in given.values())
        require_budget(DEFAULT_BUDGET, largest)
        dtype = torch.float32 if exact_is_quick(largest, largest, device) else torch.float16
        return [load_space(space.vectors, device, name, center=True, dtype=dtype) for name, space in given.items()]

    def _report(self, first: str, second: str, verdict: str) -> None:
        if self.on_pair is not None:
            self.on_pair(first, second, verdict)

    def _copy(self) -> CommonSpace:
        same = CommonSpace(**self.get_params())
        for name in ("groups_", "group_probability_", "seeds_", "health_", "random_state_", "provenance_"):
            setattr(same, name, getattr(self, name))
        same.members_, same.group_keys_ = dict(self.members_), list(self.group_keys_)
        return same

    def _take_in(self, name: str, space: Embeddings, found: Joined) -> None:
        """Add a space that has joined; one that does not belong is only listed as left out."""
        before = self.health_.without(name)
        left_out = before.left_out if found.member is not None else before.left_out | {name: found.reason}
        self.health_ = CommonHealth.from_parts([*before.each, *found.each], [*before.loops, *found.loops], left_out)
        if found.member is None:
            return
        keys_of: list[Sequence[Key] | Mapping[int, Key]] = [*self._keys_by_row(), space.keys]
        self.members_[name] = found.member
        self.seeds_ = np.concatenate([self.seeds_, np.full((len(self.seeds_), 1), -1)], axis=1)
        self._name(to_numpy(found.groups.rows), to_numpy(found.groups.probability), keys_of)

    def _keys_by_row(self) -> list[Mapping[int, Key]]:
        """The key of every row of each member."""
        return [
            {group[place]: keys[place] for group, keys in zip(self.groups_.tolist(), self.group_keys_, strict=True)}
            for place in range(len(self.members_))
        ]

    def _name(
        self, rows: NDArray[np.int64], probability: Matrix, keys_of: Sequence[Sequence[Key] | Mapping[int, Key]]
    ) -> None:
        """Set the groups, sorted by size and probability in descending order, and their keys."""
        order = np.lexsort((-probability, -(rows >= 0).sum(axis=1)))
        self.groups_, self.group_probability_ = rows[order], probability[order]
        self.group_keys_ = [
            tuple(None if row < 0 else keys[row] for keys, row in zip(keys_of, group, strict=True))
            for group in self.groups_.tolist()
        ]

    def _require_same(self, name: str, space: Embeddings) -> None:
        if matrix_checksum(space.vectors) != self.members_[name].checksum:
            raise InputError(
                f"{space.source}: is not what {name!r} was when the common space was made; give the same vectors, "
                "all of them, in the same order"
            )


def _as_spaces(spaces: Mapping[str, SpaceLike], minimum: int) -> dict[str, Embeddings]:
    if not isinstance(spaces, Mapping) or len(spaces) < minimum or not all(isinstance(name, str) for name in spaces):
        raise InputError(f"spaces must be a dict from names to at least {minimum} spaces, got {type(spaces).__name__}")
    given = {name: as_space(space, name) for name, space in spaces.items()}
    for name, space in given.items():
        if space.dim < 2:
            raise InputError(f"{name}: at least 2 dimensions are needed, since vectors are compared by their direction")
    return given


def _members(union: Union, given: Mapping[str, Embeddings], loaded: Sequence[Loaded]) -> dict[str, Member]:
    """The members by name, with matrices for their original coordinates."""
    names = list(given)
    factors = union.factors
    if factors is None:
        return {}
    usual = to_numpy(factors.loadings.mean(dim=0).float())
    return {
        names[number]: member_of(
            loaded[number],
            names[number],
            matrix_checksum(given[names[number]].vectors),
            union.into[place],
            union.back[place],
            factors.directions[place],
            factors.loadings[place],
            usual,
        )
        for place, number in enumerate(union.members)
    }


def _matches(union: Union, names: Sequence[str]) -> dict[tuple[str, str], NDArray[np.int64]]:
    """The best candidates of all rows, by names of two members: those in their groups, or else those by the factors."""
    found = {}
    for (s, t), match in union.matches.items():
        grouped = union.groups.partners(s, t, len(match.partner))
        found[names[s], names[t]] = to_numpy(torch.where(grouped >= 0, grouped, match.partner.cpu()))
    return found
