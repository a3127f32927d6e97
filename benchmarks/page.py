"""The page of a run: how long `kedge report` takes, how large the file is, and how soon it can be used in a browser.

    python benchmarks/page.py --data DIR            the easy pair, 20,000 words
    python benchmarks/page.py --data DIR --limit 5000

Checks first that the page shows the run: its pairs, and what a search in it finds. The browser is Chromium without a
GPU, driven by Playwright; times are the page's own, from the request on, each in a new window.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from playwright.sync_api import Browser, sync_playwright

from kedge import AnchorDiscovery, write_embeddings
from kedge.experiments.pairs_of_spaces import WORD_PAIRS, draw_task, load_pair
from kedge.tasks import search
from setting import add_data_option, describe_machine

READY = "html[data-ready]"
MOMENTS = {
    "first-contentful-paint": "the verdict is to be seen",
    "searchable": "search and tables work",
    "drawn": "both spaces are drawn",
}
QUIET = ("--no-sandbox", "--disable-background-networking", "--disable-component-update", "--disable-sync")


def main() -> None:
    """Discover once, then make the page with and without the truth, and open it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data_option(parser)
    parser.add_argument("--pair", choices=WORD_PAIRS, default="easy")
    parser.add_argument("--limit", type=int, help="only so many words")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--browser", default=os.environ.get("KEDGE_BROWSER") or shutil.which("chromium"))
    arguments = parser.parse_args()
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
    print("| what | seconds, median (least to most) |\n|---|---|")
    for options, seconds in making.items():
        print(f"| kedge report {' '.join(options)} | {spread(np.array(seconds))} |")
    for name, seconds in zip(MOMENTS.values(), opening.T, strict=True):
        print(f"| opened: {name} | {spread(seconds)} |")


def make(folder: Path, options: tuple[str, ...]) -> float:
    """Wall seconds of the whole command."""
    files = [str(folder / name) for name in ("run", "x.npz", "y.npz")]
    began = time.perf_counter()
    command = [sys.executable, "-m", "kedge", "report", *files, *options, "-o", str(folder / "page.html")]
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


def spread(seconds: np.ndarray) -> str:
    """Median, least and most."""
    return f"{np.median(seconds):.1f} ({seconds.min():.1f} to {seconds.max():.1f})"


if __name__ == "__main__":
    main()
