"""`kedge export`: a run for other programs: its map without torch or kedge, a model, its pairs, or both spaces."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kedge.cli.arguments import (
    add_command,
    add_limit,
    add_overwrite,
    add_rows_shown,
    add_run,
    add_spreadsheet_safe,
    space_name,
)
from kedge.cli.page_options import add_labels, read_labels
from kedge.cli.use.ends import refuse_ends, required_ends
from kedge.cli.use.translate import add_direction_and_scale, note_length

if TYPE_CHECKING:
    from kedge.models.translator import Translator

_KINDS = {".npz": "numpy", ".safetensors": "numpy", ".onnx": "onnx", ".tsv": "pairs", ".parquet": "embedding-atlas"}
_FOLDERS = "sentence-transformers"


def add_parser(commands: Any) -> None:
    """Describe the command."""
    parser = add_command(
        commands,
        "export",
        run,
        "write a run for other programs: NumPy, ONNX, tables",
        "Write a run for other programs: its map, without torch or kedge; its pairs; both spaces for embedding-atlas.",
        """  kedge export RUN --to numpy -o to-y.npz
  kedge export RUN --to onnx -o to-y.onnx
  kedge export RUN --to onnx -o to-x.onnx --back --scale raw
  kedge export RUN --to numpy -o queries-to-y.npz --kind query
  kedge export RUN --to sentence-transformers --model intfloat/multilingual-e5-small -o e5-in-y
  kedge export RUN --to pairs -o pairs.tsv --spreadsheet-safe
  kedge export RUN x.vec y.vec --to embedding-atlas -o atlas.parquet
  kedge export COMMON --from bge --into minilm -o bge-to-minilm.npz     of a run by `kedge unite`
  kedge export COMMON --to pairs -o groups.tsv                          the keys of every item in all spaces

numpy:  a few float32 arrays; the lines of NumPy that use them are printed
onnx:   a model from `vectors` (any number of rows) to `translated`, for onnxruntime and the like; needs kedge[onnx]
sentence-transformers:  a folder with X's model and the map behind it, as one SentenceTransformer; without --model,
        the map alone, as a module for one; needs kedge[sentence-transformers]
pairs:  x, y and confidence, as `pairs.tsv` of RUN has them
embedding-atlas:  both spaces laid out together, with neighbours, partners and confidence; the command that opens it is
        printed; needs kedge[parquet]

Exported maps translate as `kedge translate` does, and refuse what it refuses: zeros, NaN and infinite values.""",
    )
    add_run(parser)
    for name, space in (("x", "source"), ("y", "target")):
        purpose = f"{space} space of RUN, only for embedding-atlas"
        parser.add_argument(name, metavar=name.upper(), type=space_name, nargs="?", help=purpose)
    kinds = (*dict.fromkeys(_KINDS.values()), _FOLDERS)
    parser.add_argument("--to", choices=kinds, help="what to write (by the suffix of FILE)")
    parser.add_argument(
        "-o", "--out", metavar="FILE", type=Path, required=True, help=f"file to write: {' '.join(_KINDS)}; or a folder"
    )
    parser.add_argument(
        "--model",
        metavar="NAME",
        help="for sentence-transformers: X's model, a name or folder, to put before the map",
    )
    parser.add_argument(
        "--documents",
        choices=("translate", "native"),
        default="translate",
        help="with --model: translate documents too, or leave them as X's model gives them (translate)",
    )
    parser.add_argument(
        "--from", dest="source", metavar="NAME", help="for a run by `kedge unite`: the space to translate from"
    )
    parser.add_argument(
        "--into", dest="target", metavar="NAME", help="for a run by `kedge unite`: the space to translate into"
    )
    add_direction_and_scale(parser)
    add_spreadsheet_safe(parser)
    add_rows_shown(parser)
    add_labels(parser)
    parser.add_argument(
        "--layout",
        choices=("tsne",),
        help="for embedding-atlas: lay out by t-SNE, which takes a minute or more; needs kedge[layout]",
    )
    add_limit(parser)
    add_overwrite(parser)


def run(arguments: argparse.Namespace) -> int:
    """Load, convert, write, and print how to use it."""
    from kedge.runs.description import holds_common_space

    arguments.of_many = holds_common_space(arguments.run_folder)
    if not arguments.of_many:
        refuse_ends(arguments, to="--into")
    if arguments.to == _FOLDERS:
        return _export_module(arguments)
    suffix = _check_target(arguments)
    if _KINDS[suffix] == "pairs":
        return _export_pairs(arguments)
    if _KINDS[suffix] == "embedding-atlas":
        return _export_atlas(arguments)
    return _export_translation(arguments, suffix)


def _export_translation(arguments: argparse.Namespace, suffix: str) -> int:
    """Write the translator, and print the lines that use it."""
    from kedge.cli.output import note, print_json, print_line
    from kedge.spaces.writing.atomic import atomic_path
    from kedge.tasks import export_bytes, export_lines

    translation, about, reason = _translation(arguments)
    contents = export_bytes(translation, about, suffix)
    with atomic_path(arguments.out) as temporary:
        temporary.write_bytes(contents)
    if about["map_verdict"] != "ok":
        note(f"for searching this run is {about['map_verdict']}: {reason}")
    dim_in, dim_out = translation.dims
    if arguments.json:
        described = {"out": str(arguments.out), "to": _KINDS[suffix], "bytes": len(contents)}
        sizes = {"dimensions_in": dim_in, "dimensions_out": dim_out, "length": float(translation.length)}
        print_json(described | sizes | {"about": about})
        return 0
    direction = f"{about['source']} to {about['target']}"
    print_line(f"translation of {direction}, {dim_in} to {dim_out} dimensions, in {arguments.out}")
    print_line("use it so:")
    print_line()
    for line in export_lines(translation, about, suffix, arguments.out.name).rstrip("\n").split("\n"):
        print_line(line)
    return 0


def _translation(arguments: argparse.Namespace) -> tuple[Translator, dict[str, str], str]:
    """The translator, what is known about it, and the reason for its verdict."""
    from kedge.estimators import load
    from kedge.many.common_space import CommonSpace
    from kedge.tasks import about_member_translation, about_translation

    if arguments.of_many:
        source, target = required_ends(arguments, to="--into")
        common = CommonSpace.load(arguments.run_folder)
        translator = common.translator(source=source, target=target, scale=arguments.scale)
        about = about_member_translation(common, source=source, target=target, scale=arguments.scale)
        return translator, about, common.health_.map.reason
    discovery = load(arguments.run_folder)
    how = {"back": arguments.back, "scale": arguments.scale, "kind": arguments.kind}
    note_length(discovery, arguments)
    return discovery.translator(**how), about_translation(discovery, **how), discovery.health_.searching.reason


def _export_module(arguments: argparse.Namespace) -> int:
    """Write a folder for sentence-transformers: the map, behind a model if one is named."""
    from kedge.cli.output import print_json, print_line
    from kedge.cli.output_files import require_free
    from kedge.errors import InputError
    from kedge.integrations.sentence_transformers import TranslationModule, open_model, translated_model
    from kedge.spaces.writing.atomic import atomic_folder, require_parent

    out: Path = arguments.out
    _check_options(arguments, _FOLDERS)
    require_parent(out)
    if out.is_file() or (out.is_dir() and any(out.iterdir())):
        raise InputError(f"{out}: already exists, and a folder is not overwritten; choose another name")
    require_free(arguments)
    run: Path | TranslationModule = arguments.run_folder
    if arguments.of_many:
        run = module = TranslationModule.from_translator(_translation(arguments)[0])
    else:
        how = {"back": arguments.back, "scale": arguments.scale, "kind": arguments.kind}
        module = TranslationModule.from_run(arguments.run_folder, **how)
    if arguments.back:
        run = module
    model = open_model(arguments.model) if arguments.model else None
    with atomic_folder(out) as temporary:
        if model is None:
            module.save(str(temporary))
        else:
            whole = translated_model(model, run, documents=arguments.documents, scale=arguments.scale)
            whole.save(str(temporary), create_model_card=False)
    if arguments.json:
        described = {"out": str(out), "to": _FOLDERS, "model": arguments.model, "documents": arguments.documents}
        sizes = {"dimensions_in": module.source_dim, "dimensions_out": module.target_dim}
        print_json(described | {"kind": arguments.kind} | sizes)
        return 0
    what = "a module that translates" if model is None else f"{arguments.model} and the map behind it"
    print_line(f"{what}, {module.source_dim} to {module.target_dim} dimensions, in {out}")
    print_line("use it so:")
    print_line()
    for line in (_MODULE_LINES if model is None else _MODEL_LINES).format(out=json.dumps(str(out))).split("\n"):
        print_line(line)
    return 0


_MODULE_LINES = """from kedge.integrations.sentence_transformers import TranslationModule

model.append(TranslationModule.load({out}))  # a SentenceTransformer of X's model"""
_MODEL_LINES = """from sentence_transformers import SentenceTransformer

model = SentenceTransformer({out}, trust_remote_code=True)  # runs the code of the installed kedge
# model.encode_query for queries, model.encode_document for documents"""


def _export_pairs(arguments: argparse.Namespace) -> int:
    """Write the pairs as a table."""
    from kedge.cli.output import print_json, print_line
    from kedge.estimators import load
    from kedge.spaces import write_table
    from kedge.spaces.writing.atomic import atomic_path

    if arguments.of_many:
        return _export_groups(arguments)
    discovery = load(arguments.run_folder)
    pairs = zip(discovery.pair_keys_, discovery.pair_confidence_, strict=True)
    with atomic_path(arguments.out) as temporary:
        write_table(
            temporary,
            ("x", "y", "confidence"),
            ((x, y, f"{confidence:.4f}") for (x, y), confidence in pairs),
            spreadsheet_safe=arguments.spreadsheet_safe,
        )
    if arguments.json:
        print_json({"out": str(arguments.out), "to": "pairs", "pairs": len(discovery.pairs_)})
    else:
        print_line(f"{len(discovery.pairs_)} pairs in {arguments.out}")
    return 0


def _export_groups(arguments: argparse.Namespace) -> int:
    """Write the groups of a run of many spaces as a table: those of all, or with --from and --into of two of them."""
    from kedge.cli.output import print_json, print_line
    from kedge.many.common_space import CommonSpace
    from kedge.spaces import write_table
    from kedge.spaces.writing.atomic import atomic_path

    common = CommonSpace.load(arguments.run_folder)
    names = list(common.members_)
    if arguments.source or arguments.target:
        names = [common.require_member(name).name for name in required_ends(arguments, to="--into")]
    places = [list(common.members_).index(name) for name in names]
    chosen = [
        (f"{sure:.4f}", *("" if keys[place] is None else str(keys[place]) for place in places))
        for keys, sure in zip(common.group_keys_, common.group_probability_, strict=True)
        if sum(keys[place] is not None for place in places) > 1
    ]
    with atomic_path(arguments.out) as temporary:
        header = ("probability", *names)
        write_table(temporary, header, chosen, spreadsheet_safe=arguments.spreadsheet_safe)
    if arguments.json:
        print_json({"out": str(arguments.out), "to": "pairs", "groups": len(chosen)})
    else:
        print_line(f"{len(chosen)} groups of {', '.join(names)} in {arguments.out}")
    return 0


def _export_atlas(arguments: argparse.Namespace) -> int:
    """Write both spaces as embedding-atlas reads them, and print how to open them."""
    from kedge.cli.output import print_json, print_line
    from kedge.errors import InputError
    from kedge.estimators import load
    from kedge.report import opening_command, require_layout, require_pyarrow, write_atlas
    from kedge.spaces import read_embeddings

    if arguments.of_many:
        raise InputError(
            f"{arguments.run_folder}: is a run of many spaces, and embedding-atlas shows two; `kedge report` draws all"
        )
    require_pyarrow()
    if arguments.layout:
        require_layout()
    discovery = load(arguments.run_folder)
    x, y = (read_embeddings(path, limit=arguments.limit) for path in (arguments.x, arguments.y))
    labels = read_labels(arguments, x, y)
    rows = write_atlas(
        arguments.out, discovery, x, y, max_rows=arguments.rows, labels=labels, layout=bool(arguments.layout)
    )
    command = opening_command(arguments.out)
    if arguments.json:
        print_json({"out": str(arguments.out), "to": "embedding-atlas", "rows": rows, "command": command})
    else:
        print_line(f"{rows} rows of both spaces in {arguments.out}; open them like this (pip install embedding-atlas):")
        print_line(command)
    return 0


def _check_target(arguments: argparse.Namespace) -> str:
    """The suffix of a file that can be written; what cannot is refused before any work."""
    from kedge.cli.output_files import require_free
    from kedge.errors import InputError
    from kedge.spaces.writing.atomic import require_target

    path: Path = arguments.out
    suffix = path.suffix.lower()
    if suffix not in _KINDS:
        raise InputError(
            f"{path}: the suffix {path.suffix!r} is not an export format; known are {', '.join(_KINDS)}, and folders "
            f"with --to {_FOLDERS}"
        )
    if arguments.to not in (None, _KINDS[suffix]):
        fitting = " or ".join(name for name, kind in _KINDS.items() if kind == arguments.to)
        raise InputError(f"{path}: --to {arguments.to} needs a name that ends in {fitting}, got {path.suffix}")
    _check_options(arguments, _KINDS[suffix])
    require_target(path)
    require_free(arguments)
    return suffix


def _check_options(arguments: argparse.Namespace, kind: str) -> None:
    """Refuse options that are for another kind of export."""
    from kedge.errors import InputError

    path: Path = arguments.out
    if arguments.spreadsheet_safe and kind != "pairs":
        raise InputError(f"{path}: --spreadsheet-safe is for tables, --to pairs; omit it")
    if arguments.model and kind != _FOLDERS:
        raise InputError(f"{path}: --model is for --to {_FOLDERS}; omit it")
    if arguments.model and arguments.kind != "text":
        raise InputError(
            f"{path}: with --model, queries get their own translation where RUN has one, and documents that of texts; "
            "omit --kind"
        )
    if arguments.documents != "translate" and not arguments.model:
        raise InputError(f"{path}: --documents is for --to {_FOLDERS} with --model; omit it")
    if kind == "embedding-atlas":
        if arguments.y is None:
            raise InputError(f"{path}: embedding-atlas shows the spaces too; give X and Y after RUN")
    elif arguments.x or arguments.labels:
        given = arguments.x or arguments.labels
        raise InputError(f"{given}: spaces and labels are for --to embedding-atlas; omit them")
