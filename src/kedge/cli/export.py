"""`kedge export`: the map of a run as a file that needs neither torch nor kedge."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from kedge.cli.arguments import add_run, add_verb
from kedge.cli.translate import add_direction_and_scale, note_length

_KINDS = {".npz": "numpy", ".safetensors": "numpy", ".onnx": "onnx"}


def add_parser(verbs: Any) -> None:
    """Describe the verb."""
    parser = add_verb(
        verbs,
        "export",
        run,
        "Write what translates vectors of X into Y's space as a file for a service, without torch or kedge.",
        """  kedge export RUN --to numpy -o to-y.npz
  kedge export RUN --to onnx -o to-y.onnx
  kedge export RUN --to onnx -o to-x.onnx --back --scale raw

numpy:  a few float32 arrays; the lines of NumPy that use them are printed
onnx:   a model from `vectors` (any number of rows) to `translated`, for onnxruntime and its like; needs kedge[onnx]

The file does what `kedge translate` does. It checks nothing: a vector of zeros comes out as NaN.""",
    )
    add_run(parser)
    parser.add_argument("--to", choices=("numpy", "onnx"), help="what to write (what the suffix of FILE says)")
    parser.add_argument(
        "-o", "--out", metavar="FILE", type=Path, required=True, help="file to write: .npz .safetensors .onnx"
    )
    add_direction_and_scale(parser)
    parser.add_argument("--overwrite", action="store_true", help="replace a file that is there already")


def run(arguments: argparse.Namespace) -> int:
    """Load, convert, write, and say how to use it."""
    suffix = _check_target(arguments)

    from kedge.cli.output import note, print_json, results
    from kedge.discovery import load
    from kedge.spaces.atomic import atomic_path
    from kedge.tasks import about_translation, export_bytes, export_lines

    discovery = load(arguments.run_folder)
    translation = discovery.translation(back=arguments.back, scale=arguments.scale)
    about = about_translation(discovery, back=arguments.back, scale=arguments.scale)
    contents = export_bytes(translation, about, suffix)
    with atomic_path(arguments.out) as temporary:
        temporary.write_bytes(contents)
    note_length(discovery, arguments)
    if about["map_verdict"] != "right":
        note(f"the map of this run is {about['map_verdict']}: {discovery.health_.map.reason}")
    dim_in, dim_out = translation.matrix.shape
    if arguments.json:
        described = {"out": str(arguments.out), "to": _KINDS[suffix], "bytes": len(contents)}
        sizes = {"dimensions_in": dim_in, "dimensions_out": dim_out, "length": float(translation.length)}
        print_json(described | sizes | {"about": about})
        return 0
    console = results()
    direction = f"{about['source']} to {about['target']}"
    console.print(f"translation of {direction}, {dim_in} to {dim_out} dimensions, in {arguments.out}", markup=False)
    console.print("use it so:\n", markup=False)
    console.print(export_lines(translation, about, suffix, arguments.out.name), markup=False, end="")
    return 0


def _check_target(arguments: argparse.Namespace) -> str:
    """The suffix of a file that can be written; what cannot is refused before any work."""
    from kedge.errors import InputError
    from kedge.spaces.atomic import require_target

    path: Path = arguments.out
    suffix = path.suffix.lower()
    if suffix not in _KINDS:
        raise InputError(f"{path}: the suffix {path.suffix!r} is no format of exports; known are {', '.join(_KINDS)}")
    if arguments.to not in (None, _KINDS[suffix]):
        fitting = " or ".join(name for name, kind in _KINDS.items() if kind == arguments.to)
        raise InputError(f"{path}: --to {arguments.to} needs a name that ends in {fitting}, got {path.suffix}")
    require_target(path)
    if path.exists() and not arguments.overwrite:
        raise InputError(f"{path}: the file is there already; choose another name, or replace it by --overwrite")
    return suffix
