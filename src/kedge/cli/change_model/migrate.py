"""`kedge migrate`: a store's vectors, translated into the other space, in a new store."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kedge.cli.arguments import FORMATS, add_command, add_target, positive, space_name
from kedge.cli.exit_codes import EXIT_NOT_PASSED
from kedge.cli.use.engine_options import add_engine, rewrite_in_batches
from kedge.masking import mask

if TYPE_CHECKING:
    from kedge.cli.change_model.routes import Route
    from kedge.judging.health import Answer
    from kedge.spaces.stores import Description, Store
    from kedge.spaces.stores.migration import Migration, OnBad


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
  kedge migrate chroma:DB#english chroma:DB#all --run COMMON --from bge               one index for several encoders:
  kedge migrate chroma:DB#french chroma:DB#all --run COMMON --from me5 --append       COMMON is from `kedge unite`

The source is never changed, and a target that already exists is not replaced. Vectors of RUN's X are translated into
its Y; with --back, those of Y into X. A run of many spaces translates them --from one space --to another; without --to,
into common coordinates: a store of these can be searched with queries of any of the spaces.
Exit code 3 means that the target does not hold what it should, and a line says how much is missing; --resume brings
over rows that were added to the source in the meantime.

With --engine, rows go in parallel from any source into a folder of Parquet files (parquet:NEW), with the other columns
if the source is Parquet too. Ids are checked first, and rows are counted and some compared afterwards.""",
    )
    parser.add_argument("source", metavar="SOURCE", type=space_name, help=f"store (see `kedge stores`), or {FORMATS}")
    add_target(parser, "target", "new store, of the same kind or another")
    parser.add_argument(
        "--run",
        dest="run_folder",
        metavar="RUN",
        type=Path,
        required=True,
        help="folder written by `kedge discover` or `unite`",
    )
    parser.add_argument("--back", action="store_true", help="the store holds vectors of Y: translate them into X")
    parser.add_argument(
        "--from", dest="from_space", metavar="NAME", help="for a run by `kedge unite`: the space of the store's vectors"
    )
    parser.add_argument(
        "--to",
        dest="to_space",
        metavar="NAME",
        help="for a run by `kedge unite`: the space to translate into (common coordinates)",
    )
    parser.add_argument(
        "--append",
        action="store_true",
        help="for a run by `kedge unite`: add the rows to those of other spaces that the target holds",
    )
    parser.add_argument(
        "--id-prefix", metavar="TEXT", default="", help="put TEXT before each id in the target, such as bge/"
    )
    parser.add_argument(
        "--scale",
        choices=("unit", "raw"),
        default="raw",
        help="length of the vectors: 1, or the mean length of the target space's own, which suits any metric (raw)",
    )
    add_engine(parser, always=False)
    parser.add_argument("--resume", action="store_true", help="continue an interrupted migration")
    parser.add_argument("--dry-run", action="store_true", help="check everything and write nothing")
    parser.add_argument(
        "--skip-bad", metavar="FILE", type=Path, help="leave out rows that do not fit, and list them in FILE"
    )
    parser.add_argument(
        "--on-duplicate",
        choices=("refuse", "first", "suffix"),
        default="refuse",
        help="repeated ids: refuse them, keep the first row of each, or rename later ones to ID-2, ID-3, ... (refuse)",
    )
    parser.add_argument(
        "--mark",
        metavar="ENTRY",
        help='entry to add to each payload: "translated", or for common coordinates the name of the space; '
        'set it to "native" in rows that you add later',
    )
    parser.add_argument("--batch", metavar="N", type=positive, default=1000, help="rows translated at once (1000)")
    parser.add_argument(
        "--from-model", metavar="NAME", type=mask, help="model of the store's vectors (the name in RUN)"
    )
    parser.add_argument(
        "--to-model", metavar="NAME", type=mask, help="model whose vectors they become (the name in RUN)"
    )
    parser.add_argument("--ignore-verdict", action="store_true", help="go ahead even if RUN failed for searching")


def run(arguments: argparse.Namespace) -> int:
    """Check, translate, compare, and print the result."""
    from kedge.cli import output_files
    from kedge.cli.change_model.routes import find_route
    from kedge.cli.output import note
    from kedge.errors import InputError
    from kedge.spaces.stores import open_store
    from kedge.spaces.stores.migration import migrate, require_fitting, require_free, require_own_ids
    from kedge.spaces.stores.prefixed import PrefixedStore
    from kedge.spaces.writing.atomic import require_target

    if arguments.source == arguments.target:
        raise InputError(f"{arguments.target}: source and target are the same store")
    output_files.require_apart([arguments.source, arguments.run_folder], [arguments.target, arguments.skip_bad])
    if arguments.engine:
        return _migrate_in_batches(arguments)
    if arguments.ray or arguments.workers:
        raise InputError("--ray and --workers are for --engine ray; add that, or omit them")
    if arguments.skip_bad:
        require_target(arguments.skip_bad)
        output_files.require_free(arguments, "skip_bad", allowed_by="resume")
    with open_store(arguments.source) as opened, open_store(arguments.target) as target:
        source = PrefixedStore(opened, arguments.id_prefix) if arguments.id_prefix else opened
        route = find_route(arguments, source, target)
        _require_ok(route.answer, ignore_verdict=arguments.ignore_verdict)
        about = require_fitting(source, route.dims)
        _refuse_twice(about, route, str(source.address))
        if not target.keeps_payload:
            note(f"{target.address}: keeps ids and vectors only, no payload")
        if arguments.dry_run:
            there = require_free(target, route.note, resume=arguments.resume, accepts=route.accepts)
            require_own_ids(source, target, arguments.on_duplicate, skip_missing=arguments.skip_bad is not None)
            return _print_plan(arguments, source, about, route, going_on=there)
        began = time.perf_counter()
        with _bars() as (on_progress, on_check), _bad_rows(arguments.skip_bad) as on_bad:
            result = migrate(
                source,
                target,
                route.translate,
                route.note,
                route.dims,
                batch_rows=arguments.batch,
                resume=arguments.resume,
                on_duplicate=arguments.on_duplicate,
                mark=arguments.mark,
                mark_as=route.mark_as,
                metric=route.metric,
                accepts=route.accepts,
                on_bad=on_bad,
                on_progress=on_progress,
                on_check=on_check,
            )
        code = _print_result(arguments, result, target, route, time.perf_counter() - began)
        offset = route.note.get("score_offset")
        if offset is not None:
            note(
                f"if you add rows with {arguments.mark} = native, add {offset:+.4f} to the cosine of those with "
                f"{arguments.mark} = translated, so that neither kind crowds out the other"
            )
        return code


def _migrate_in_batches(arguments: argparse.Namespace) -> int:
    """Migrate by an engine, into a folder of Parquet files."""
    import json
    from dataclasses import asdict

    from kedge.cli.change_model.routes import between_two
    from kedge.cli.output import note, print_json, print_line
    from kedge.errors import InputError
    from kedge.runs.description import holds_common_space
    from kedge.runs.translators import load_translator
    from kedge.spaces.stores import NOTE, Address

    for option in ("append", "dry_run", "id_prefix", "mark", "skip_bad"):
        if getattr(arguments, option):
            raise InputError(f"--{option.replace('_', '-')}: cannot be used with --engine; omit one of the two")
    if arguments.on_duplicate != "refuse":
        raise InputError(
            f"--on-duplicate {arguments.on_duplicate}: cannot be used with --engine, which refuses ids that repeat; "
            "omit one of the two, or repair the source"
        )
    if holds_common_space(arguments.run_folder):
        raise InputError(f"--engine: {arguments.run_folder} is a run of many spaces; omit --engine")
    route = between_two(arguments, str(arguments.source))
    _require_ok(route.answer, ignore_verdict=arguments.ignore_verdict)
    if isinstance(arguments.source, Address) and arguments.source.kind not in ("parquet", "lancedb"):
        note(f"{arguments.source}: --engine takes ids and vectors only, no payload; omit --engine to keep it")
    began = time.perf_counter()
    found = rewrite_in_batches(
        arguments,
        arguments.source,
        arguments.target,
        load_translator(arguments.run_folder, back=arguments.back, scale=arguments.scale),
        dim=route.dims[1],
        metadata={NOTE: json.dumps(route.note, sort_keys=True)},
        call=dict(route.note),
    )
    seconds = time.perf_counter() - began
    if arguments.json:
        counts = asdict(found) | {"written": found.arrived}
        print_json(counts | {"complete": True, "seconds": seconds, "target": str(arguments.target)})
    else:
        rate = f"{found.rows / max(seconds, 1e-9):.0f} rows per second, checking included"
        print_line(f"{found.rows} rows translated into {arguments.target} ({rate})")
        print_line(
            f"checked: {found.arrived} rows on both sides, {found.compared} of them compared and equal; no id repeats"
        )
    return 0


def _require_ok(answer: Answer, *, ignore_verdict: bool) -> None:
    from kedge.cli.output import note
    from kedge.errors import InputError

    if answer.verdict == "ok" or ignore_verdict:
        return
    if answer.verdict == "failed":
        advice = f"{answer.advice} Or go ahead with --ignore-verdict."
        raise InputError(f"--run: the verdict for searching is failed ({answer.reason}) {advice}")
    note(f"for searching the run is uncertain: {answer.reason} Rehearse it first: kedge rehearse")


def _refuse_twice(about: Description, route: Route, source: str) -> None:
    """Refuse to translate what this run has translated before."""
    from kedge.cli.output import note
    from kedge.errors import InputError
    from kedge.spaces.stores import NOTE
    from kedge.spaces.stores.migration import read_note

    before = read_note(about.metadata.get(NOTE))
    if "common" in before:
        raise InputError(
            f"{source}: holds common coordinates, which are not a model's vectors and cannot be translated"
        )
    if before and before.get("map") == route.note.get("map"):
        raise InputError(f"{source}: its vectors were translated by this run before, into {before.get('model')}")
    if before:
        note(f"{source}: its vectors are not a model's own: they were translated before")


@contextmanager
def _bad_rows(path: Path | None) -> Iterator[OnBad | None]:
    """Yield a callback for bad rows, or None without a file; the file appears if there are any."""
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
    route: Route,
    *,
    going_on: bool,
) -> int:
    """Print what would be done, after translating a few rows and throwing them away."""
    from kedge.cli.output import print_json, print_line

    first = next(source.read(min(arguments.batch, 100)), None)
    dim = route.translate(first.vectors[:1]).shape[1] if first is not None and len(first) else None
    plan = {
        "rows": about.rows,
        "dimensions": [about.dim, dim],
        "metric": route.metric or about.metric,
        "resumes": going_on,
        "note": route.note,
    }
    if arguments.json:
        print_json({"dry_run": True} | plan)
        return 0
    doing = "translate" if not going_on else "add" if route.accepts else "go on to translate"
    print_line(
        f"would {doing} {about.rows} rows of {about.dim} numbers from "
        f"{source.address} to {arguments.target}, as {dim} {route.into}; nothing was written"
    )
    return 0


def _print_result(arguments: argparse.Namespace, result: Migration, target: Store, route: Route, seconds: float) -> int:
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
    if route.metric:
        by = {"ip": "inner product", "l2": "distance (L2)"}.get(route.metric, route.metric)
        print_line(
            f"search it by {by}, with queries of any member of {arguments.run_folder}: `kedge project "
            f"{arguments.run_folder} SPACE FILE --query{' --metric l2' if route.metric == 'l2' else ''}`"
        )
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
