"""`kedge search`: neighbours of X's keys in Y."""

from __future__ import annotations

import argparse
from typing import Any

from kedge.cli.arguments import add_command, add_limit, add_run, add_spaces, positive
from kedge.cli.use.ends import add_ends, refuse_ends, required_ends


def add_parser(commands: Any) -> None:
    """Describe the command."""
    parser = add_command(
        commands,
        "search",
        run,
        "show the rows of Y that match keys of X",
        "Show the rows of Y that are likeliest to be the same item as keys of X.",
        """  kedge search RUN x.vec y.vec cat dog
  kedge search RUN x.vec y.vec cat -k 10 --json
  kedge search RUN bge.npz minilm.npz cat --from bge --to minilm      of a run by `kedge unite`
  kedge search RUN bge.npz chroma:DB#all cat --from bge               the same in a store of common coordinates

They are ranked by the log likelihood ratio of being one item, the best measure that the run knows. The figure beside a
key is a cosine, from -1 to 1: nearly the same order, and easier to read. --json has both.""",
    )
    add_run(parser)
    add_spaces(parser)
    parser.add_argument("keys", metavar="WORD", nargs="+", help="keys of X")
    parser.add_argument("-k", type=positive, default=5, help="how many neighbours (5)")
    add_ends(parser)
    add_limit(parser)


def run(arguments: argparse.Namespace) -> int:
    """Look the keys up and print their neighbours."""
    from kedge.cli.output import print_json, print_line
    from kedge.estimators import load
    from kedge.many.common_space import CommonSpace
    from kedge.runs.description import holds_common_space
    from kedge.spaces import read_embeddings
    from kedge.tasks import search
    from kedge.tasks.key_search import HasSides, search_common

    of_many = holds_common_space(arguments.run_folder)
    if not of_many:
        refuse_ends(arguments)
    common = CommonSpace.load(arguments.run_folder) if of_many else None
    if common is not None and arguments.source and not arguments.target:
        member = common.require_member(arguments.source)
        x = read_embeddings(arguments.x, limit=arguments.limit)
        y = read_embeddings(arguments.y, limit=arguments.limit)
        found = search_common(member, x, y, arguments.keys, arguments.k)
    else:
        discovery: HasSides = common.between(*required_ends(arguments)) if common else load(arguments.run_folder)
        x = read_embeddings(arguments.x, limit=arguments.limit)
        y = read_embeddings(arguments.y, limit=arguments.limit)
        found = search(discovery, x, y, arguments.keys, arguments.k)
    if arguments.json:
        print_json({key: [near._asdict() for near in neighbours] for key, neighbours in found.items()})
        return 0
    for key, neighbours in found.items():
        listed = "  ".join(f"{near.key} {near.similarity:.2f}" for near in neighbours)
        print_line(f"{key}:  {listed}")
    return 0
