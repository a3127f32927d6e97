"""The result of a discovery, for people or as JSON."""

from __future__ import annotations

import argparse
from typing import Any, NamedTuple

from kedge.cli.output import counted, kedge_command, print_health, print_json, print_line, warn
from kedge.estimators import AnchorDiscovery
from kedge.judging.health import SEED_OPINIONS, Answer, describe_opinions
from kedge.models.query_map import ONE_MAP, QueryTranslation
from kedge.spaces import Embeddings
from kedge.spaces.pairs import same_ids

_PAIRS_SHOWN, _SEEDS_SHOWN = 5, 10


def required_answer(discovery: AnchorDiscovery, arguments: argparse.Namespace) -> Answer:
    """The answer for the use that `--require` names."""
    return discovery.health_.answers[arguments.require]


def print_discovery(
    discovery: AnchorDiscovery,
    arguments: argparse.Namespace,
    x: Embeddings,
    y: Embeddings,
    seconds: float,
    skipped_seeds: int = 0,
) -> None:
    """Print the result, for people or as JSON, and warn of an unhealthy one."""
    if arguments.json:
        print_json(
            {
                "run": str(arguments.out),
                "report": arguments.report and str(arguments.report),
                "health": discovery.health_,
                "anchors": len(discovery.anchors_x_),
                "pairs": len(discovery.pairs_),
                "expected_precision": _expected_precision(discovery),
                "seeds": _count_opinions(discovery),
                "unmatched": {"x": len(discovery.x_.unmatched_keys), "y": len(discovery.y_.unmatched_keys)},
                "approximate": discovery.candidate_recall_,
                "whitening": discovery.whitening_,
                "maps": discovery.map_scores_,
                "queries": _queries(discovery),
                "doubtful_seeds": [seed._asdict() for seed in _doubtful_seeds(discovery)],
                "skipped_seeds": skipped_seeds,
                "same_ids": same_ids(x, y),
                "seconds": round(seconds, 2),
            }
        )
    else:
        _print_summary(discovery, arguments, x, y)
    required = required_answer(discovery, arguments)
    if required.verdict != "ok":
        warn(f"the verdict for {arguments.require} is {required.verdict}: do not rely on it. {required.advice}")


def _print_summary(discovery: AnchorDiscovery, arguments: argparse.Namespace, x: Embeddings, y: Embeddings) -> None:
    """What was found, for people."""
    print_health(discovery.health_)
    print_line(_describe_found(discovery, arguments))
    shown = zip(discovery.pair_keys_[:_PAIRS_SHOWN], discovery.pair_confidence_[:_PAIRS_SHOWN], strict=True)
    for (left, right), confidence in shown:
        print_line(f"  {left} = {right}  ({confidence:.2f})")
    if not len(discovery.pairs_):
        print_line("  no found pair is probable enough to be listed; kedge pairs --min-confidence 0 lists all")
    print_line(
        f"no match: {len(discovery.x_.unmatched_keys)} of {len(x)} rows of X, "
        f"{len(discovery.y_.unmatched_keys)} of {len(y)} rows of Y"
    )
    if discovery.candidate_recall_ is not None:
        print_line(f"approximate: {discovery.candidate_recall_}")
    if discovery.whitening_:
        print_line(f"found on spaces whitened by {discovery.whitening_:g}")
    print_line(_describe_map(discovery))
    if discovery.queries_ is not None:
        print_line(_describe_queries(discovery.queries_))
    _print_seeds(discovery)
    files = f"{arguments.out} {arguments.x} {arguments.y}"
    if not arguments.report:
        print_line(f"next: {kedge_command()} report {files}")
    print_line(f"next: {kedge_command()} search {files} KEY")
    if _may_have_several(discovery):
        print_line(
            f"next: {kedge_command()} lexicon {files} -o lexicon.tsv (where several rows of Y fit, it lists the best, "
            "each with a probability)"
        )
    if same := same_ids(x, y):
        print_line(
            f"{same} ids are in both, with equal dimensions: a discovery does not say whether one model made both; "
            f"next: {kedge_command()} drift {arguments.x} {arguments.y}"
        )


def _describe_found(discovery: AnchorDiscovery, arguments: argparse.Namespace) -> str:
    """How many pairs and anchors were found, and where they are."""
    found, anchors = f"{counted(len(discovery.pairs_), 'pair')} found", counted(len(discovery.anchors_x_), "anchor")
    if len(discovery.seeds_):
        found += f" besides the {counted(len(discovery.seeds_), 'seed')}"
    precision = _expected_precision(discovery)
    if precision is None:
        return f"{found}; the run, with {anchors}, is in the folder {arguments.out}"
    return f"{found} (about {precision * 100:.0f} % right), and {anchors}, in {arguments.out}"


def _may_have_several(discovery: AnchorDiscovery) -> bool:
    """Whether the pairs may be poor because rows of X have several counterparts, rather than none."""
    health = discovery.health_
    return not discovery.disjoint and health.pairs.verdict != "ok" and health.searching.verdict != "failed"


def _describe_map(discovery: AnchorDiscovery) -> str:
    """Which map `kedge translate` uses."""
    kind, mrr = (discovery.map_scores_["map"][name] for name in ("kind", "mrr"))
    return f"map: {kind}" + ("; too few certain pairs to test it on held-out ones" if mrr is None else "")


def _describe_queries(queries: QueryTranslation) -> str:
    """How `--kind query` translates, and what it gains."""
    if queries.agreement is None or queries.agreement_of_one_map is None:
        return f"queries: {queries.kind}; too few pairs to try another translation on"
    agreement = f"of what X's own model finds for a query, its translation finds {100 * queries.agreement:.0f} %"
    if queries.kind == ONE_MAP:
        return f"queries: {ONE_MAP}, no translation of their own is clearly better; {agreement}"
    return (
        f"queries: {queries.kind}; {agreement} ({100 * queries.agreement_of_one_map:.0f} % with {ONE_MAP}); "
        "use it with --kind query"
    )


def _queries(discovery: AnchorDiscovery) -> dict[str, Any] | None:
    """The same for JSON."""
    queries = discovery.queries_
    if queries is None:
        return None
    return {
        "kind": queries.kind,
        "agreement": queries.agreement,
        "agreement_of_one_map": queries.agreement_of_one_map,
    }


def _expected_precision(discovery: AnchorDiscovery) -> float | None:
    """The share of the found pairs that is probably right."""
    return round(float(discovery.pair_confidence_.mean()), 4) if len(discovery.pairs_) else None


class _DoubtfulSeed(NamedTuple):
    """A seed that differs from what was found: its keys, what was found for the first, and the run's opinion of it."""

    x: str
    y: str
    found: str
    rank: float
    opinion: str
    suspect: bool


def _doubtful_seeds(discovery: AnchorDiscovery) -> list[_DoubtfulSeed]:
    """The seeds that disagree with what was found, the most doubtful first."""
    seeds = zip(
        discovery.seed_keys_,
        discovery.seed_found_keys_,
        discovery.seed_rank_.tolist(),
        discovery.seed_opinion_.tolist(),
        discovery.seed_is_suspect_.tolist(),
        strict=True,
    )
    doubtful = [_DoubtfulSeed(left, right, found, *more) for (left, right), found, *more in seeds if found != right]
    return sorted(doubtful, key=lambda seed: -seed.rank)


def _count_opinions(discovery: AnchorDiscovery) -> dict[str, int]:
    """How many seeds were given, how many the run has each opinion of, and how many it set aside."""
    opinions = discovery.seed_opinion_.tolist()
    counts = {opinion: opinions.count(opinion) for opinion in SEED_OPINIONS}
    return {"given": len(opinions), **counts, "set_aside": int(discovery.seed_is_suspect_.sum())}


def _print_seeds(discovery: AnchorDiscovery) -> None:
    """Print the run's opinion of the seeds, and list those that differ from what it found."""
    if not len(discovery.seeds_):
        return
    set_aside = int(discovery.seed_is_suspect_.sum())
    print_line(f"seeds: {describe_opinions(discovery.seed_opinion_.tolist(), set_aside)}")
    doubtful = _doubtful_seeds(discovery)
    for seed in doubtful[:_SEEDS_SHOWN]:
        print_line(f"  {seed.x} = {seed.y}: {seed.opinion}, rank {seed.rank:g} (found: {seed.found})")
    if len(doubtful) > _SEEDS_SHOWN:
        print_line(f"  and {len(doubtful) - _SEEDS_SHOWN} more in seeds.tsv")
