"""`kedge stores`: where vectors can be read from and written to."""

from __future__ import annotations

import argparse
from typing import Any

from kedge.cli.arguments import FORMATS, add_command


def add_parser(commands: Any) -> None:
    """Describe the command."""
    add_command(
        commands,
        "stores",
        run,
        "list the vector stores that can be read and written",
        "List the vector stores that can be read and written, and how to address them.",
        """  kedge stores
  kedge discover chroma:DIR#COLLECTION new.npz -o RUN      an address works wherever a file does
  kedge convert vectors.npz lancedb:DIR#TABLE

Passwords and keys come from the address or the environment: PGPASSWORD, QDRANT_API_KEY, CHROMA_TOKEN. They are never
shown or written. In a password write @ as %40, # as %23, / as %2F and ? as %3F.""",
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the table."""
    from kedge.cli.output import print_json, print_line, print_table
    from kedge.extras import install_command
    from kedge.spaces.stores import STORE_KINDS

    kinds = STORE_KINDS.values()
    if arguments.json:
        listed = [
            {"kind": kind.name, "addresses": kind.addresses, "extra": kind.extra, "installed": kind.installed}
            for kind in kinds
        ]
        print_json({"stores": listed, "files": FORMATS})
        return 0
    rows = [
        (address, "ready" if kind.installed else install_command(f"kedge[{kind.extra}]"))
        for kind in kinds
        for address in kind.addresses
    ]
    print_table(("address", "client"), rows)
    print_line(f"files: {FORMATS}")
    return 0
