"""`AnchorDiscovery`: two spaces and a few pairs in, anchors, a match, a map and a verdict out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from kedge.estimators.devices import Loaded, load_problem, resolve_device, to_numpy
from kedge.estimators.findings import (
    Findings,
    learn_findings,
    learn_query_translation,
    learn_score_offsets,
    learn_trust,
)
from kedge.estimators.fit_inputs import FitInputs, check_parameters, gather_inputs
from kedge.estimators.fitted import FittedDiscovery
from kedge.estimators.inputs import RandomState, as_random_state
from kedge.estimators.pair_inputs import PairsLike
from kedge.estimators.persistence import contents_of, settings_of
from kedge.judging.judge import Judgement, LabelFreeJudge
from kedge.matching import DEFAULT_BUDGET, Precision, Problem, using_precision
from kedge.models.anchors import AnchorChoice, choose_anchors
from kedge.models.maps.choosing import Centers, kept_from_search
from kedge.models.maps.families import form_of
from kedge.models.side import Side
from kedge.runs.checkpoint import Checkpoint
from kedge.runs.folder import write_run
from kedge.solving.alignment import Alignment
from kedge.solving.attempts import solve
from kedge.solving.paper import PaperInit, PaperSettings, solve_as_printed
from kedge.solving.schedule import Schedule, schedules_for
from kedge.solving.steps import Log, OnStep
from kedge.spaces import Embeddings
from kedge.spaces.conversion import SpaceLike
from kedge.spaces.embeddings import Key
from kedge.storage.checksum import matrix_checksum

Method = Literal["alternate", "paper"]


class AnchorDiscovery(FittedDiscovery):
    """Find parallel anchors, and a partner for every row, between two spaces.

    Methods that take vectors (k, d) accept anything that `fit` accepts as a space, and also a single vector (d,), for
    which they return a single one.

    Parameters
    ----------
    n_anchors : int, optional
        How many rows of X serve as anchors; ignored when `fit` is given anchors. By default 300, or as many as the
        smaller space has rows.
    method : {"alternate", "paper"}
        The default alternates a closed-form map and a match; "paper" is the paper's optimiser.
    init : {"seeds", "random"}
        How the paper's free anchors start: from the rotation the seeds imply, or from noise as printed.
    anchor_choice : {"random", "farthest"}
        How anchors beyond the seeds are chosen.
    center : bool
        Subtract the mean from both spaces (after scaling to unit norm); usually a large gain.
    whiten : float or "auto"
        Divide each axis of either space by its standard deviation to this power (0 to 1) before rows are compared by
        cosine, in the search for pairs and in relative coordinates. "auto" takes 0, and tries 0.5 if the result is not
        healthy enough; `whitening_` is the value that was used.
    schedule : Schedule
        The one attempt of the default method to make. By default several are made until one succeeds; which ones
        depends on the number of seeds.
    paper : PaperSettings
        Settings of the paper's optimiser.
    min_confidence : float
        Mutual pairs that are less probable than this are not listed; their rows have no match. To change it after
        fitting, use `with_min_confidence`.
    disjoint : bool
        Whether the spaces are known to have no items in common except the seeds: no pairs are looked for, and the map
        is found without relying on any. It is found that way in any case if hardly any row recognises its counterpart.
    memory_budget : int
        Bytes for the temporaries of matching; normalised copies of the spaces and, with few seeds, fingerprints (about
        16 kB for each of at most 20,000 rows per side) come on top.
    device : str
        "auto", "cpu", "cuda" or "cuda:N".
    precision : {"tf32", "bf16", "float32"}
        The precision of products in matching on a GPU (sums are float32); a CPU always uses float32.
    exact : bool
        Compare all rows with all, however long it takes. Otherwise, with more than about 15,000 rows on a CPU (200,000
        on a GPU), rows are compared with candidates only, and `candidate_recall_` says how often that is exact.
    random_state : int, NumPy generator or None
        The same number gives the same answer on the same machine. A generator is asked for one number, and None draws
        one; `random_state_` is the number that was used.
    checkpoint : path, optional
        Folder for the results of finished stages, created if needed. If it holds those of an earlier `fit` with the
        same spaces and settings, this one resumes from there. Delete it once you have saved the result.
    on_step : callable, optional
        Called with a `Step` after each step.

    Attributes
    ----------
    x_, y_ : Side
        The two spaces as fitted. `normalise`, `whiten`, `relative` and `shared` give coordinates of vectors; there are
        also `center`, `mean_norm`, `anchors` by kind (the "free" ones of Y are the unit vectors that best stand for the
        anchors) and `unmatched_keys`, those of the rows that have no match.
    anchors_x_, anchors_y_ : int arrays, shape (a,)
        The anchors as rows of X, and the distinct rows of Y they were snapped to.
    anchor_confidence_ : float array, shape (a,)
        Probability that a snapped anchor is right; 1 for seeds that nothing contradicts, unless the map has failed.
    anchor_is_seed_ : bool array, shape (a,)
    match_, confidence_ : arrays, shape (n,)
        For every row of X, the best candidate in Y and the probability that it is right.
    mutual_ : bool array, shape (n,)
        Whether a row of X is also the best candidate of its match: only such rows can be in pairs.
    pairs_ : int array, shape (p, 2)
        The mutual pairs that were found and are probable enough, surest first; seeds are not among them. A row that is
        neither in one of them nor in a seed that nothing contradicts has no match.
    pair_confidence_ : float array, shape (p,)
    seed_opinion_ : array of str, shape (s,)
        What the run, read without the seed itself, thinks of each: it "agrees"; the seed's partner is "near" (among the
        ten nearest rows or the nearest hundredth of all); or the seed is "contradicted". All are "unknown" if the map
        is not ok. A contradicted seed is not a pair: its rows have the partners that were found.
    seed_is_suspect_ : bool array, shape (s,)
        Seeds that look wrong: the rest of the data contradicts them so strongly that they are set aside.
    seed_rank_ : float array, shape (s,)
        The rank of a seed's rows for each other among all rows, 1 at best; the mean over both directions.
    anchor_keys_, pair_keys_, seed_keys_ : lists of (x key, y key)
        Keys as they were given; in a loaded run, as text.
    seed_found_keys_ : list of y keys
        What was found for the seeds' rows of X, whether or not it is what the seeds say.
    effective_dims_ : int
        How many directions of the two spaces tell which rows belong together, on held-out pairs: those of `model_`.
    model_ : PairModel
        The pair model, fitted to the pairs: `x_.shared` and `y_.shared` are its coordinates.
    map_, map_back_ : Map
        Maps between the normalised spaces, each chosen by how well one searches with it.
    map_scores_ : dict
        For "map" and "map_back", the family and kind that was chosen, and on pairs it was not fitted to, the mean
        reciprocal rank of the partner (`mrr`) and the share of its ten nearest rows that the partner has too
        (`overlap`).
    queries_ : QueryTranslation or None
        How queries are translated, if `fit` was given some: the `kind` of translation, and how well searches with
        translated queries agree with X's own model, by it (`agreement`) and by one map for all rows
        (`agreement_of_one_map`).
    trust_ : TrustEvidence or None
        What `trust` rests on, if enough pairs could be held out.
    score_offsets_ : ScoreOffsets or None
        What to add to the similarity of translated rows in an index that also holds rows of the target's own model.
    whitening_ : float
        The strength to which the spaces were whitened.
    health_ : Health
        Whether it worked, and for what: `health_.searching` and `health_.pairs` each have a score, a verdict, a reason,
        advice and a `basis`, which says what they rest on; `health_.overlap` says what the spaces share.
    candidate_recall_ : CandidateRecall or None
        If rows were compared with candidates only: how many of a sample have the same partner as among all rows.
    confidence_curve_ : ConfidenceCurve or None
        Confidence by margin, from which `kedge match` gives confidence to other rows of the two spaces; None in runs
        written by an earlier version.
    history_ : tuple of Step
    n_iter_ : int
    converged_ : bool
    random_state_ : int
        The number that reproduces this answer.
    provenance_ : dict
        Inputs and timings that a loaded run was saved with.

    Examples
    --------
    >>> discovery = AnchorDiscovery(n_anchors=300, random_state=0)
    >>> discovery.fit(x, y, seeds=[("cat", "chat"), ...])
    >>> discovery.health_.searching.verdict, discovery.health_.pairs.verdict
    ('ok', 'ok')
    """

    def __init__(
        self,
        *,
        n_anchors: int | None = None,
        method: Method = "alternate",
        init: PaperInit = "seeds",
        anchor_choice: AnchorChoice = "random",
        center: bool = True,
        whiten: float | Literal["auto"] = "auto",
        schedule: Schedule | None = None,
        paper: PaperSettings | None = None,
        min_confidence: float = 0.5,
        disjoint: bool = False,
        memory_budget: int = DEFAULT_BUDGET,
        device: str = "auto",
        precision: Precision = "tf32",
        exact: bool = False,
        random_state: RandomState = 0,
        checkpoint: str | Path | None = None,
        on_step: OnStep | None = None,
    ) -> None:
        self.n_anchors = n_anchors
        self.method = method
        self.init = init
        self.anchor_choice = anchor_choice
        self.center = center
        self.whiten = whiten
        self.schedule = schedule
        self.paper = paper
        self.min_confidence = min_confidence
        self.disjoint = disjoint
        self.memory_budget = memory_budget
        self.device = device
        self.precision = precision
        self.exact = exact
        self.random_state = random_state
        self.checkpoint = checkpoint
        self.on_step = on_step

    # -- fitting ----------------------------------------------------------------------------------

    def fit(
        self,
        x: SpaceLike,
        y: SpaceLike,
        seeds: PairsLike = None,
        anchors: Iterable[Key] | ArrayLike | None = None,
        *,
        queries: SpaceLike | None = None,
    ) -> AnchorDiscovery:
        """Discover anchors and pairs.

        Parameters
        ----------
        x, y : spaces (n, dx) and (m, dy)
            Embeddings; an array, tensor or list of rows, whose row numbers "0", "1", ... become its keys; a DataFrame,
            whose columns are the dimensions and whose index holds the keys; a dict, Series or gensim's KeyedVectors
            with a vector for each key.
        seeds : pairs, optional
            Known pairs, any number: a list, zip, array (s, 2) or any other iterable of pairs (of x, of y); a dict or
            Series from X to Y; a DataFrame with two columns, or with columns `x` and `y`; a tuple of two lists or
            arrays, those of X and those of Y in the same order. Rows are named by key or by number; in a space whose
            keys are whole numbers themselves, a whole number is always a key.
        anchors : keys or rows of X, optional
            The anchors to use instead of choosing `n_anchors`.
        queries : space (q, dx), optional
            Vectors of at least 20 queries by X's model; what they should find need not be known. Queries differ from
            passages as a kind, so they get a translation of their own where that helps: `translate(..., kind="query")`.
            Neither the pairs nor the map for other rows depend on them.
        """
        check_parameters(self)
        given = gather_inputs(self, x, y, seeds, anchors, queries)
        device = resolve_device(self.device)
        self.random_state_ = as_random_state(self.random_state)
        generator = torch.Generator().manual_seed(self.random_state_)
        checkpoint = self._open_checkpoint(given, device, generator)  # first: loading lets go of the files
        problem, loaded_x, loaded_y = load_problem(self, given.x.vectors, given.y.vectors, given.seeds, device)
        if given.anchors is None:
            chosen = choose_anchors(problem, given.n_anchors, self.anchor_choice, generator)
        else:
            chosen = torch.from_numpy(given.anchors).to(device)
        with using_precision(self.precision), checkpoint or nullcontext():
            log = Log(self.on_step, checkpoint)
            unused = kept_from_search(len(problem.seeds_x)).to(device) & (self.method != "paper")
            alignment, judged = self._solve(problem.without_seeds(unused), chosen, generator, log)
            findings = learn_findings(
                problem,
                chosen,
                alignment,
                judged,
                Centers(loaded_x.center_in_axes, loaded_y.center_in_axes),
                self.min_confidence,
                generator,
                log.aside(),
                unused=unused,
                disjoint=self.disjoint,
            )
        self.history_, self.n_iter_ = tuple(log.history), len(log.history)
        self._learn(problem, chosen, alignment, findings)
        self._learn_maps(findings, loaded_x.axes, loaded_y.axes)
        self._learn_sides(given, findings, loaded_x, loaded_y)
        self._name(given.x, given.y)
        self.queries_, self.score_offsets_ = None, None  # translators have both, and learning them takes translators
        self.trust_ = learn_trust(findings.map, given.x, self.x_)
        pairs = self.linked_pairs().rows
        there, back = (self.translator(back=back) for back in (False, True))
        self.score_offsets_ = learn_score_offsets(given.x, given.y, pairs, there, back)
        if given.queries is not None:
            step = there.steps[0]
            self.queries_ = learn_query_translation(step, given.queries, given.x, given.y, pairs, centered=self.center)
        self.provenance_ = {}
        self._spaces = (given.x, given.y)
        return self

    def fit_transform(
        self,
        x: SpaceLike,
        y: SpaceLike,
        seeds: PairsLike = None,
        anchors: Iterable[Key] | ArrayLike | None = None,
        *,
        queries: SpaceLike | None = None,
    ) -> NDArray[np.float32]:
        """Fit, and return the relative coordinates (n, a) of X."""
        return self.fit(x, y, seeds, anchors, queries=queries).transform(x)

    def _solve(
        self, problem: Problem, anchors: Tensor, generator: torch.Generator, log: Log
    ) -> tuple[Alignment, Judgement]:
        """Run the method, and judge what it found."""
        judge = LabelFreeJudge(problem, self.random_state_, log.aside(), disjoint=self.disjoint)
        strength = None if self.whiten == "auto" else float(self.whiten)
        if self.method == "paper":
            settings = self.paper or PaperSettings()
            whitened = problem.whitened(strength or 0.0)
            alignment = solve_as_printed(whitened, anchors, self.init, settings, generator, log)
            alignment = replace(alignment, whitening=strength or 0.0)
        else:
            schedules = schedules_for(len(problem.seeds_x), strength, max(len(problem.x), len(problem.y)))
            if self.schedule:
                schedules = (self.schedule if strength is None else replace(self.schedule, whitening=strength),)
            alignment = solve(problem, schedules, judge, generator, log, disjoint=self.disjoint)
        return alignment, judge.judge(problem, alignment.match, alignment.rotation)

    def _learn(self, problem: Problem, anchors: Tensor, alignment: Alignment, findings: Findings) -> None:
        """Set the learned attributes that concern both sides, as NumPy arrays."""
        confidence = findings.confidence
        partners = to_numpy(confidence.match.partner)
        probability = confidence.of(np.arange(len(partners)), partners)
        self.anchors_x_, self.anchors_y_ = to_numpy(anchors), to_numpy(findings.snapped_anchors)
        contradicted = torch.from_numpy(findings.opinions == "contradicted").to(anchors.device)
        self.anchor_is_seed_ = to_numpy(problem.without_seeds(contradicted).seed_partners(anchors) >= 0)
        self.anchor_confidence_ = confidence.of(self.anchors_x_, self.anchors_y_)
        self.seed_is_suspect_, self.seed_opinion_ = to_numpy(findings.suspects), findings.opinions
        self.seed_rank_ = to_numpy(findings.closer) + 1
        self.seeds_ = np.stack([to_numpy(problem.seeds_x), to_numpy(problem.seeds_y)], axis=1)
        self._seeds_found = to_numpy(findings.seeds_found)
        self.match_, self.confidence_ = partners, probability
        self.mutual_ = to_numpy(confidence.match.mutual)
        self.pairs_, self.pair_confidence_ = findings.pairs, probability[findings.pairs[:, 0]]
        self.whitening_ = alignment.whitening
        self.health_ = findings.health
        self.candidate_recall_ = confidence.candidate_recall
        self.confidence_curve_ = confidence.curve
        self.converged_ = alignment.converged

    def _learn_maps(self, findings: Findings, axes_x: Tensor, axes_y: Tensor) -> None:
        """Set the learned attributes that act on vectors, in the spaces' own coordinates."""
        self.model_ = findings.model.in_coordinates(axes_x, axes_y).on(torch.device("cpu"), torch.float32)
        forward, back = findings.map, findings.map_back
        dx, dy = len(axes_x), len(axes_y)
        self.map_ = form_of(forward.family).from_state(forward.map.in_coordinates(axes_x, axes_y).state(), (dx, dy))
        self.map_back_ = form_of(back.family).from_state(back.map.in_coordinates(axes_y, axes_x).state(), (dy, dx))
        self.map_scores_ = {"map": forward.description, "map_back": back.description}

    def _learn_sides(self, given: FitInputs, findings: Findings, loaded_x: Loaded, loaded_y: Loaded) -> None:
        """Set the learned attributes of either side."""
        (dx, dy), model = (len(loaded_x.axes), len(loaded_y.axes)), self.model_
        correlations = to_numpy(model.correlations)
        whitenings = [
            to_numpy((loaded.axes * spectrum.powers(-self.whitening_ / 2)) @ loaded.axes.T) if self.whitening_ else None
            for loaded, spectrum in ((loaded_x, loaded_x.spectrum), (loaded_y, loaded_y.spectrum))
        ]
        center_x, center_y = to_numpy(loaded_x.center), to_numpy(loaded_y.center)
        directions_x, directions_y = to_numpy(model.directions_x), to_numpy(model.directions_y)
        x = Side("X", dx, dy, center_x, loaded_x.mean_norm, {}, whitenings[0], directions_x, correlations)
        y = Side("Y", dy, dx, center_y, loaded_y.mean_norm, {}, whitenings[1], directions_y, correlations)
        anchors_x = _rows_of(x, given.x, self.anchors_x_)
        free = to_numpy(findings.free_anchors @ loaded_y.axes.T)
        seeds_x, seeds_y = self.seeds_.T
        self.x_ = replace(x, anchors={"free": anchors_x, "snapped": anchors_x, "seeds": _rows_of(x, given.x, seeds_x)})
        snapped = _rows_of(y, given.y, self.anchors_y_)
        self.y_ = replace(y, anchors={"free": free, "snapped": snapped, "seeds": _rows_of(y, given.y, seeds_y)})

    def _name(self, x: Embeddings, y: Embeddings) -> None:
        """Set the learned attributes that are keys."""
        self.anchor_keys_ = _key_pairs(x, y, np.stack([self.anchors_x_, self.anchors_y_], axis=1))
        self.pair_keys_ = _key_pairs(x, y, self.pairs_)
        self.seed_keys_ = _key_pairs(x, y, self.seeds_)
        self.seed_found_keys_ = [y.keys[row] for row in self._seeds_found.tolist()]
        matched = self.linked_pairs().rows
        self.x_ = replace(self.x_, unmatched_keys=_keys_without(x, matched[:, 0]), prefix_of=x.prefix_of)
        self.y_ = replace(self.y_, unmatched_keys=_keys_without(y, matched[:, 1]), prefix_of=y.prefix_of)

    def _open_checkpoint(self, given: FitInputs, device: torch.device, generator: torch.Generator) -> Checkpoint | None:
        """Where finished stages are kept; it may hold those of an unfinished fit of the same spaces to resume from."""
        if self.checkpoint is None:
            return None
        settings = settings_of(self)
        for name in ("device", "memory_budget"):  # change how it is computed, not what
            del settings[name]
        inputs = {
            "X": matrix_checksum(given.x.vectors),
            "Y": matrix_checksum(given.y.vectors),
            "seeds": matrix_checksum(given.seeds),
            "anchors": None if given.anchors is None else matrix_checksum(given.anchors[:, None]),
        }
        return Checkpoint(Path(self.checkpoint), inputs, settings, device, generator)

    # -- keeping ----------------------------------------------------------------------------------

    def save(self, folder: str | Path, *, overwrite: bool = False, extra: Mapping[str, Any] | None = None) -> None:
        """Write a run folder (safetensors, JSON, TSV) with keys as text; `extra` entries go into `run.json`."""
        self._check_fitted()
        self.provenance_ = self.provenance_ | dict(extra or {})
        write_run(contents_of(self.with_text_keys()), Path(folder), overwrite=overwrite)


def _key_pairs(x: Embeddings, y: Embeddings, rows: NDArray[np.int64]) -> list[tuple[Key, Key]]:
    return [(x.keys[left], y.keys[right]) for left, right in rows.tolist()]


def _keys_without(space: Embeddings, rows: NDArray[np.int64]) -> tuple[Key, ...]:
    left = np.ones(len(space), dtype=bool)
    left[rows] = False
    return tuple(space.keys[row] for row in np.flatnonzero(left).tolist())


def _rows_of(side: Side, space: Embeddings, rows: NDArray[np.int64]) -> NDArray[np.float32]:
    """Rows (k,) of a space, normalised and whitened as anchors are (k, d)."""
    return side.whiten(space.vectors[rows]) if len(rows) else np.empty((0, side.dim), dtype=np.float32)
