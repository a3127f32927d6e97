"""The page of a run: how long `kedge report` takes, how large the file is, and how soon a browser can use it.

    python benchmarks/page.py --data DIR            the easy pair, 20,000 words
    python benchmarks/page.py --data DIR --limit 5000
    python benchmarks/page.py --data DIR --explore 1000000     the live form, with so many made-up rows per space

First checks that the page shows the run: its pairs, and what a search in it finds. The browser is Chromium without a
GPU, driven by Playwright; times are the page's own, from the request on, each in a new window.

With `--explore`, Y is X turned, with noise; the run was fitted to the first 5,000 rows and is then treated as if it had
found all pairs. Measured are the start with the spaces in memory, the memory of the process, and the time of questions.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from playwright.sync_api import Browser, sync_playwright

from kedge import AnchorDiscovery, Embeddings, write_embeddings
from kedge.report import Explorer
from kedge.tasks import search
from paper.pairs_of_spaces import WORD_PAIRS, draw_task, load_pair
from setting import add_data_option, describe_machine, median_and_range, new_parser, peak_megabytes, timed

READY = "html[data-ready]"
MOMENTS = {
    "first-contentful-paint": "the verdict is to be seen",
    "searchable": "search and tables work",
    "drawn": "both spaces are drawn",
    "live": "their points can be pointed at",
}
QUIET = ("--no-sandbox", "--disable-background-networking", "--disable-component-update", "--disable-sync")


def main() -> None:
    """Discover once, then make the page with and without the truth, and open it."""
    parser = new_parser(__doc__)
    add_data_option(parser)
    parser.add_argument("--pair", choices=WORD_PAIRS, default="easy")
    parser.add_argument("--limit", type=int, help="only so many words")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--explore", type=int, metavar="ROWS", help="try the live form, with so many rows per space")
    parser.add_argument("--browser", default=os.environ.get("KEDGE_BROWSER") or shutil.which("chromium"))
    arguments = parser.parse_args()
    if arguments.explore:
        explore(arguments.explore, arguments.repeats)
        return
    task = draw_task(load_pair(arguments.data, arguments.pair, arguments.limit), 0)
    discovery = AnchorDiscovery(device="cpu").fit(task.x, task.y, task.seeds, task.anchors)
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as driver:
        folder = Path(scratch)
        discovery.save(folder / "run")
        write_embeddings(task.x, folder / "x.npz")
        write_embeddings(task.y, folder / "y.npz")
        making = {
            options: [make(folder, options) for _ in range(arguments.repeats)] for options in ((), ("--gold", "keys"))
        }
        page = folder / "page.html"
        browser = driver.chromium.launch(executable_path=arguments.browser, args=list(QUIET))
        check(browser, page, discovery, search(discovery, task.x, task.y, [task.anchors[-1]], 8))
        opening = np.array([opened(browser, page) for _ in range(arguments.repeats)]) / 1000
        size = page.stat().st_size
    print(f"{describe_machine('cpu')}, {arguments.pair} pair, {len(task.x)} words, {size / 1e6:.1f} MB\n")
    print("| what | seconds, median (min to max) |\n|---|---|")
    for options, seconds in making.items():
        print(f"| kedge report {' '.join(options)} | {median_and_range(seconds)} |")
    for name, seconds in zip(MOMENTS.values(), opening.T, strict=True):
        print(f"| opened: {name} | {median_and_range(seconds)} |")


def explore(rows: int, repeats: int, dim: int = 100, fitted_to: int = 5000) -> None:
    """Start the live form, and ask it."""
    chance = np.random.default_rng(0)
    centers = chance.standard_normal((2000, dim), dtype=np.float32)
    x = centers[chance.integers(len(centers), size=rows)] + 0.7 * chance.standard_normal((rows, dim), dtype=np.float32)
    rotation = np.linalg.qr(chance.standard_normal((dim, dim)))[0].astype(np.float32)
    y = x @ rotation + 0.1 * chance.standard_normal((rows, dim), dtype=np.float32)
    keys = [f"key {row}" for row in range(rows)]
    some = (Embeddings(keys[:fitted_to], side[:fitted_to]) for side in (x, y))
    discovery = AnchorDiscovery(device="cpu").fit(*some, [(row, row) for row in range(1000)])
    discovery.pairs_ = np.stack([np.arange(rows)] * 2, axis=1)
    discovery.pair_keys_ = list(zip(keys, keys, strict=True))
    discovery.pair_confidence_ = np.linspace(1, 0.5, rows, dtype=np.float32)
    discovery.x_.unmatched_keys, discovery.y_.unmatched_keys = [], []
    began = time.perf_counter()
    explorer = Explorer(discovery, Embeddings(keys, x, "x"), Embeddings(keys, y, "y"), run="RUN", max_rows=20_000)
    started = time.perf_counter() - began
    row = str(rows - 1)
    _, near_y = explorer.neighbours("x", row)
    assert near_y[0]["key"] == explorer.find(keys[-1])[0]["key"] == keys[-1]
    print(
        f"{describe_machine('cpu')}, {rows} rows of {dim} dimensions per space, peak {peak_megabytes('cpu'):.0f} MB\n"
    )
    print("| what | seconds, median (min to max) |\n|---|---|")
    print(f"| start | {started:.1f} |")
    questions = {
        "keys that fit": lambda: explorer.find(keys[-1]),
        "neighbours of a row": lambda: explorer.neighbours("x", row),
        "the picture for other anchors": lambda: explorer.view("found", "50", ""),
    }
    for name, ask in questions.items():
        print(f"| {name} | {median_and_range([timed(ask)[0] for _ in range(repeats)], 2)} |")


def make(folder: Path, options: tuple[str, ...]) -> float:
    """Wall seconds of the whole command."""
    run, x, y, page = (str(folder / name) for name in ("run", "x.npz", "y.npz", "page.html"))
    began = time.perf_counter()
    command = [sys.executable, "-m", "kedge", "report", run, x, y, *options, "-o", page, "--overwrite"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def check(browser: Browser, path: Path, discovery: AnchorDiscovery, found: dict) -> None:
    """The page lists the pairs, and finds what the library finds."""
    page = browser.new_page()
    page.goto(path.as_uri())
    page.wait_for_selector(READY)
    assert page.locator("#range").inner_text().endswith(f"of {len(discovery.pairs_):,}")
    ((key, neighbours),) = found.items()
    page.fill("#key", key)
    page.press("#key", "Enter")
    page.wait_for_selector("#neighbours:not([hidden])")
    assert page.locator("#near-y bdi").all_inner_texts() == [near.key for near in neighbours]
    page.close()


def opened(browser: Browser, path: Path) -> list[float]:
    """Milliseconds from asking for the page until each of the moments."""
    page = browser.new_context().new_page()
    page.goto(path.as_uri())
    page.wait_for_selector(READY)
    times = [page.evaluate("(name) => performance.getEntriesByName(name)[0].startTime", name) for name in MOMENTS]
    page.context.close()
    return times


if __name__ == "__main__":
    main()
