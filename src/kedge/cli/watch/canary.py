"""`kedge canary`: a few fixed texts, encoded now and again later."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kedge.cli.arguments import FORMATS, add_command, add_command_group, add_device, add_output, space_name

if TYPE_CHECKING:
    from kedge.spaces import Embeddings


def add_parser(commands: Any) -> None:
    """Describe the command and its three kinds."""
    kinds = add_command_group(
        commands,
        "canary",
        "check that a model still gives the vectors it gave",
        "Keep the vectors of a few fixed texts, and check later that the model still gives the same.",
        """  kedge canary make --model ./my-model -o canary.npz
  kedge canary check canary.npz --model ./my-model
  kedge canary texts > texts.jsonl                      to encode by an API; then --vectors FILE instead of --model
  kedge canary check --help     more about one action, such as --json""",
        "action",
    )
    _add_make(kinds)
    _add_check(kinds)
    _add_texts(kinds)


def _add_make(kinds: Any) -> None:
    parser = add_command(
        kinds,
        "make",
        run_make,
        "encode the texts and keep their vectors",
        "Encode the texts and keep their vectors, with the texts as keys.",
        """  kedge canary make --model sentence-transformers/all-MiniLM-L6-v2 -o canary.npz
  kedge canary make --vectors from-the-api.npy -o canary.npz
  kedge canary make --texts my-texts.txt --model ./my-model -o canary.npz
  kedge canary make --model intfloat/multilingual-e5-small --prefix 'query: ' -o canary.npz

--prefix is put before every text as it is, as `kedge encode text` does. The canary keeps the texts with it, so that
`kedge canary check` encodes the same.""",
    )
    _add_source(parser)
    parser.add_argument(
        "--prefix", metavar="TEXT", help="with --model: text to put before each, such as 'query: ' (none)"
    )
    parser.add_argument("--texts", metavar="FILE", type=Path, help="your own texts: .jsonl .csv .tsv .txt (kedge's 64)")
    add_output(parser, stores=False)


def _add_check(kinds: Any) -> None:
    parser = add_command(
        kinds,
        "check",
        run_check,
        "encode them again and compare",
        "Encode a canary's texts again and compare with the kept vectors.",
        """  kedge canary check canary.npz --model ./my-model
  kedge canary check canary.npz --vectors from-the-api-today.npy --json

Exit code 3 means that it is not the same model at this or another precision: rotated, fine-tuned, another model, or
only some texts changed (`kedge drift --help` lists the verdicts).""",
    )
    parser.add_argument("canary", metavar="CANARY", type=space_name, help="file from `kedge canary make`")
    _add_source(parser)


def _add_texts(kinds: Any) -> None:
    add_command(
        kinds,
        "texts",
        run_texts,
        "print the texts, as lines of JSON",
        "Print the texts as lines of JSON, as `kedge encode text` reads them: one of them holds a line break.",
        "  kedge canary texts > texts.jsonl\n  kedge canary texts --json",
    )


def _add_source(parser: argparse.ArgumentParser) -> None:
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument("--model", metavar="NAME", help="model, as for `kedge encode text`")
    group.add_argument(
        "--vectors",
        metavar="FILE",
        type=space_name,
        help=f"the texts' vectors, in their order or with the texts as keys: {FORMATS}",
    )
    parser.add_argument("--pooling", choices=("cls", "mean"), help="for transformers: first token, or mean (mean)")
    add_device(parser)


def run_make(arguments: argparse.Namespace) -> int:
    """Encode, or take the vectors, and write."""
    from kedge.cli.output import print_json, print_line
    from kedge.cli.output_files import require_free_space
    from kedge.errors import InputError
    from kedge.spaces import write_embeddings
    from kedge.spaces.encoders import read_texts
    from kedge.tasks import CANARY_TEXTS

    require_free_space(arguments)
    if arguments.prefix is not None and arguments.vectors is not None:
        raise InputError("--prefix is for --model, and --vectors are encoded already; omit it")
    given = CANARY_TEXTS if arguments.texts is None else read_texts(arguments.texts).texts
    texts = [(arguments.prefix or "") + text for text in given]
    canary = _vectors_of(arguments, texts)
    write_embeddings(canary, arguments.out)
    if arguments.json:
        print_json({"out": str(arguments.out), "texts": len(canary), "dimensions": canary.dim})
    else:
        print_line(f"canary: {len(canary)} texts x {canary.dim} in {arguments.out}")
    return 0


def run_check(arguments: argparse.Namespace) -> int:
    """Encode again, compare, and print the verdict."""
    from kedge.cli.watch.drift import print_drift
    from kedge.spaces import read_embeddings
    from kedge.tasks import check_canary

    canary = read_embeddings(arguments.canary)
    return print_drift(check_canary(canary, _vectors_of(arguments, list(canary.keys))), as_json=arguments.json)


def run_texts(arguments: argparse.Namespace) -> int:
    """Print the texts."""
    import json

    from kedge.cli.output import print_json, print_line
    from kedge.tasks import CANARY_TEXTS

    if arguments.json:
        print_json({"texts": list(CANARY_TEXTS)})
        return 0
    for text in CANARY_TEXTS:
        print_line(json.dumps({"text": text}, ensure_ascii=False))
    return 0


def _vectors_of(arguments: argparse.Namespace, texts: Sequence[str]) -> Embeddings:
    """The texts' vectors, with the texts as keys."""
    from kedge.errors import InputError
    from kedge.spaces import Embeddings, read_embeddings
    from kedge.spaces.files import is_known_format
    from kedge.tasks import as_canary

    if arguments.vectors is not None:
        if arguments.pooling is not None:
            raise InputError("--pooling is for --model, and --vectors are encoded already; omit it")
        return as_canary(texts, read_embeddings(arguments.vectors))
    if is_known_format(arguments.model) and not Path(arguments.model).is_dir():
        raise InputError(
            f"--model {arguments.model} is a file of vectors, and a canary watches a model; give --vectors for vectors "
            "of the texts that exist already"
        )
    from kedge.estimators.devices import resolve_device
    from kedge.spaces.encoders import load_text_encoder

    encoder = load_text_encoder(
        arguments.model, pooling=arguments.pooling, device=str(resolve_device(arguments.device))
    )
    return as_canary(texts, Embeddings([str(row) for row in range(len(texts))], encoder.encode(texts), arguments.model))
