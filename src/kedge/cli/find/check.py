"""`kedge check`: can these two files be aligned, and how many seeds would it take?"""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any

from kedge.cli.arguments import add_command, add_device, add_random_state, add_spaces, positive
from kedge.cli.find.rows_needed import advice_on_rows, rows_needed

if TYPE_CHECKING:
    from kedge.judging.health import Health
    from kedge.spaces import Embeddings

_MAX_ROWS = 20_000
# Fewer rows are not even tried.
_MIN_ROWS = 20
_ENOUGH_ROWS_PER_DIMENSION = 10
_ANCHORS = 10
# How often all rows are compared with all, roughly; and how many seconds that must take to be announced.
_PASSES, _LONG = 30, 20
_ADVICE = {
    "ok": (0, "no seeds are needed"),
    "uncertain": (5, "about 5 seeds"),
    "failed": (15, "15 or more seeds, if the files hold the same kind of things at all"),
}


def add_parser(commands: Any) -> None:
    """Describe the command."""
    parser = add_command(
        commands,
        "check",
        run,
        "can two files be aligned, and with how many seeds?",
        "Say whether two files look alignable, and how many seeds are advisable.",
        """  kedge check x.vec y.npz
  kedge check en.vec fr.vec --limit 5000 --json

Makes one quick attempt without seeds (`kedge discover` makes slower ones too) and writes nothing.
Always exits with 0.""",
    )
    add_spaces(parser)
    parser.add_argument(
        "--limit",
        type=positive,
        metavar="N",
        default=_MAX_ROWS,
        help=f"look only at the first N rows of each file; {_MAX_ROWS} at most",
    )
    add_random_state(parser)
    add_device(parser)


def run(arguments: argparse.Namespace) -> int:
    """Read, try, and give advice."""
    from kedge.cli.output import note, print_json
    from kedge.judging.recognition import MIN_ROWS
    from kedge.spaces import read_embeddings

    began = time.perf_counter()
    limit = min(arguments.limit, _MAX_ROWS)
    x, y = (read_embeddings(path, limit=limit) for path in (arguments.x, arguments.y))
    note(f"{x.source}: {len(x)} x {x.dim}, {y.source}: {len(y)} x {y.dim}")
    _note_time(x, y, arguments.device)
    health = _quick_attempt(x, y, arguments) if min(len(x), len(y)) >= _MIN_ROWS else None
    if health is None or min(len(x), len(y)) < MIN_ROWS:
        seeds, answer = None, "too few rows to say; give more of both spaces"
    else:
        seeds, answer = _ADVICE[health.map.verdict]
    rows, dimensions = min(len(x), len(y)), min(x.dim, y.dim)
    advice = [answer, advice_on_rows(rows, dimensions), *_cautions(x, y)]
    described = {
        "x": _describe(x),
        "y": _describe(y),
        "equal_keys": len(x.row_of.keys() & y.row_of.keys()),
        "health": health,
        "advisable_seeds": seeds,
        "advice": "; ".join(advice),
        "rows_needed": {"nothing_shared": rows_needed(0.0, dimensions), "half_shared": rows_needed(0.5, dimensions)},
        "seconds": round(time.perf_counter() - began, 2),
    }
    if arguments.json:
        print_json(described)
    else:
        _print_answer(described, advice, limit)
    return 0


def _note_time(x: Embeddings, y: Embeddings, device: str) -> None:
    """Say how long it will take, if that is long."""
    from kedge.cli.output import note
    from kedge.cli.progress import about, estimate_seconds

    seconds = estimate_seconds(len(x), len(y), min(x.dim, y.dim), _PASSES, device)
    if seconds >= _LONG:
        note(f"this takes {about(seconds)} here; --limit 5000 is quicker, and nearly as good")


def _quick_attempt(x: Embeddings, y: Embeddings, arguments: argparse.Namespace) -> Health:
    """How the quickest attempt without seeds went."""
    from kedge.cli.progress import progress_bar
    from kedge.estimators import AnchorDiscovery
    from kedge.solving.schedule import schedules_for

    with progress_bar() as on_step:
        discovery = AnchorDiscovery(
            n_anchors=min(_ANCHORS, len(x), len(y)),
            schedule=schedules_for(1)[0],
            device=arguments.device,
            random_state=arguments.random_state,
            on_step=on_step,
        )
        return discovery.fit(x, y).health_


def _describe(space: Embeddings) -> dict[str, Any]:
    return {
        "file": space.source,
        "rows": len(space),
        "dimensions": space.dim,
        "rows_per_dimension": round(len(space) / space.dim, 2),
    }


def _cautions(x: Embeddings, y: Embeddings) -> list[str]:
    """What makes the answer less certain, if anything does."""
    few = [name for name, space in (("X", x), ("Y", y)) if len(space) < _ENOUGH_ROWS_PER_DIMENSION * space.dim]
    if not few:
        return []
    return [
        f"caution: fewer than {_ENOUGH_ROWS_PER_DIMENSION} rows per dimension (in {' and '.join(few)}) make this "
        "less certain; more rows help"
    ]


def _print_answer(described: dict[str, Any], advice: list[str], limit: int) -> None:
    """Print the same for people."""
    from kedge.cli.output import kedge_command, print_health, print_line

    for name in ("x", "y"):
        space = described[name]
        first = "first " if space["rows"] == limit else ""
        little = " (little)" if space["rows"] < _ENOUGH_ROWS_PER_DIMENSION * space["dimensions"] else ""
        print_line(
            f"{name.upper()}: {space['file']}, {first}{space['rows']} rows, {space['dimensions']} dimensions, "
            f"{space['rows_per_dimension']:.1f} rows per dimension{little}"
        )
    print_line(f"equal keys in both: {described['equal_keys']}")
    if described["equal_keys"]:
        print_line("  if equal keys mean the same things, give them as seeds: two columns of keys in a file, then")
        print_line(
            f"  {kedge_command()} discover {described['x']['file']} {described['y']['file']} --seeds FILE -o RUN"
        )
    if described["health"]:
        print_line("one attempt without seeds:")
        print_health(described["health"])
    first, *others = advice
    print_line(("advice", "bold"), f": {first}")
    for other in others:
        print_line(other)
