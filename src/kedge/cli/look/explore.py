"""`kedge explore`: the page of a run, live, for spaces too large for a file."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from kedge.cli.arguments import add_command, add_device, add_limit, add_rows_shown, add_run, add_spaces, port_number
from kedge.cli.page_options import add_labels, add_listed, compare_with_gold, load_listed, read_labels, read_row_texts
from kedge.cli.signals import was_interrupted
from kedge.cli.true_pairs import add_gold

# Bytes that a key takes in all: by itself, for searching, and in the tables of partners.
_KEY_BYTES = 500


def add_parser(commands: Any) -> None:
    """Describe the command."""
    parser = add_command(
        commands,
        "explore",
        run,
        "look at a run in the browser, live",
        "Look at a run in the browser, live: look up any key, in spaces of any size, and redraw for other anchors.",
        """  kedge explore RUN x.npy y.npy
  kedge explore RUN x.npy y.npy --port 8080 --open
  kedge explore RUN a.npz b.npz --images photos --labels labels.tsv     keys are file names in the folder photos

It answers on this machine only (127.0.0.1), changes nothing, and ends with Ctrl-C. Needs kedge[report].""",
    )
    add_run(parser)
    add_spaces(parser)
    parser.add_argument("--port", metavar="N", type=port_number, default=0, help="port to answer on (any free one)")
    parser.add_argument("--open", action="store_true", help="open the page in a browser")
    add_gold(parser, required=False)
    add_labels(parser)
    parser.add_argument(
        "--images", metavar="DIR", type=Path, help="folder with the image files that keys name, to show as thumbnails"
    )
    add_listed(parser)
    add_rows_shown(parser)
    add_device(parser)
    add_limit(parser)


def run(arguments: argparse.Namespace) -> int:
    """Load, then answer until interrupted."""
    from kedge.cli.output import note, print_json, print_line
    from kedge.errors import InputError
    from kedge.report import LOOPBACK, Explorer, require_plotly, serve, shared_columns
    from kedge.spaces import read_embeddings
    from kedge.spaces.memory import require_memory

    require_plotly()
    discovery = load_listed(arguments)
    x, y = (read_embeddings(path, limit=arguments.limit) for path in (arguments.x, arguments.y))
    rows = len(x) + len(y)
    held = x.vectors.nbytes + y.vectors.nbytes + (4 * shared_columns(discovery) + _KEY_BYTES) * rows
    require_memory(held, "the spaces, held to search them,", "read fewer rows with --limit")
    note(f"{x.source}: {len(x)} x {x.dim}, {y.source}: {len(y)} x {y.dim}; preparing the picture")
    explorer = Explorer(
        discovery,
        x,
        y,
        run=str(arguments.run_folder),
        max_rows=arguments.rows,
        gold=compare_with_gold(arguments, discovery, x, y),
        labels=read_labels(arguments, x, y),
        texts=read_row_texts(arguments, x, y),
        images=arguments.images,
    )
    try:
        server = serve(explorer, arguments.port)
    except OSError as error:
        raise InputError(f"--port {arguments.port}: cannot be used ({error.strerror}); choose another") from error
    with server:
        address = f"http://{LOOPBACK}:{server.server_port}/"
        if arguments.json:
            print_json({"url": address})
        else:
            print_line(f"page: {address} (Ctrl-C ends it)")
        if arguments.open:
            import webbrowser

            webbrowser.open(address)
        try:
            server.serve_forever()
        except BaseException as error:
            if not was_interrupted(error):
                raise
            note("stopped")
    return 0
