"""`kedge migrate`: a store's vectors, translated into the other space, in a new store."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kedge.cli.arguments import FORMATS, add_command, add_target, positive, space_name
from kedge.cli.exit_codes import EXIT_NOT_PASSED
from kedge.cli.use.engine_options import add_engine, rewrite_in_batches
from kedge.masking import mask

if TYPE_CHECKING:
    from kedge.estimators import AnchorDiscovery
    from kedge.spaces.stores import Description, Store
    from kedge.spaces.stores.migration import Migration, OnBad, Translate


def add_parser(commands: Any) -> None:
    """Describe the command."""
    parser = add_command(
        commands,
        "migrate",
        run,
        "translate all vectors of a store into a new store",
        "Translate all vectors of a store into the other space, with ids and payload, into a new store.",
        """  kedge migrate chroma:DB#docs chroma:DB#docs-new --run RUN --dry-run
  kedge migrate chroma:DB#docs chroma:DB#docs-new --run RUN
  kedge migrate chroma:DB#docs chroma:DB#docs-new --run RUN --resume        after an interruption
  kedge migrate parquet:old parquet:new --run RUN --engine ray              on all cores, or on a cluster
  kedge migrate pgvector:postgresql://HOST/DB#docs.old pgvector:postgresql://HOST/DB#docs.new --run RUN --back

The source is never changed, and a target that already exists is not replaced. Vectors of RUN's X are translated into
its Y, with --back those of Y into X. Exit code 3 means that the target does not hold what it should, and a line says
how much is missing; rows that were added to the source meanwhile are brought over by --resume.

With --engine rows go in parallel from any source into a folder of Parquet files (parquet:NEW), with the other columns
of a source that is Parquet itself; rows are counted, but ids are not looked at, nor is what was written compared.""",
    )
    parser.add_argument("source", metavar="SOURCE", type=space_name, help=f"store (see `kedge stores`), or {FORMATS}")
    add_target(parser, "target", "new store, of the same kind or another")
    parser.add_argument(
        "--run", dest="run_folder", metavar="RUN", type=Path, required=True, help="from `kedge discover`"
    )
    parser.add_argument("--back", action="store_true", help="the store holds vectors of Y: translate them into X")
    parser.add_argument(
        "--scale",
        choices=("unit", "raw"),
        default="raw",
        help="length of the vectors: 1, or the mean length of the target space's own, for any metric (raw)",
    )
    add_engine(parser, always=False)
    parser.add_argument("--resume", action="store_true", help="go on with a migration that was interrupted")
    parser.add_argument("--dry-run", action="store_true", help="check everything and write nothing")
    parser.add_argument(
        "--skip-bad", metavar="FILE", type=Path, help="omit rows that do not fit, and list them in FILE"
    )
    parser.add_argument(
        "--on-duplicate",
        choices=("refuse", "first", "suffix"),
        default="refuse",
        help="ids that repeat: refuse them, keep the first row of each, or call later ones ID-2, ID-3, ... (refuse)",
    )
    parser.add_argument(
        "--mark",
        metavar="ENTRY",
        help='entry to add to each payload, which says "translated"; let it say "native" in rows that you add later',
    )
    parser.add_argument("--batch", metavar="N", type=positive, default=1000, help="rows translated at once (1000)")
    parser.add_argument(
        "--from-model", metavar="NAME", type=mask, help="model of the store's vectors (the name in RUN)"
    )
    parser.add_argument(
        "--to-model", metavar="NAME", type=mask, help="model whose vectors they become (the name in RUN)"
    )
    parser.add_argument("--ignore-verdict", action="store_true", help="go ahead although RUN is failed for searching")


def run(arguments: argparse.Namespace) -> int:
    """Check, translate, compare, and print what came of it."""
    from kedge.cli import output_files
    from kedge.cli.output import note
    from kedge.errors import InputError
    from kedge.estimators import load
    from kedge.spaces.stores import open_store
    from kedge.spaces.stores.migration import migrate, require_fitting, require_free, require_own_ids
    from kedge.spaces.writing.atomic import require_target

    discovery = load(arguments.run_folder)
    _require_ok(discovery, ignore_verdict=arguments.ignore_verdict)
    if arguments.source == arguments.target:
        raise InputError(f"{arguments.target}: source and target are the same store")
    if arguments.engine:
        return _migrate_in_batches(arguments, discovery)
    if arguments.ray or arguments.workers:
        raise InputError("--ray and --workers are for --engine ray; add that, or omit them")
    if arguments.skip_bad:
        require_target(arguments.skip_bad)
        output_files.require_free(arguments, "skip_bad", allowed_by="resume")
    dims: tuple[int, int] = discovery.map_.dims[::-1] if arguments.back else discovery.map_.dims
    with open_store(arguments.source) as source, open_store(arguments.target) as target:
        about = require_fitting(source, dims)
        origin = _note(arguments, discovery, str(source.address))
        _refuse_twice(about, origin)
        if not target.keeps_payload:
            note(f"{target.address}: keeps ids and vectors only, no payload")
        translate = _translation(discovery, arguments)
        if arguments.dry_run:
            there = require_free(target, origin, resume=arguments.resume)
            require_own_ids(source, target, arguments.on_duplicate, skip_missing=arguments.skip_bad is not None)
            return _print_plan(arguments, source, about, translate, origin, going_on=there)
        began = time.perf_counter()
        with _bars() as (on_progress, on_check), _bad_rows(arguments.skip_bad) as on_bad:
            result = migrate(
                source,
                target,
                translate,
                origin,
                dims,
                batch_rows=arguments.batch,
                resume=arguments.resume,
                on_duplicate=arguments.on_duplicate,
                mark=arguments.mark,
                on_bad=on_bad,
                on_progress=on_progress,
                on_check=on_check,
            )
        return _print_result(arguments, result, target, time.perf_counter() - began)


def _migrate_in_batches(arguments: argparse.Namespace, discovery: AnchorDiscovery) -> int:
    """By an engine, into a folder of Parquet files."""
    import json

    from kedge.cli.output import print_json, print_line
    from kedge.errors import InputError
    from kedge.spaces.stores import NOTE

    for option in ("dry_run", "skip_bad", "mark"):
        if getattr(arguments, option):
            raise InputError(f"--{option.replace('_', '-')}: cannot be used with --engine; omit one of the two")
    began = time.perf_counter()
    origin = _note(arguments, discovery, str(arguments.source))
    translator = discovery.translator(back=arguments.back, scale=arguments.scale)
    rows = rewrite_in_batches(
        arguments,
        arguments.source,
        arguments.target,
        translator,
        dim=translator.dims[1],
        metadata={NOTE: json.dumps(origin, sort_keys=True)},
        call=origin,
    )
    seconds = time.perf_counter() - began
    if arguments.json:
        print_json(
            {"rows": rows, "written": rows, "complete": True, "seconds": seconds, "target": str(arguments.target)}
        )
    else:
        rate = rows / max(seconds, 1e-9)
        print_line(f"{rows} rows translated into {arguments.target} ({rate:.0f} rows per second; ids were not checked)")
    return 0


def _require_ok(discovery: AnchorDiscovery, *, ignore_verdict: bool) -> None:
    from kedge.cli.output import note
    from kedge.errors import InputError

    answer = discovery.health_.searching
    if answer.verdict == "ok" or ignore_verdict:
        return
    if answer.verdict == "failed":
        advice = f"{answer.advice} Or go ahead with --ignore-verdict."
        raise InputError(f"--run: for searching it is failed ({answer.reason}) {advice}")
    note(f"for searching the run is uncertain: {answer.reason} Rehearse it first: kedge rehearse")


def _translation(discovery: AnchorDiscovery, arguments: argparse.Namespace) -> Translate:
    return partial(discovery.translate, back=arguments.back, scale=arguments.scale)


def _note(arguments: argparse.Namespace, discovery: AnchorDiscovery, source: str) -> dict[str, Any]:
    """What the target says of its vectors, so that nobody mixes them with others."""
    import hashlib

    from kedge import __version__

    inputs = discovery.provenance_.get("inputs", {})
    here, there = ("y", "x") if arguments.back else ("x", "y")
    state = (discovery.map_back_ if arguments.back else discovery.map_).state()
    digest = hashlib.sha256(b"".join(state[name].tobytes() for name in sorted(state)))
    duplicates = {} if arguments.on_duplicate == "refuse" else {"on_duplicate": arguments.on_duplicate}
    marked = {"mark": arguments.mark} if arguments.mark else {}
    return (
        duplicates
        | marked
        | {
            "model": arguments.to_model or inputs.get(there, {}).get("file", there.upper()),
            "carried_from": arguments.from_model or inputs.get(here, {}).get("file", here.upper()),
            "map": digest.hexdigest()[:16],
            "scale": arguments.scale,
            "source": source,
            "kedge": __version__,
        }
    )


def _refuse_twice(about: Description, origin: dict[str, Any]) -> None:
    """Refuse to translate what was translated by this run before."""
    import json

    from kedge.cli.output import note
    from kedge.errors import InputError
    from kedge.spaces.stores import NOTE

    try:
        before = json.loads(about.metadata.get(NOTE, "{}"))
    except ValueError:
        return
    if isinstance(before, dict) and before.get("map") == origin["map"]:
        raise InputError(
            f"{origin['source']}: its vectors were translated by this run before, into {before.get('model')}"
        )
    if before:
        note(f"{origin['source']}: its vectors are not a model's own, they were translated before")


@contextmanager
def _bad_rows(path: Path | None) -> Iterator[OnBad | None]:
    """Where bad rows are listed: nowhere, or in a file, which appears if there are any."""
    from kedge.spaces.pairs import write_table
    from kedge.spaces.writing.atomic import atomic_path

    if path is None:
        yield None
        return
    found: list[tuple[str, str]] = []
    yield lambda name, why: found.append((str(name), why))
    if found:
        with atomic_path(path) as temporary:
            write_table(temporary, ("id", "reason"), found)


@contextmanager
def _bars() -> Iterator[Any]:
    from kedge.cli.progress import counting_bar

    with counting_bar("translating rows", rate=True) as on_progress, counting_bar("checking", rate=True) as on_check:
        yield on_progress, on_check


def _print_plan(
    arguments: argparse.Namespace,
    source: Store,
    about: Description,
    translate: Translate,
    origin: dict[str, Any],
    *,
    going_on: bool,
) -> int:
    """What would be done, after one batch has been translated and thrown away."""
    from kedge.cli.output import print_json, print_line

    first = next(source.read(min(arguments.batch, 100)), None)
    dim = translate(first.vectors[:1]).shape[1] if first is not None and len(first) else None
    plan = {
        "rows": about.rows,
        "dimensions": [about.dim, dim],
        "metric": about.metric,
        "resumes": going_on,
        "note": origin,
    }
    if arguments.json:
        print_json({"dry_run": True} | plan)
        return 0
    print_line(
        f"would {'go on to translate' if going_on else 'translate'} {about.rows} rows of {about.dim} numbers from "
        f"{origin['source']} to {arguments.target}, as {dim} numbers of {origin['scale']} length; nothing was written"
    )
    return 0


def _print_result(arguments: argparse.Namespace, result: Migration, target: Store, seconds: float) -> int:
    from dataclasses import asdict

    from kedge.cli.output import print_json, print_line

    if arguments.json:
        print_json(asdict(result) | {"complete": result.complete, "seconds": seconds, "target": str(target.address)})
        return 0 if result.complete else EXIT_NOT_PASSED
    before = f", {result.before} were there before" if result.before else ""
    rate = f"{result.rows / max(seconds, 1e-9):.0f} rows per second, checking included"
    print_line(f"{result.written} rows translated into {target.address}{before} ({rate})")
    if result.bad:
        print_line(f"left out: {result.bad} rows that do not fit, listed in {arguments.skip_bad}")
    if result.repeated:
        done = "were left out" if arguments.on_duplicate == "first" else "got another id"
        print_line(f"ids that repeat: {result.repeated} rows {done}")
    if result.complete:
        kept = result.written + result.before
        print_line(f"checked: {kept} rows on both sides, {result.compared} of them compared and equal")
        if result.as_text:
            print_line(f"of these, {result.as_text} have values that the target keeps as text, having no type for them")
        return 0
    print_line(
        f"NOT COMPLETE: {result.missing} rows are missing (added meanwhile? then --resume), {result.extra} are in the "
        f"target only, {result.different} of {result.compared} compared rows differ"
    )
    return EXIT_NOT_PASSED
