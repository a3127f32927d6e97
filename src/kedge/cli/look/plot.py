"""`kedge plot`: figures of a run, for papers."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from kedge.cli.arguments import add_command, add_limit, add_overwrite, add_run, add_spaces
from kedge.cli.page_options import add_listed, load_listed


def add_parser(commands: Any) -> None:
    """Describe the command."""
    parser = add_command(
        commands,
        "plot",
        run,
        "draw figures of a run, for papers",
        "Draw a run: both spaces in two dimensions, how it converged, how sure the pairs are.",
        """  kedge plot RUN x.vec y.vec --kind spaces -o spaces.pdf
  kedge plot RUN x.vec y.vec --kind confidence -o confidence.png

spaces: partners have the same colour; two spaces that agree look alike. Needs kedge[plot].""",
    )
    add_run(parser)
    add_spaces(parser)
    parser.add_argument(
        "--kind", choices=("spaces", "convergence", "confidence"), default="spaces", help="what to draw (spaces)"
    )
    parser.add_argument("-o", "--out", metavar="FILE", type=Path, required=True, help="file to write: .pdf .png .svg")
    add_overwrite(parser)
    add_listed(parser)
    add_limit(parser)


def run(arguments: argparse.Namespace) -> int:
    """Load, draw, write."""
    from kedge.cli.output import print_json, print_line
    from kedge.cli.output_files import require_free
    from kedge.report import FIGURES, require_figure_target, save_figure
    from kedge.spaces import read_embeddings

    require_figure_target(arguments.out)
    require_free(arguments)
    discovery = load_listed(arguments)
    x, y = (read_embeddings(path, limit=arguments.limit) for path in (arguments.x, arguments.y))
    save_figure(FIGURES[arguments.kind](discovery, x, y), arguments.out)
    if arguments.json:
        print_json({"kind": arguments.kind, "out": str(arguments.out)})
    else:
        print_line(f"{arguments.kind}: {arguments.out}")
    return 0
