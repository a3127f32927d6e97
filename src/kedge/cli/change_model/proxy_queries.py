"""`kedge rehearse --proxy`: stand-ins for queries, made from the texts of the index; written, or encoded and used."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from kedge.cli.arguments import add_overwrite

if TYPE_CHECKING:
    from kedge.spaces import Embeddings
    from kedge.tasks.rehearsal import ProxyQueries


def add_proxy(parser: argparse.ArgumentParser) -> None:
    """Which texts stand-ins are made from, and what becomes of them."""
    group = parser.add_argument_group("stand-ins for queries, if you have none")
    group.add_argument(
        "--proxy",
        metavar="FILE",
        type=Path,
        help="texts of the index: .jsonl .csv .tsv .txt; a sentence of each is a query",
    )
    group.add_argument("--text-field", metavar="NAME", default="text", help="field or column of the texts (text)")
    group.add_argument("--key-field", metavar="NAME", help="field or column of Y's keys (row numbers)")
    group.add_argument("--title-field", metavar="NAME", help="field or column of titles, to use as queries instead")
    group.add_argument(
        "--proxy-model", metavar="NAME", help="X's model, to encode them as `kedge encode text` does, and rehearse"
    )
    group.add_argument("--prefix", metavar="TEXT", help="text to put before each, such as 'query: ' (none)")
    group.add_argument(
        "--proxy-out",
        metavar="NAME",
        type=Path,
        help="only write NAME.jsonl, for you to encode, and NAME.qrels.tsv; do not rehearse",
    )
    add_overwrite(group)


def check_proxy(arguments: argparse.Namespace) -> None:
    """Refuse at the start options that make no sense together."""
    from kedge.errors import InputError

    if arguments.proxy is None:
        for option in ("proxy_model", "proxy_out", "title_field", "key_field", "prefix"):
            if getattr(arguments, option) is not None:
                raise InputError(
                    f"--{option.replace('_', '-')} is for stand-ins; name their texts with --proxy, or omit it"
                )
        return
    if arguments.queries or arguments.relevant:
        raise InputError("--proxy makes queries of texts, and --queries gives real ones; omit one of the two")
    if (arguments.proxy_model is None) == (arguments.proxy_out is None):
        raise InputError(
            "--proxy: give either --proxy-model, X's model, which encodes the stand-ins, or --proxy-out, where they "
            "are written for your own encoder"
        )


def write_proxy_files(arguments: argparse.Namespace) -> int:
    """Write stand-ins and what they should find, and print what to do with them."""
    from kedge.cli.output import kedge_command, print_json, print_line
    from kedge.errors import InputError
    from kedge.tasks.rehearsal import write_proxies

    texts, relevant = (
        arguments.proxy_out.with_name(arguments.proxy_out.name + end) for end in (".jsonl", ".qrels.tsv")
    )
    for path in (texts, relevant):
        if path.exists() and not arguments.overwrite:
            raise InputError(f"{path}: already exists; choose another name, or replace it with --overwrite")
    proxies = _read(arguments)
    write_proxies(proxies, texts, relevant)
    if arguments.json:
        print_json(
            {"texts": str(texts), "relevant": str(relevant), "queries": len(proxies), "left_out": proxies.left_out}
        )
        return 0
    print_line(f"{len(proxies)} stand-ins for queries in {texts}, what they should find in {relevant}")
    if proxies.left_out:
        print_line(f"{proxies.left_out} texts have none: no second sentence, or one that others have too")
    encode = f"{kedge_command()} encode text {texts} --key-field id --model X-MODEL --prefix 'query: ' -o QUERIES"
    files = f"{arguments.run_folder} {arguments.x} {arguments.y}"
    print_line(f"next: {encode}")
    print_line(f"next: {kedge_command()} rehearse {files} --queries QUERIES --relevant {relevant}")
    return 0


def encode_proxies(arguments: argparse.Namespace, y: Embeddings) -> tuple[Embeddings, dict[str, str]]:
    """Stand-ins for the texts of the index, encoded by X's model, and what each should find."""
    from kedge.cli.output import note
    from kedge.errors import InputError
    from kedge.estimators.devices import resolve_device
    from kedge.spaces import Embeddings
    from kedge.spaces.encoders import load_text_encoder

    proxies = _read(arguments)
    kept = [(key, text) for key, text in zip(proxies.keys, proxies.texts, strict=True) if key in y.row_of]
    if not kept:
        raise InputError(
            f"{arguments.proxy}: none of its keys is a key of Y ({y.source}), such as {y.keys[0]!r}; name the field "
            "of the keys with --key-field"
        )
    note(f"{arguments.proxy}: {len(kept)} stand-ins for queries, encoded by {arguments.proxy_model}")
    encoder = load_text_encoder(arguments.proxy_model, device=str(resolve_device(arguments.device)))
    vectors = encoder.encode([(arguments.prefix or "") + text for _, text in kept])
    keys = [f"proxy:{key}" for key, _ in kept]
    return Embeddings(keys, vectors, str(arguments.proxy)), dict(zip(keys, (key for key, _ in kept), strict=True))


def _read(arguments: argparse.Namespace) -> ProxyQueries:
    from kedge.tasks.rehearsal import read_proxies

    return read_proxies(
        arguments.proxy,
        field=arguments.text_field,
        key_field=arguments.key_field,
        title_field=arguments.title_field,
    )
