"""What a migration does to vectors: by a run of two spaces, between two of many, or into common coordinates."""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kedge.estimators import AnchorDiscovery
    from kedge.judging.health import Answer
    from kedge.many.common_space import CommonSpace
    from kedge.spaces.stores import Metric, Store
    from kedge.spaces.stores.migration import Accepts, Translate


@dataclass(frozen=True)
class Route:
    """How vectors of dims[0] numbers become vectors of dims[1], and what the target says about them.

    `metric` is what the target must be searched by, if not by any; `mark_as` is what a mark says about the rows;
    `accepts` tells from an existing target's note whether it takes them; if None, no existing target does.
    """

    answer: Answer
    translate: Translate
    dims: tuple[int, int]
    note: Mapping[str, Any]
    mark_as: str
    metric: Metric | None = None
    accepts: Accepts | None = None

    @property
    def into(self) -> str:
        """What the vectors become, for people."""
        return "common coordinates" if "common" in self.note else f"numbers of {self.note['scale']} length"


def find_route(arguments: argparse.Namespace, source: Store, target: Store) -> Route:
    """The route that the run and the options ask for."""
    from kedge.errors import InputError
    from kedge.many.common_space import CommonSpace
    from kedge.runs.description import holds_common_space

    about = str(source.address)
    if not holds_common_space(arguments.run_folder):
        if arguments.append:
            raise InputError(f"--append: {arguments.run_folder} is a run of two spaces, without common coordinates")
        return between_two(arguments, about)
    common = CommonSpace.load(arguments.run_folder)
    if arguments.back:
        raise InputError("--back: a run of many spaces has no X and Y; name the spaces with --from and --to")
    if arguments.from_space is None:
        raise InputError(
            f"--from: {arguments.run_folder} is a run of many spaces; name the space of {about}'s vectors, one of "
            f"{', '.join(common.members_)}; add --to for the space to translate into, or omit it for common coordinates"
        )
    if arguments.to_space is None:
        return _into_common(arguments, common, target)
    if arguments.append:
        raise InputError("--append: only common coordinates of several spaces can be mixed; omit it, or omit --to")
    return _between_members(arguments, common, about)


def between_two(arguments: argparse.Namespace, source: str) -> Route:
    """From one space of a run of two into the other."""
    from kedge.cli.use.ends import refuse_ends
    from kedge.estimators import load
    from kedge.spaces.stores.migration import TRANSLATED

    refuse_ends(arguments, "from_space", "to_space")
    discovery = load(arguments.run_folder)
    inputs = discovery.provenance_.get("inputs", {})
    here, there = ("y", "x") if arguments.back else ("x", "y")
    state = (discovery.map_back_ if arguments.back else discovery.map_).state()
    first, second = (discovery.y_, discovery.x_) if arguments.back else (discovery.x_, discovery.y_)
    names = (inputs.get(here, {}).get("file", here.upper()), inputs.get(there, {}).get("file", there.upper()))
    note = _note(arguments, names, [state[name] for name in sorted(state)], source)
    if arguments.mark:  # what to add to scores of translated rows beside native ones
        note["score_offset"] = discovery.translator(back=arguments.back).score_offset
    return Route(
        _answer_back(discovery) if arguments.back else discovery.health_.searching,
        partial(discovery.translate, back=arguments.back, scale=arguments.scale),
        (first.prefix_of or first.dim, second.dim),
        note,
        TRANSLATED,
    )


def _answer_back(discovery: AnchorDiscovery) -> Answer:
    """Whether one can search X with rows of Y: if known pairs decide, those that tested the map back."""
    from kedge.judging.answers import answer_by_known
    from kedge.models.maps.choosing import ChosenMap

    forward, scores = discovery.health_.searching, dict(discovery.map_scores_["map_back"])
    if not (scores["by_known"] and discovery.map_scores_["map"]["by_known"]):
        return forward
    chosen = ChosenMap(discovery.map_back_, label=scores.pop("kind"), **scores)
    answer = answer_by_known(chosen)
    return replace(answer, reason=f"From Y to X: {answer.reason}")


def _between_members(arguments: argparse.Namespace, common: CommonSpace, source: str) -> Route:
    """From one of many spaces into another."""
    from kedge.spaces.stores.migration import TRANSLATED

    names = (arguments.from_space, arguments.to_space)
    translator = common.translator(source=names[0], target=names[1], scale=arguments.scale)
    first, second = common.members_[names[0]], common.members_[names[1]]
    return Route(
        common.health_.map,
        translator,
        (first.dim, second.dim),
        _note(arguments, names, [first.center, first.into, second.back, second.center], source),
        TRANSLATED,
    )


def _into_common(arguments: argparse.Namespace, common: CommonSpace, target: Store) -> Route:
    """Into coordinates in which documents of all members can be searched with queries of any."""
    from kedge import __version__
    from kedge.many.member import CommonMetric

    metric: CommonMetric = "ip" if "ip" in target.metrics and not target.by_graph else "l2"
    name = arguments.from_space
    project = partial(common.project, space=name, metric=metric)  # raises if there is no such space
    dims = (common.require_member(name).dim, common.members_[name].coordinates(metric))
    fingerprints = {member.name: member.fingerprint for member in common.members_.values()}
    note = {"model": "common", "common": fingerprints, "metric": metric, "kedge": __version__}

    def accepts(there: Mapping[str, Any]) -> bool:
        before = there.get("common")
        shared = set(before.items()) & set(fingerprints.items()) if isinstance(before, dict) else ()
        return bool(shared) and there.get("metric") == metric

    return Route(common.health_.map, project, dims, note, name, metric, accepts if arguments.append else None)


def _note(
    arguments: argparse.Namespace, names: tuple[str, str], state: list[NDArray[np.float32]], source: str
) -> dict[str, Any]:
    """What the target says about its vectors, so that nobody mixes them with others."""
    from kedge import __version__

    digest = hashlib.sha256(b"".join(np.ascontiguousarray(part).tobytes() for part in state))
    duplicates = {} if arguments.on_duplicate == "refuse" else {"on_duplicate": arguments.on_duplicate}
    marked = {"mark": arguments.mark} if arguments.mark else {}
    return (
        duplicates
        | marked
        | {
            "model": arguments.to_model or names[1],
            "carried_from": arguments.from_model or names[0],
            "map": digest.hexdigest()[:16],
            "scale": arguments.scale,
            "source": source,
            "kedge": __version__,
        }
    )
