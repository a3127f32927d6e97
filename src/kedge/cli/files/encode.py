"""`kedge encode`: vectors of images or texts, by a model of another library."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kedge.cli.arguments import add_command, add_command_group, add_device, add_output, positive
from kedge.cli.signals import was_interrupted

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kedge.spaces.encoders import Texts
    from kedge.spaces.encoders.shards import Setting

# Texts are sorted by length within this many batches, which saves padding.
_BATCHES_AT_ONCE = 8


def add_parser(commands: Any) -> None:
    """Describe the command and its two kinds."""
    kinds = add_command_group(
        commands,
        "encode",
        "write vectors of texts or images, by a model",
        "Write vectors of images or texts, by a model. A run that was stopped continues where it was.",
        """  kedge encode images photos --model efficientnet-lite:0 -o photos.npz
  kedge encode text reviews.jsonl --model roberta-base --pooling cls -o reviews.npz
  kedge encode text --help     more about one kind, such as --json""",
        "kind",
    )
    _add_images(kinds)
    _add_text(kinds)


def _add_images(kinds: Any) -> None:
    parser = add_command(
        kinds,
        "images",
        run_images,
        "encode the images under a folder",
        "Encode all image files under a folder; keys are their paths within it.",
        """  kedge encode images photos --model efficientnet-lite:0 -o photos.npz
  kedge encode images photos --model timm:vit_base_patch16_224 -o photos.safetensors --device cuda
  kedge encode images photos --model torchvision:resnet50 -o photos.npz --skip-bad
  kedge encode images photos --model facebook/dinov2-small -o photos.npz""",
    )
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="folder of images, subfolders included")
    parser.add_argument(
        "--model",
        metavar="NAME",
        required=True,
        help="timm:NAME, torchvision:NAME, efficientnet-lite:0 (or 1, 2), or a transformers model: hub name or folder",
    )
    parser.add_argument("--skip-bad", action="store_true", help="leave out files that cannot be read, and count them")
    _add_common(parser)


def _add_text(kinds: Any) -> None:
    parser = add_command(
        kinds,
        "text",
        run_text,
        "encode the texts of a file",
        "Encode the texts of a file.",
        """  kedge encode text reviews.jsonl.gz --model roberta-base --pooling cls -o reviews.npz
  kedge encode text reviews.csv --field body --key-field id --model ./my-model -o reviews.npz
  kedge encode text lines.txt --model sentence-transformers/all-MiniLM-L6-v2 -o lines.npz
  kedge encode text asked.txt --model intfloat/multilingual-e5-small --prefix 'query: ' -o asked.npz
  kedge encode text test.jsonl --model glove.vec --fit-on train.jsonl -o test.npz

--prefix (or --prompt) is put before every text as it is, including the space at its end. Many models need one, and a
different one for queries than for passages.""",
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="texts: .jsonl .csv .tsv .txt (each also .gz)")
    parser.add_argument("--field", metavar="NAME", default="text", help="field or column of the texts (text)")
    parser.add_argument("--key-field", metavar="NAME", help="field or column of the keys (row numbers)")
    parser.add_argument(
        "--model",
        metavar="NAME",
        required=True,
        help="a transformers or sentence-transformers model (hub name or folder), or a file of word vectors",
    )
    parser.add_argument(
        "--pooling", choices=("cls", "mean"), help="for transformers: first token, or mean of all tokens (mean)"
    )
    parser.add_argument(
        "--prefix",
        "--prompt",
        metavar="TEXT",
        help="text to put before every text, such as 'query: ' (none)",
    )
    parser.add_argument("--max-length", metavar="N", type=positive, help="cut texts to N tokens (the model's limit)")
    parser.add_argument(
        "--fit-on", metavar="FILE", type=Path, help="for word vectors: texts to learn word weights from (FILE itself)"
    )
    parser.add_argument(
        "--skip-empty", action="store_true", help="leave out texts without any (known) word, and count them"
    )
    _add_common(parser)


def _add_common(parser: argparse.ArgumentParser) -> None:
    add_output(parser, stores=False)
    add_device(parser)
    parser.add_argument("--batch-size", metavar="N", type=positive, default=32, help="encode N at once (32)")
    parser.add_argument("--limit", metavar="N", type=positive, help="encode only the first N")
    parser.add_argument("--restart", action="store_true", help="start over instead of continuing unfinished work")


class _Job(NamedTuple):
    """Something to encode: how, what that depends on, and what to call it in messages."""

    what: str
    keys: Sequence[str]
    items: Sequence[Any]
    encode: Callable[[Sequence[Any]], tuple[NDArray[np.bool_], NDArray[np.float32]]]
    step: int
    settings: Mapping[str, Setting]
    inputs: str
    skip: bool
    missing: Callable[[int], str]  # the message for an item without a vector


def run_images(arguments: argparse.Namespace) -> int:
    """Encode images and write."""
    from kedge.cli.output_files import require_free_space
    from kedge.estimators.devices import resolve_device
    from kedge.spaces.encoders import digest_of_files, find_images, load_image_encoder

    require_free_space(arguments)
    keys = find_images(arguments.folder, limit=arguments.limit)
    paths = [arguments.folder / key for key in keys]
    device = str(resolve_device(arguments.device))
    with _enough_memory():
        encoder = load_image_encoder(arguments.model, batch_size=arguments.batch_size, device=device)
    return _run(
        arguments,
        _Job(
            what="images",
            keys=keys,
            items=paths,
            encode=lambda some: encoder.encode_files(some, skip_bad=arguments.skip_bad),
            step=arguments.batch_size,
            settings=_settings("images", arguments.model),
            inputs=digest_of_files(paths),
            skip=arguments.skip_bad,
            missing=lambda row: f"{paths[row]}: could not be read; remove it, or pass --skip-bad",
        ),
    )


def run_text(arguments: argparse.Namespace) -> int:
    """Encode texts and write."""
    import numpy as np

    from kedge.cli.output_files import require_free_space
    from kedge.errors import InputError
    from kedge.spaces.encoders import digest, read_texts
    from kedge.spaces.files import is_known_format

    require_free_space(arguments)
    read = read_texts(arguments.file, field=arguments.field, key_field=arguments.key_field, limit=arguments.limit)
    static = is_known_format(arguments.model) and not Path(arguments.model).is_dir()
    if not static and arguments.fit_on is not None:
        raise InputError(f"--fit-on is for files of word vectors, but --model is {arguments.model!r}; omit it")
    settings = _settings("text", arguments.model)
    with _enough_memory():
        if static:
            vectors_of, fitted_on = _static(arguments, read)
            settings |= {"fitted on": fitted_on}
        else:
            vectors_of = _neural(arguments)
            settings |= {"pooling": arguments.pooling, "max_length": arguments.max_length}
            settings |= {"prefix": arguments.prefix} if arguments.prefix else {}
    prefix = arguments.prefix or ""
    reason = "has no word of the table" if static else "the text is empty"

    def missing(row: int) -> str:
        return f"{read.source}, line {read.lines[row]}: {reason}; remove it, or pass --skip-empty"

    def encode(rows: Sequence[int]) -> tuple[NDArray[np.bool_], NDArray[np.float32]]:
        written = [row for row in rows if read.texts[row].strip()]
        vectors = (
            vectors_of([prefix + read.texts[row] for row in written]) if written else np.zeros((0, 0), dtype=np.float32)
        )
        full = vectors.any(axis=1)
        found = np.isin(rows, np.asarray(written, dtype=np.int64)[full])
        if not found.all() and not arguments.skip_empty:
            raise InputError(missing(rows[int(np.argmin(found))]))
        return found, vectors[full]

    return _run(
        arguments,
        _Job(
            what="texts",
            keys=read.keys,
            items=range(len(read)),
            encode=encode,
            step=arguments.batch_size * _BATCHES_AT_ONCE,
            settings=settings,
            inputs=digest([*read.keys, *read.texts]),
            skip=arguments.skip_empty,
            missing=missing,
        ),
    )


def _static(arguments: argparse.Namespace, read: Texts) -> tuple[Callable[[Sequence[str]], NDArray[np.float32]], str]:
    """The encoder of a file of word vectors, and a digest of the texts it was fitted on."""
    from kedge.errors import InputError
    from kedge.spaces import read_embeddings
    from kedge.spaces.encoders import StaticTextEncoder, digest, read_texts

    for option in ("pooling", "max_length", "prefix"):
        if getattr(arguments, option) is not None:
            raise InputError(
                f"--{option.replace('_', '-')} is for transformers models, but --model {arguments.model} is a file "
                "of word vectors; omit it"
            )
    texts = read.texts if arguments.fit_on is None else read_texts(arguments.fit_on, field=arguments.field).texts
    return StaticTextEncoder(read_embeddings(arguments.model)).fit(texts).encode, digest(texts)


def _neural(arguments: argparse.Namespace) -> Callable[[Sequence[str]], NDArray[np.float32]]:
    from kedge.estimators.devices import resolve_device
    from kedge.spaces.encoders import load_text_encoder

    return load_text_encoder(
        arguments.model,
        pooling=arguments.pooling,
        max_length=arguments.max_length,
        batch_size=arguments.batch_size,
        device=str(resolve_device(arguments.device)),
    ).encode


def _settings(kind: str, model: str) -> dict[str, Setting]:
    """What the vectors depend on; not batch size and device, which may change when a run continues."""
    from kedge import __version__
    from kedge.spaces.encoders import digest_of_model

    return {"kedge": __version__, "kind": kind, "model": model, "model files": digest_of_model(model)}


def _run(arguments: argparse.Namespace, job: _Job) -> int:
    """Encode in shards, write the output, print what was written."""
    import numpy as np

    from kedge.cli.output import note, print_json, print_line
    from kedge.cli.progress import counting_bar
    from kedge.errors import InputError
    from kedge.spaces import Embeddings, write_embeddings
    from kedge.spaces.encoders import encode_in_shards, partial_folder, remove_shards

    folder = partial_folder(arguments.out)
    resumed: list[int] = []
    try:
        with counting_bar(f"encoding {job.what}") as draw, _enough_memory():

            def on_progress(done: int, total: int) -> None:
                if not resumed:
                    resumed.append(done)
                    if done:
                        note(f"going on after the {done} of {total} {job.what} in {folder}")
                draw(done, total)

            found, vectors = encode_in_shards(
                job.encode,
                job.items,
                folder,
                settings=job.settings,
                inputs=job.inputs,
                step=job.step,
                restart=arguments.restart,
                on_progress=on_progress,
            )
    except BaseException as error:
        if was_interrupted(error):
            note(f"what is finished stays in {folder}; the same command goes on from there")
        raise
    missing = np.flatnonzero(~found)
    if len(missing) and not job.skip:  # left out by an earlier run that had permission
        raise InputError(job.missing(int(missing[0])))
    if not len(vectors):
        raise InputError(f"none of the {len(found)} {job.what} gave a vector; {job.missing(0)}")
    keys = [job.keys[row] for row in np.flatnonzero(found).tolist()]
    write_embeddings(Embeddings(keys, vectors, f"vectors of {job.what}"), arguments.out)
    remove_shards(folder)
    if arguments.json:
        print_json(
            {
                "out": str(arguments.out),
                "rows": len(vectors),
                "dimensions": vectors.shape[1],
                "skipped": len(missing),
                "resumed": resumed[0],
            }
        )
    else:
        skipped = f", {len(missing)} {job.what} left out" if len(missing) else ""
        print_line(f"{job.what}: {len(vectors)} x {vectors.shape[1]} in {arguments.out}{skipped}")
    return 0


@contextmanager
def _enough_memory() -> Iterator[None]:
    """Say what helps if memory, of the machine or of a GPU, is exhausted."""
    from kedge.errors import InputError

    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and "memory" not in str(error):
            raise
        raise InputError("not enough memory; give a smaller --batch-size or a smaller model") from error
