"""`kedge info`: what is in a file or a run."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kedge.cli.arguments import add_command, add_limit, space_name

if TYPE_CHECKING:
    from kedge.spaces import Embeddings


def add_parser(commands: Any) -> None:
    """Describe the command."""
    parser = add_command(
        commands,
        "info",
        run,
        "describe a file of vectors, or a run",
        "Describe a file of vectors, or a run.",
        """  kedge info words.vec
  kedge info RUN --json
  kedge info RUN --verify      check that no file of the run has changed""",
    )
    parser.add_argument("path", metavar="FILE|RUN", type=space_name, help="file of vectors, store, or run folder")
    parser.add_argument("--verify", action="store_true", help="check the files of a run against their checksums")
    add_limit(parser)


def run(arguments: argparse.Namespace) -> int:
    """Describe and print."""
    from kedge.cli.output import print_json, print_line
    from kedge.errors import InputError
    from kedge.many.common_run import FILES, read_common_description
    from kedge.runs.description import holds_common_space, read_description
    from kedge.runs.folder import RUN_FILES, changed_files
    from kedge.spaces import read_embeddings
    from kedge.spaces.files import files_read
    from kedge.spaces.formats.dataset_folder import is_dataset

    if isinstance(arguments.path, Path) and not any(path.exists() for path in files_read(arguments.path)):
        raise InputError(f"{arguments.path}: no such file or folder")
    if isinstance(arguments.path, Path) and arguments.path.is_dir() and not is_dataset(arguments.path):
        if holds_common_space(arguments.path):
            described, files = read_common_description(arguments.path), FILES
            shown = _common_lines(described)
        else:
            described, files = read_description(arguments.path)[0], RUN_FILES
            shown = _run_lines(described)
        if arguments.verify:
            faults = changed_files(arguments.path, files)
            if faults:
                listed = "; ".join(f"{name} {fault}" for name, fault in faults.items())
                raise InputError(f"{arguments.path}: {listed}; run the discovery again, or restore the files")
            described = described | {"verified": True}
            shown.append(("files", "none has changed since it was written"))
    elif arguments.verify:
        raise InputError(f"{arguments.path}: only the files of a run have checksums to verify; omit --verify")
    else:
        described = _space(read_embeddings(arguments.path, limit=arguments.limit))
        shown = _space_lines(described)
    if arguments.json:
        print_json(described)
    else:
        for name, value in shown:
            print_line(f"{name:<16} {value}")
    return 0


def _space(space: Embeddings) -> dict[str, Any]:
    import numpy as np
    import torch

    from kedge.geometry import center_of

    norms = np.sqrt(np.einsum("ij,ij->i", space.vectors, space.vectors, dtype=np.float64))
    center = center_of(torch.from_numpy(np.array(space.vectors)))
    return {
        "file": space.source,
        "rows": len(space),
        "dimensions": space.dim,
        "norms": {"min": norms.min().item(), "mean": norms.mean().item(), "max": norms.max().item()},
        "center_length": float(center.norm()),
        "first_keys": list(space.keys[:5]),
    }


def _space_lines(described: dict[str, Any]) -> list[tuple[str, str]]:
    norms = described["norms"]
    return [
        ("file", described["file"]),
        ("size", f"{described['rows']} rows, {described['dimensions']} dimensions"),
        ("norms", f"{norms['min']:.3g} to {norms['max']:.3g}, mean {norms['mean']:.3g}"),
        ("center", f"length {described['center_length']:.3f} of unit vectors (0: centered; 1: all alike)"),
        ("first keys", ", ".join(described["first_keys"])),
    ]


def _run_lines(described: dict[str, Any]) -> list[tuple[str, str]]:
    from kedge.judging.health import Health

    settings, health = described["settings"], Health.from_dict(described["health"])
    inputs = described["inputs"]
    return [
        (
            "run by",
            f"kedge {described['kedge']}, method {settings['method']}, random state {settings['random_state']}",
        ),
        *((name, f"{file['file']}, sha256 {file['sha256'][:12]}") for name, file in inputs.items()),
        ("found", ", ".join(f"{name} {value}" for name, value in described["counts"].items())),
        (
            "iterations",
            f"{described['iterations']}, {'settled' if described['converged'] else 'not settled'}",
        ),
        *((use, f"{answer.verdict}: {answer.reason} [by {answer.basis}]") for use, answer in health.answers.items()),
        ("in both", str(health.overlap)),
        *((f"{use}, advice", answer.advice) for use, answer in health.answers.items()),
    ]


def _common_lines(described: dict[str, Any]) -> list[tuple[str, str]]:
    """The lines for a run of many spaces."""
    health, sizes = described["health"], described["sizes"]
    lines = [("run by", f"kedge {described['kedge']}, random state {described['settings']['random_state']}")]
    for member in described["members"]:
        lines.append(("space", f"{member['name']}: {member['rows']} rows, {member['dimensions']} dimensions"))
    groups = f"{sizes['groups_of_many']} groups of two rows or more, known ones included"
    lines.append(("found", f"{groups}; {sizes['factors']} common factors"))
    for name in ("map", "pairs"):
        lines.append((name, f"{health[name]['verdict']}: {health[name]['reason']}"))
    for one in health["each"]:
        answers = f"map {one['map']['verdict']}, pairs {one['pairs']['verdict']}, {one['how']}"
        lines.append(("pair", f"{one['first']}, {one['second']}: {answers}"))
    for loop in health["loops"]:
        back = f"{100 * loop['back']:.0f} % of the rows come back, {100 * loop['chance']:.1f} % would by chance"
        closed = {True: "closed", False: "NOT CLOSED", None: "too few sure rows to say"}[loop["closed"]]
        lines.append(("loop", f"{', '.join(loop['spaces'])}: {closed}; {back}"))
    lines += [("left out", f"{name}: {reason}") for name, reason in health["left_out"].items()]
    return lines
