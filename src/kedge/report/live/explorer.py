"""Answers the requests of the live page: any key, its neighbours, other views."""

from __future__ import annotations

import threading
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kedge.errors import InputError
from kedge.estimators import AnchorDiscovery
from kedge.geometry import relative
from kedge.models.side import AnchorKind
from kedge.report.live.old_and_new import search_old_and_new
from kedge.report.live.thumbnails import Thumbnails
from kedge.report.page.gold_section import GoldComparison
from kedge.report.page.row_texts import RowTexts
from kedge.report.page.run_data import as_whole_numbers, data_of, layout_view
from kedge.report.page.run_words import words_of
from kedge.report.picture.neighbourhoods import Near, Neighbourhoods, Side
from kedge.report.picture.projection import Places, draw_sample, project_together
from kedge.report.picture.tsne import lay_out
from kedge.spaces import Embeddings

_HITS = 12
_NEIGHBOURS = 12
_RESULTS = 10
_MIN_ANCHORS = 2
_KINDS: dict[str, AnchorKind] = {"found": "free", "snapped": "snapped", "seeds": "seeds"}


class Explorer:
    """Looks things up in a run and its two spaces, of any size, and answers in plain types; changes nothing.

    An *entry* describes a row: `side`, `row`, `key`, `place` (its index among the rows drawn, or None), the key of its
    `partner` (None if it is in no pair), and the pair's `confidence` (None for a seed). `text` and `partner_text` are
    the beginnings of the texts of both, None if there are none.
    """

    def __init__(
        self,
        discovery: AnchorDiscovery,
        x: Embeddings,
        y: Embeddings,
        *,
        run: str,
        max_rows: int,
        gold: GoldComparison | None = None,
        labels: Mapping[str, str] | None = None,
        texts: RowTexts | None = None,
        images: Path | None = None,
    ) -> None:
        discovery, x, y = discovery.in_texts(x, y)
        self._discovery = discovery
        self._spaces: dict[Side, Embeddings] = {"x": x, "y": y}
        self._texts = texts or RowTexts({}, {})
        self._sample = draw_sample(discovery, x, y, max_rows)
        self._neighbourhoods = Neighbourhoods(discovery, x, y)
        self._thumbnails = Thumbnails(images) if images else None
        self._layout = _Layout(lambda: lay_out(discovery, x.take(self._sample.rows_x), y.take(self._sample.rows_y)))
        self.words = words_of(discovery, x, y, self._sample, gold, run, texts=texts) | {"images": images is not None}
        self.contents = data_of(discovery, x, y, self._sample, gold, labels, texts) | {
            "rows": [self._sample.rows_x.tolist(), self._sample.rows_y.tolist()]
        }
        self.contents["views"].append(layout_view(None))
        self._folded_keys: dict[Side, list[str]] = {
            side: [_folded(key) for key in space.keys] for side, space in self._spaces.items()
        }
        self._folded_texts: dict[Side, list[str]] = {}
        for side, space in self._spaces.items() if texts else ():
            self._folded_texts[side] = [_folded(self._texts.of(side, key) or "") for key in space.keys]
        self._places: dict[Side, dict[int, int]] = {
            "x": {row: place for place, row in enumerate(self._sample.rows_x.tolist())},
            "y": {row: place for place, row in enumerate(self._sample.rows_y.tolist())},
        }
        linked = discovery.linked_pairs()
        confidences = linked.confidence[: linked.found].tolist() + [None] * (len(linked.keys) - linked.found)
        pairs = list(zip(linked.keys, confidences, strict=True))
        self._partners: dict[Side, dict[str, tuple[str, float | None]]] = {
            "x": {left: (right, confidence) for (left, right), confidence in pairs},
            "y": {right: (left, confidence) for (left, right), confidence in pairs},
        }

    def find(self, text: str) -> list[dict[str, Any]]:
        """Entries whose keys or texts match what was typed.

        Exact matches of keys come first, then matches up to case and Unicode form, then prefixes, then matches
        anywhere, and then rows whose texts hold what was typed. Entries of X and Y alternate, so that neither crowds
        out the other.
        """
        typed = text.strip()
        sought = _folded(typed)
        hits: list[tuple[int, int, Side, int]] = []
        for side, keys in self._folded_keys.items() if sought else ():
            exact = self._spaces[side].row_of.get(typed)
            counts = [0, 0, 0, 0, 0]
            texts = self._folded_texts.get(side)
            for row, key in enumerate(keys):
                if sought in key:
                    fit = 0 if row == exact else 1 if key == sought else 2 if key.startswith(sought) else 3
                elif texts and sought in texts[row]:
                    fit = 4
                else:
                    continue
                counts[fit] += 1
                if counts[fit] <= _HITS:
                    hits.append((fit, counts[fit], side, row))
        return [self._entry(side, row) for _, _, side, row in sorted(hits)[:_HITS]]

    def look_up(self, side: str, key: str) -> dict[str, Any]:
        """The entry of a key of X or Y."""
        own = self._side(side)
        return self._entry(own, int(self._spaces[own].rows([key])[0]))

    def neighbours(self, side: str, row: str) -> list[list[dict[str, Any]]]:
        """The nearest entries in X and in Y to a row of either space, with their similarity in percent."""
        own = self._side(side)
        number = np.array([_number(row, "row", len(self._spaces[own]))])
        lists = {
            own: self._listed(own, self._neighbourhoods.within(own, number, _NEIGHBOURS)),
            _other(own): self._listed(_other(own), self._neighbourhoods.across(own, number, _NEIGHBOURS)),
        }
        return [lists["x"], lists["y"]]

    def results(self, row: str) -> dict[str, Any]:
        """What a row of X finds in X with the new model, and, translated, in Y, the old index.

        Entries hold their cosine in percent, and in `both` whether the other search found the same item: the row's
        partner, or a row with the same key.
        """
        x, y = self._spaces["x"], self._spaces["y"]
        found = search_old_and_new(self._discovery, x, y, _number(row, "row", len(x)), _RESULTS)
        new, old = self._listed("x", found.new), self._listed("y", found.old)
        for these, others in ((new, old), (old, new)):
            for entry in these:
                entry["both"] = any(other["key"] in (entry["partner"], entry["key"]) for other in others)
        return {"new": new, "old": old}

    def view(self, kind: str, count: str, keys: str) -> dict[str, Any]:
        """The rows drawn, relative to other anchors.

        `kind` is "found", "snapped" or "seeds", of which the first `count` are used (all, if it is empty), or "keys",
        which uses the keys of X listed in `keys`, one per line, and their partners.
        """
        x, y = self._spaces["x"], self._spaces["y"]
        drawn_x, drawn_y = x.vectors[self._sample.rows_x], y.vectors[self._sample.rows_y]
        if kind == "keys":
            lines = (line.removesuffix("\r") for line in keys.split("\n"))  # as a text area sends them
            chosen = list(dict.fromkeys(line for line in lines if line))
            rows_x, rows_y = x.rows(chosen), y.rows(self._partner_keys(chosen))
            _require_anchors(len(chosen))
            left = relative(self._discovery.x_.whiten(drawn_x), self._discovery.x_.whiten(x.vectors[rows_x]))
            right = relative(self._discovery.y_.whiten(drawn_y), self._discovery.y_.whiten(y.vectors[rows_y]))
            name = f"relative to {len(chosen)} keys you chose"
        else:
            if kind not in _KINDS:
                raise InputError(f"anchors must be {', '.join(_KINDS)} or keys, got {kind!r}")
            left = self._discovery.x_.relative(drawn_x, anchors=_KINDS[kind])
            right = self._discovery.y_.relative(drawn_y, anchors=_KINDS[kind])
            first = _number(count or str(left.shape[1]), "the number of anchors", left.shape[1] + 1)
            _require_anchors(first)
            left, right = left[:, :first], right[:, :first]
            name = f"relative to {first} anchors ({kind})"
        return {"name": name, "places": as_whole_numbers(project_together(left, right), shared=True)}

    def layout(self) -> dict[str, Any]:
        """The rows drawn, by t-SNE; places are None until they are computed, which the first request starts."""
        return layout_view(self._layout.places())

    def thumbnail(self, key: str) -> bytes | None:
        """The image file named by a key of X or Y, as a small PNG; None if there is none."""
        known = any(key in space.row_of for space in self._spaces.values())
        return self._thumbnails.get(key) if self._thumbnails and known else None

    def _entry(self, side: Side, row: int) -> dict[str, Any]:
        key = self._spaces[side].keys[row]
        partner, confidence = self._partners[side].get(key, (None, None))
        return {
            "side": side,
            "row": row,
            "key": key,
            "place": self._places[side].get(row),
            "partner": partner,
            "confidence": confidence,
            "text": self._texts.of(side, key),
            "partner_text": None if partner is None else self._texts.of(_other(side), partner),
        }

    def _listed(self, side: Side, near: Near) -> list[dict[str, Any]]:
        percents = np.rint(100 * near.similarity[0]).astype(int).tolist()
        return [
            self._entry(side, row) | {"percent": percent}
            for row, percent in zip(near.rows[0].tolist(), percents, strict=True)
        ]

    def _partner_keys(self, keys: Sequence[str]) -> Iterator[str]:
        for key in keys:
            if key not in self._partners["x"]:
                raise InputError(f"{key!r} is in no pair, so it cannot serve as an anchor; omit it")
            yield self._partners["x"][key][0]

    def _side(self, text: str) -> Side:
        for side in self._spaces:
            if text == side:
                return side
        raise InputError(f"side must be x or y, got {text!r}")


class _Layout:
    """A layout that is computed once, in the background, from the first time it is requested."""

    def __init__(self, compute: Callable[[], Places]) -> None:
        self._compute = compute
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._places: Places | None = None
        self._error: Exception | None = None

    def places(self) -> Places | None:
        """The places, or None while they are being computed."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, daemon=True)
                self._thread.start()
        if self._error:
            raise InputError(str(self._error)) from self._error
        return self._places

    def _run(self) -> None:
        try:
            self._places = self._compute()
        except Exception as error:  # nothing waits for this thread, so the next request raises the error
            self._error = error


def _other(side: Side) -> Side:
    return "y" if side == "x" else "x"


def _folded(text: str) -> str:
    return unicodedata.normalize("NFKC", text).lower()


def _number(text: str, name: str, below: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) < below):
        raise InputError(f"{name} must be a whole number below {below}, got {text[:20]!r}")
    return int(text)


def _require_anchors(count: int) -> None:
    if count < _MIN_ANCHORS:
        raise InputError(f"at least {_MIN_ANCHORS} anchors are needed for a picture, got {count}")
