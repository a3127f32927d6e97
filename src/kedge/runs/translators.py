"""The translator of a run, loaded with NumPy alone: for services, where torch would be a burden."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from kedge.errors import InputError
from kedge.models.maps.protocol import Map
from kedge.models.translation_trust import TrustEvidence
from kedge.models.translator import Normaliser, TranslationStep, Translator
from kedge.runs.description import RunDescription
from kedge.runs.exported import is_exported, read_exported
from kedge.runs.folder import TRUST, read_translation

Scale = Literal["unit", "raw"]
Kind = Literal["text", "query"]


def load_translator(
    folder: str | Path, *, back: bool = False, scale: Scale = "unit", kind: Kind = "text"
) -> Translator:
    """Load the translator from X to Y, or with `back` from Y to X, from a run folder; loads no torch.

    Translated vectors have unit length, or with `scale="raw"` the mean length of the target's own vectors. With
    `kind="query"` it translates queries of X, if the discovery was given some. A file of `kedge export --to numpy` can
    take the place of a run; its direction, scale and kind are those it was exported with.

    >>> translate = kedge.load_translator("RUN")
    >>> translate(query).shape
    (384,)
    """
    require_scale(scale)
    if is_exported(Path(folder)):
        return _load_exported(Path(folder), back=back, scale=scale, kind=kind)[0]
    return _translator(*read_translation(Path(folder)), back=back, scale=scale, kind=kind)


def load_both_translators(
    folder: str | Path, *, scale: Scale = "unit", only_queries: bool = False
) -> tuple[Translator, Translator]:
    """Load the translators of texts and of queries from X to Y, reading the run only once.

    They are the same unless the run has a separate translation for queries; an exported file has only one. With
    `only_queries`, no texts are to be translated, so that the file may be one of queries.
    """
    require_scale(scale)
    if is_exported(Path(folder)):
        translator, about = _load_exported(Path(folder), back=False, scale=scale, kind="text")
        if about.get("kind") == "query" and not only_queries:
            raise InputError(
                f"{folder}: translates queries (it was exported with --kind query), and documents would be misplaced "
                'by it; give the run folder, or documents="native" if only queries are to be translated'
            )
        return translator, translator
    run, arrays, maps = read_translation(Path(folder))
    texts = _translator(run, arrays, maps, scale=scale)
    return texts, texts if run.queries is None else _translator(run, arrays, maps, scale=scale, kind="query")


def evidence_of(arrays: Mapping[str, NDArray[np.float32]]) -> TrustEvidence | None:
    """The evidence for trust in translations from X, from the arrays that a run keeps; None if it keeps none."""
    kept = {name.removeprefix(TRUST): array for name, array in arrays.items() if name.startswith(TRUST)}
    return TrustEvidence(**kept) if kept else None


def _translator(
    run: RunDescription,
    arrays: Mapping[str, NDArray[np.float32]],
    maps: Mapping[str, Map],
    *,
    back: bool = False,
    scale: Scale,
    kind: Kind = "text",
) -> Translator:
    """The translator, from what was read of a run folder."""
    require_kind(kind, back=back, known=run.queries is not None)
    dims = {"x": run.counts.dim_x, "y": run.counts.dim_y}
    sides = {side: Normaliser(arrays.get(f"center_{side}", np.zeros(dim, np.float32))) for side, dim in dims.items()}
    source, target = ("y", "x") if back else ("x", "y")
    step = TranslationStep(sides[source], maps["map_back" if back else "map"], sides[target])
    if kind == "query":
        step = query_step(arrays, maps["map_query"])
    mean_norms = {"x": run.mean_norm_x, "y": run.mean_norm_y}
    length = mean_norms[target] if scale == "raw" else 1.0
    offsets = run.score_offsets
    offset = None if offsets is None else offsets.to_x if back else offsets.to_y
    prefix_of = run.counts.prefix_of_y if back else run.counts.prefix_of_x
    return Translator((step,), length, None if back else evidence_of(arrays), offset, prefix_of)


def query_step(centers: Mapping[str, NDArray[np.float32]], map: Map) -> TranslationStep:
    """The translation of queries, from the centers and the map that a run keeps for them."""
    return TranslationStep(Normaliser(centers["center_query"]), map, Normaliser(centers["center_query_target"]))


def require_kind(kind: str, *, back: bool, known: bool) -> None:
    """Raise an `InputError` unless vectors of this kind can be translated; `known` is whether the run had queries."""
    if kind not in get_args(Kind):
        raise InputError(f"kind must be one of {', '.join(get_args(Kind))}, got {kind!r}")
    if kind == "query" and back:
        raise InputError("kind 'query' is for queries of X, but back translates vectors of Y; omit one of the two")
    if kind == "query" and not known:
        raise InputError(
            "kind 'query': this run was made without queries; give some to the discovery (`kedge discover --queries "
            "FILE`, `fit(..., queries=...)`), or omit the kind"
        )


def _load_exported(path: Path, *, back: bool, scale: Scale, kind: Kind) -> tuple[Translator, Mapping[str, str]]:
    """The translator in an exported file, which has one direction, scale and kind, and what the file says of them."""
    translator, about = read_exported(path)
    other_scale = scale == "raw" and about.get("scale") != "raw"
    if back or other_scale or (kind == "query" and about.get("kind") != "query"):
        option = "--back" if back else "--scale raw" if other_scale else "--kind query"
        raise InputError(
            f"{path}: translates {about.get('source')} to {about.get('target')} with scale {about.get('scale')}; give "
            f"the run folder instead, or export it with {option} and omit the argument here"
        )
    return translator, about


def require_scale(scale: str) -> None:
    """Raise an `InputError` unless `scale` is one of the known ones."""
    if scale not in get_args(Scale):
        raise InputError(f"scale must be one of {', '.join(get_args(Scale))}, got {scale!r}")
