"""The page in a real browser: Debian's Chromium (or any other that is installed), driven by Playwright.

Screenshots are kept in `build/screenshots`, or where KEDGE_SCREENSHOTS says, to be looked at.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import numpy as np
import pytest

from kedge import AnchorDiscovery, Embeddings
from kedge.report import Explorer, GoldComparison, RowTexts, serve, write_comparison, write_report
from kedge.spaces.pairs import read_table
from kedge.tasks import Truth, compare_runs, evaluate, gold_by_key, rehearse, search

SCREENSHOTS = Path(os.environ.get("KEDGE_SCREENSHOTS", Path(__file__).parents[1] / "build" / "screenshots"))
FLAGS = [
    "--no-sandbox",  # for root in a container
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-quic",
    "--no-first-run",
]
WIDE, NARROW = {"width": 1280, "height": 900}, {"width": 400, "height": 844}
HOSTILE = [
    "<img src=x onerror=window.broken=1>",
    '"><script>window.broken=1</script>',
    "</script><script>window.broken=1</script>",
    "{{ 7 * 7 }}",
    "&lt;b&gt;bold&lt;/b&gt;",
    "<b>bold</b>",
    "quote ' and \" and `",
    "tab\there",
    "line\nbreak",
    "back\\slash",
    "🦆🏴‍☠️",
    "שלום עולם",
    "مرحبا",
    "ﬁligature",
    "__proto__",
    "constructor",
    "12",
    "e\u0301",
    "bell \x07 and \x1b[31m",
    "Polish",
    "polish",
    "a" * 300,
]
INVISIBLE = {" ": '" "', "\u200b": '"\\u200b"'}


def find_browser() -> str | None:
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    return os.environ.get("KEDGE_BROWSER") or next(filter(None, map(shutil.which, names)), None)


@pytest.fixture(scope="module")
def chromium():
    """A function that starts the browser, with more flags if need be."""
    pytest.importorskip("plotly", reason="the page needs kedge[report]")
    playwright = pytest.importorskip("playwright.sync_api", reason="the browser tests need playwright")
    path = find_browser()
    if path is None:
        pytest.skip("no browser: install chromium, or name one by KEDGE_BROWSER")
    with playwright.sync_playwright() as driver:
        started = []

        def start(*flags):
            started.append(driver.chromium.launch(executable_path=path, args=[*FLAGS, *flags]))
            return started[-1]

        yield start
        for browser in started:
            browser.close()


@pytest.fixture(scope="module")
def browser(chromium):
    return chromium()


def is_trouble(message):
    """An error, but not what Chromium says where the server refuses a question, or has no image of a key."""
    return message.type == "error" and not any(f"status of {code}" in message.text for code in (400, 404))


@pytest.fixture
def visit(browser):
    """A function that opens an address, and at the end of the test sees to it that nothing went wrong in the page."""
    troubles, requests, contexts = [], [], []

    def opened(address, viewport=WIDE, scheme="light", by=browser):
        context = by.new_context(viewport=viewport, color_scheme=scheme, accept_downloads=True)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: troubles.append(message.text) if is_trouble(message) else None)
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("dialog", lambda dialog: troubles.append(f"dialog: {dialog.message}"))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(address)
        page.wait_for_selector("html[data-ready]", timeout=60_000)
        assert page.locator("#trouble").is_hidden()
        return page

    yield opened
    for context in contexts:
        context.close()
    assert troubles == []
    assert [url for url in requests if not url.startswith(("file:", "data:", "blob:", "http://127.0.0.1:"))] == []


@pytest.fixture(scope="module")
def report(tmp_path_factory, fitted, words):
    """The address of the page of 2,000 words, with the truth and a rehearsal."""
    gold = gold_by_key(*words)
    evaluation = evaluate(fitted, *words, gold, complete=True, device="cpu")
    path = tmp_path_factory.mktemp("browser") / "report.html"
    truth = GoldComparison(evaluation, Truth(*words, gold, complete=True))
    rehearsal = rehearse(fitted, *words, gold, device="cpu")
    labels = {key: f"{len(key)} letters" for key in words[0].keys[:1900]}
    write_report(path, fitted, *words, gold=truth, rehearsal=rehearsal, labels=labels)
    return path.as_uri()


@pytest.fixture(scope="module")
def hostile(tmp_path_factory, rotated_pair):
    """The address of a page whose keys try to be more than text, and the fitted discovery behind it."""
    x, y = rotated_pair
    path = tmp_path_factory.mktemp("hostile") / "report.html"
    discovery = AnchorDiscovery(n_anchors=30, device="cpu").fit(x, y, [(row, row) for row in range(100, 160)])
    assert set(HOSTILE) <= {left for left, _ in discovery.pair_keys_}
    write_report(path, discovery, x, y)
    return path.as_uri()


@pytest.fixture(scope="module")
def rotated_pair():
    """A space and its rotation, of which the last 20 rows are others."""
    chance = np.random.default_rng(0)
    x = chance.standard_normal((400, 16)).astype(np.float32) * np.geomspace(1, 0.2, 16, dtype=np.float32)
    rotation, _ = np.linalg.qr(chance.standard_normal((16, 16)))
    odd = [*HOSTILE, *INVISIBLE]
    keys = odd + [f"row {row}" for row in range(len(odd), 400)]
    y = x @ rotation
    y[-20:] = chance.standard_normal((20, 16)) * np.geomspace(0.2, 1, 16)
    return Embeddings(keys, x, "<i>x</i>.npz"), Embeddings(keys, y, "y & z.npz")


def require_accessible(page):
    """Fail on what axe-core calls serious or critical."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe-playwright-python")
    found = axe.Axe().run(page)
    bad = [each for each in found.response["violations"] if each["impact"] in ("serious", "critical")]
    assert not bad, found.generate_report()


def wait_until(read, holds, seconds=30.0):
    """Read until what is read is as it should be: what is packed is unpacked when first asked for, which takes time."""
    deadline = time.monotonic() + seconds
    while not holds(read()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert holds(read()), f"after {seconds:g} s it is still {read()!r}"


def wait_for_text(page, selector, holds):
    wait_until(page.locator(selector).inner_text, holds)


def cells(page, column):
    return page.locator(f"#table tbody td:nth-child({column})").all_inner_texts()


def annotation(page, side):
    return page.locator(f"#plot-{side} .annotation-text").all_text_contents()


def point_at(page, side, row):
    """Move the mouse to where a row of X or Y is drawn."""
    place = page.evaluate(
        """([side, row]) => {
            const plot = document.getElementById(`plot-${side}`);
            plot.scrollIntoView({ block: "center", behavior: "instant" });
            const trace = plot.data.find((each) => Array.from(each.customdata).includes(row));
            const index = Array.from(trace.customdata).indexOf(row);
            const { xaxis, yaxis } = plot._fullLayout;
            const { x, y } = plot.getBoundingClientRect();
            return [x + xaxis._offset + xaxis.l2p(trace.x[index]), y + yaxis._offset + yaxis.l2p(trace.y[index])];
        }""",
        [side, row],
    )
    page.mouse.move(5, 5)
    page.evaluate("document.getElementById('pointed').textContent = ''")
    page.mouse.move(*place, steps=4)
    page.wait_for_function("document.getElementById('pointed').textContent")
    page.wait_for_timeout(200)  # it may have passed over others on its way


@pytest.mark.parametrize("viewport", [WIDE, pytest.param(NARROW, marks=pytest.mark.thorough)], ids=["wide", "narrow"])
@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.thorough)])
def test_it_reads_well_and_is_accessible(visit, report, viewport, scheme):
    page = visit(report, viewport, scheme)
    assert page.get_by_role("heading", level=1).inner_text() == "Did it work?"
    answers = [heading.inner_text().split() for heading in page.locator(".answer h2").all()]
    assert answers == [["For", "searching:", "OK"], ["For", "pairs:", "OK"]]
    assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]  # nothing sticks out
    for link in page.locator("header a").all():  # the menu is whole
        box = link.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= viewport["width"]
    page.get_by_label("Key of X or Y").fill("water")
    page.keyboard.press("Enter")
    page.wait_for_selector("#neighbours:not([hidden])")
    page.get_by_text("Settings, inputs, versions").click()
    require_accessible(page)
    page.evaluate("scrollTo(0, 0)")
    page.screenshot(path=SCREENSHOTS / f"report-{viewport['width']}-{scheme}.png", full_page=True)


SKETCHED = """async () => {
  const { data } = await openSource();
  const wipe = sketch(data);
  const canvases = [...document.querySelectorAll("canvas.sketch")];
  const shares = canvases.map((canvas, number) => {
    const pen = canvas.getContext("2d");
    const places = data.views[data.shown].places.slice(2 * number);
    const [across, down] = [canvas.width, canvas.height].map((size) => size / 2);
    const scale = Math.min(across, down) / REACH;
    const painted = places[0].filter((x, row) => (
      pen.getImageData(Math.floor(across + scale * x), Math.floor(down - scale * places[1][row]), 1, 1).data[3] > 0
    ));
    return painted.length / places[0].length;
  });
  wipe();
  return shares;
}"""


def test_the_spaces_are_sketched_until_they_can_be_pointed_at(visit, report):
    """Every point is where the library draws it later, and nothing of the sketch stays."""
    page = visit(report)
    assert page.locator("canvas.sketch").count() == 0
    marks = page.evaluate("performance.getEntriesByType('mark').map(({ name }) => name)")
    assert marks[:3] == ["searchable", "drawn", "live"]
    assert min(page.evaluate(SKETCHED)) > 0.999
    assert page.locator("canvas.sketch").count() == 0


def test_search_finds_and_shows_neighbours_in_both_spaces(visit, report, fitted, words):
    page = visit(report)
    page.get_by_label("Key of X or Y").press_sequentially("WATE")
    hits = page.locator("#hits button")
    wait_until(hits.first.inner_text, lambda text: text == "water")
    hits.first.press("Enter")  # by keyboard alone
    page.wait_for_selector("#neighbours:not([hidden])")
    wait_for_text(page, "#sought", lambda text: text == "water in X")
    wait_for_text(page, "#partner", lambda text: text.startswith("Its partner: water, confidence "))
    listed = page.locator("#near-y li").all_inner_texts()
    expected = search(fitted, *words, ["water"], 8)["water"]
    assert [line.split()[:2] for line in listed] == [[near.key, f"{near.similarity:.2f}"] for near in expected]
    assert listed[0].endswith("partner")
    assert page.locator("#near-x li").count() == 8
    assert annotation(page, "x") == annotation(page, "y") == ["water"]  # and it is lit up in the picture
    page.locator("#near-x button").first.click()
    wait_for_text(page, "#sought", lambda text: text != "water in X")
    page.get_by_label("Key of X or Y").fill("no such key")
    wait_for_text(page, "#hits-status", lambda text: text == "No matching key.")


@pytest.mark.thorough
def test_texts_of_rows_are_shown_and_found(visit, fitted, words, tmp_path):
    (left, right), *_ = fitted.pair_keys_
    texts = RowTexts({left: "A zebra crossing"}, {right: "Un passage piéton", "water": "<b>H2O</b>"})
    write_report(tmp_path / "texts.html", fitted, *words, texts=texts)
    page = visit((tmp_path / "texts.html").as_uri())
    page.get_by_label("Key or text of X or Y").fill("ZEBRA")
    page.keyboard.press("Enter")
    wait_for_text(page, "#sought", lambda text: text == f"{left} A zebra crossing in X")
    wait_for_text(page, "#partner", lambda text: text.startswith(f"Its partner: {right} Un passage piéton, confidence"))
    wait_for_text(page, "#pointed", lambda text: text.startswith("A zebra crossing = Un passage piéton (confidence"))
    assert annotation(page, "x") == ["A zebra crossing"]
    page.get_by_label("Keys or texts containing").fill("H2O")
    wait_for_text(page, "#range", lambda text: text == "1 to 1 of 1")
    assert cells(page, 2) == ["water <b>H2O</b>"]
    page.get_by_label("Key or text of X or Y").fill("no such thing")
    wait_for_text(page, "#hits-status", lambda text: text == "No matching key or text.")
    require_accessible(page)
    page.screenshot(path=SCREENSHOTS / "texts.png", full_page=True)


@pytest.mark.thorough
def test_pointing_lights_up_the_partner(visit, report, fitted):
    page = visit(report)
    partner_of = dict(fitted.pair_keys_)
    for view in ("relative to the seeds", "as they are", "relative to the anchors found"):
        page.get_by_label(view).check()
        point_at(page, "x", 3)  # the pairs come first, in their order
        # In a crowd the mouse may catch a neighbour; whatever it caught, its partner is lit on the other side.
        (shown,), (partner,) = annotation(page, "x"), annotation(page, "y")
        assert partner_of[shown] == partner
        said = f"{shown} = {partner} (confidence "
        page.wait_for_function("(said) => document.getElementById('pointed').textContent.startsWith(said)", arg=said)
    page.mouse.down()
    page.mouse.up()
    page.wait_for_selector("#neighbours:not([hidden])")
    wait_for_text(page, "#sought", lambda text: text == f"{shown} in X")


@pytest.mark.thorough
def test_what_is_in_no_pair_lights_up_alone(visit, hostile):
    page = visit(hostile)
    point_at(page, "y", 399)  # the last rows are in no pair
    wait_for_text(page, "#pointed", lambda text: text.endswith("(Y) is unmatched"))
    assert len(annotation(page, "y")) == 1
    assert annotation(page, "x") == []


@pytest.mark.thorough
def test_zooming_shows_the_same_part_of_both(visit, report):
    page = visit(report)
    whole = page.get_by_role("button", name="Reset zoom")
    assert whole.is_disabled()
    page.locator("#plot-x").scroll_into_view_if_needed()
    box = page.locator("#plot-x").bounding_box()
    page.mouse.move(box["x"] + 150, box["y"] + 150)
    page.mouse.down()
    page.mouse.move(box["x"] + 350, box["y"] + 350, steps=5)
    page.mouse.up()
    page.wait_for_selector("#whole:not([disabled])")
    ranges = page.evaluate("['plot-x', 'plot-y'].map((id) => document.getElementById(id).layout.xaxis.range)")
    assert ranges[0] == pytest.approx(ranges[1], rel=0.05)
    assert ranges[0][1] - ranges[0][0] < 6000
    page.evaluate("redrawAll()")  # as when the colours change
    kept = page.evaluate("document.getElementById('plot-y').layout.xaxis.range")
    assert kept == pytest.approx(ranges[1], rel=0.05)
    whole.click()
    assert page.evaluate("document.getElementById('plot-y').layout.xaxis.range[1]") > 4000
    assert whole.is_disabled()


@pytest.mark.thorough
def test_the_table_sorts_filters_turns_and_downloads(visit, report, fitted, tmp_path):
    page = visit(report)
    assert list(zip(cells(page, 1), cells(page, 2), strict=True)) == fitted.pair_keys_[:25]
    page.get_by_role("button", name="x", exact=True).click()
    assert cells(page, 1) == sorted(cells(page, 1), key=str.casefold)
    assert page.locator("#table thead th").first.get_attribute("aria-sort") == "ascending"
    page.get_by_role("button", name="confidence").click()
    page.get_by_role("button", name="confidence").click()  # least confident first
    shown = [float(text) for text in cells(page, 3)]
    np.testing.assert_allclose(shown, np.sort(fitted.pair_confidence_)[:25], atol=1e-4)
    assert set(cells(page, 4)) <= {"right", "wrong"}

    page.get_by_label("Keys containing").fill("WAT")
    expected = [pair for pair in fitted.pair_keys_ if "wat" in pair[0] or "wat" in pair[1]]
    assert sorted(zip(cells(page, 1), cells(page, 2), strict=True)) == sorted(expected)
    page.get_by_label("Keys containing").fill("")
    page.get_by_label("Confidence at least").fill("0.99")
    count = int((np.round(fitted.pair_confidence_, 4) >= 0.99).sum())
    wait_for_text(page, "#range", lambda text: text == f"1 to 25 of {count:,}")
    page.get_by_role("button", name="Next").click()
    wait_for_text(page, "#range", lambda text: text == f"26 to 50 of {count:,}")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download as TSV").click()
    download.value.save_as(tmp_path / download.value.suggested_filename)
    rows = list(read_table(tmp_path / "pairs-shown.tsv"))
    assert len(rows) == count
    assert {(row["x"], row["y"]) for row in rows} <= set(fitted.pair_keys_)

    page.get_by_label("Confidence at least").fill("")
    page.get_by_label("Table").select_option("anchors")
    wait_for_text(page, "#range", lambda text: text == "1 to 25 of 100")
    page.locator("#table tbody button").first.click()
    wait_for_text(page, "#sought", lambda text: text == f"{fitted.anchor_keys_[0][0]} in X")
    page.locator("#table tbody td:nth-child(2) button").first.click()  # keys of Y are linked too
    wait_for_text(page, "#sought", lambda text: text == f"{fitted.anchor_keys_[0][1]} in Y")
    seeds = page.locator("table.seeds tbody td:nth-child(1)").all_inner_texts()  # apart from what was found
    assert sorted(seeds) == sorted(left for left, _ in fitted.seed_keys_)
    page.get_by_label("Table").select_option("pairs")
    assert not set(cells(page, 1)) & set(seeds)
    for table, column in (("table.seeds", "rank"), ("#table", "confidence")):  # headers stand over their figures
        header = page.locator(f"{table} th", has_text=column)
        place = page.locator(f"{table} th").all_inner_texts().index(column) + 1
        for cell in (header, page.locator(f"{table} tbody td:nth-child({place})").first):
            assert cell.evaluate("(cell) => getComputedStyle(cell).textAlign") == "end"
    page.get_by_label("Table").select_option("unmatched")
    unmatched = {*fitted.x_.unmatched_keys, *fitted.y_.unmatched_keys}
    assert {key for column in (1, 2) for key in cells(page, column)} - {""} <= unmatched


@pytest.mark.thorough
def test_a_slider_turns_one_picture_into_the_other(visit, hostile):
    page = visit(hostile)
    page.get_by_text("Turn X's picture into Y's").press("Enter")  # by keyboard alone
    slider = page.get_by_label("From X to Y", exact=True)
    wait_until(lambda: slider.get_attribute("aria-valuetext"), lambda text: text == "0 % of the way from X to Y")
    data = page.evaluate(
        "openSource().then(({ data }) => ({ ...data.views[data.shown], pairs: data.pairs, keys: data.keys }))"
    )
    places, pairs = np.array([each[: data["pairs"]] for each in data["places"]]), data["pairs"]
    far = np.argsort(-np.hypot(*(places[2:] - places[:2])), kind="stable")[:12]
    shown = page.locator("#morph .hits button bdi")
    assert [text for text in shown.all_text_contents() if text.startswith("row ")] == [
        data["keys"][0][row] for row in far if data["keys"][0][row].startswith("row ")
    ]

    def share_painted(side):
        """The share of the pairs whose place in the picture of X (0) or Y (1) is painted."""
        return page.evaluate(PAINTED, places[2 * side : 2 * side + 2].tolist()) / pairs

    assert share_painted(0) == 1
    assert share_painted(1) < 1
    slider.press("End")
    wait_until(lambda: share_painted(1), lambda share: share == 1)
    assert slider.get_attribute("aria-valuetext") == "100 % of the way from X to Y"
    play = "document.querySelector('#morph button').click(), document.getElementById('morph-share').value"
    page.emulate_media(reduced_motion="reduce")
    assert [page.evaluate(play), page.evaluate(play)] == ["0", "100"]  # at once
    page.emulate_media(reduced_motion="no-preference")
    assert page.evaluate(play) == "100"  # and from there, step by step
    wait_until(slider.input_value, lambda value: value == "0")
    require_accessible(page)
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 844})
        wait_until(
            lambda: page.evaluate("document.documentElement.scrollWidth"), lambda read, width=width: read <= width
        )
        slider.fill("60")
        page.locator("#morph").screenshot(path=SCREENSHOTS / f"morph-{width}.png")


MOVING = """() => openSource().then(({ data }) => {
  const { places } = data.views.find(({ name }) => name === "as they are");
  return { places, pairs: data.pairs, groups: movingTogether(places, data.pairs) };
})"""


@pytest.mark.thorough
def test_groups_that_move_together_are_suggested(visit, hostile):
    page = visit(hostile)
    page.get_by_text("Turn X's picture into Y's").click()
    page.get_by_label("as they are").check()  # each space along its own axes, so that much moves
    moving = page.evaluate(MOVING)
    places, groups = np.array([each[: moving["pairs"]] for each in moving["places"]]), moving["groups"]
    assert 1 <= len(groups) <= 6
    far = np.hypot(*(places[2:] - places[:2]))
    for rows in groups:
        assert len(rows) >= 5
        assert far[rows].min() >= np.quantile(far, 0.74)
        assert np.ptp(places[:, rows], axis=1).max() <= 2 * 4341 / 6  # all within a cell, before and after
    assert [len(rows) for rows in groups] == sorted(map(len, groups), reverse=True)
    buttons = page.locator("#moving button")
    assert [text.split()[0] for text in buttons.all_inner_texts()] == [str(len(rows)) for rows in groups]

    buttons.first.press("Enter")  # by keyboard alone
    wait_until(lambda: buttons.first.get_attribute("aria-pressed"), lambda pressed: pressed == "true")
    assert page.locator(".selected span").first.inner_text() == f"{len(groups[0])} pairs and 0 unmatched rows selected"
    drawn = "(side) => [1, 2].flatMap((place) => document.getElementById(`plot-${side}`).data[place].customdata)"
    for side in "xy":  # the same rows in both pictures
        assert sorted(page.evaluate(drawn, side)) == sorted(groups[0])
    wait_until(lambda: page.evaluate("location.href"), lambda url: "moving=0+as+they+are" in url)
    require_accessible(page)
    page.locator("#picture").screenshot(path=SCREENSHOTS / "moving.png")
    again = visit(page.url)
    assert sorted(again.evaluate(drawn, "y")) == sorted(groups[0])
    buttons.first.click()
    wait_until(lambda: buttons.first.get_attribute("aria-pressed"), lambda pressed: pressed == "false")
    assert page.locator(".selected").first.is_hidden()
    wrong = visit(hostile + "#moving=99+as+they+are")
    assert wrong.locator(".selected").first.is_hidden()


PAINTED = """([xs, ys]) => {
  const canvas = document.querySelector("#morph canvas");
  const pen = canvas.getContext("2d");
  const [across, down] = [canvas.width, canvas.height].map((size) => size / 2);
  const scale = Math.min(across, down) / REACH;
  return xs.filter((x, row) => (
    pen.getImageData(Math.floor(across + scale * x), Math.floor(down - scale * ys[row]), 1, 1).data[3] > 0
  )).length;
}"""


def test_hostile_keys_stay_text(visit, hostile, tmp_path):
    page = visit(hostile)
    seen = set()
    following = page.get_by_role("button", name="Next")
    for _ in range(20):
        seen |= set(page.locator("#table tbody td:nth-child(1)").all_text_contents())
        if following.is_disabled():
            break
        following.click()
    assert {*HOSTILE, *INVISIBLE.values()} <= seen  # what could not be seen is spelt out
    for key in HOSTILE:
        page.get_by_label("Key of X or Y").fill(key.split("\n")[0])  # an input has one line
        first = page.locator("#hits li button").first
        assert first.text_content() == key
        first.click()
        page.wait_for_function("(key) => document.querySelector('#sought bdi')?.textContent === key", arg=key)
        (shown,) = annotation(page, "x")
        assert annotation(page, "y") == [shown]
        assert shown == " ".join(key.split()) or (len(key) > 60 and shown == f"{key[:60]}...")
        assert page.locator("#partner bdi").text_content() == key
    assert page.evaluate("window.broken") is None
    assert page.locator("main img, main b:not(.numbers b), main i, main script").count() == 0
    assert page.locator(".answer .reason").count() == 2
    with page.expect_download() as download:
        page.get_by_role("button", name="Download as TSV").click()
    download.value.save_as(tmp_path / "pairs.tsv")
    assert set(HOSTILE) <= {row["x"] for row in read_table(tmp_path / "pairs.tsv")}  # as kedge reads it back
    page.screenshot(path=SCREENSHOTS / "hostile.png", full_page=True)


@pytest.mark.thorough
def test_the_last_question_counts(visit, report):
    page = visit(report)
    page.evaluate(
        """() => {
            const slow = PackedSource.prototype.neighbours;
            let first = true;
            PackedSource.prototype.neighbours = async function (entry) {
                const lists = await slow.call(this, entry);
                if (first) { first = false; await new Promise((resolve) => setTimeout(resolve, 800)); }
                return lists;
            };
        }"""
    )
    buttons = page.locator("#table tbody td:first-child button")
    names = buttons.all_inner_texts()
    buttons.nth(0).click()
    buttons.nth(1).click()
    page.wait_for_timeout(1500)
    wait_for_text(page, "#sought", lambda text: text == f"{names[1]} in X")


@pytest.mark.thorough
def test_without_webgl_there_is_a_picture_too(visit, chromium, report):
    page = visit(report, by=chromium("--disable-3d-apis"))
    assert page.evaluate("document.createElement('canvas').getContext('webgl')") is None
    assert page.locator("#plot-x .points path").count() > 500


@pytest.mark.thorough
def test_it_prints_in_light_colours_and_whole(visit, report):
    page = visit(report, scheme="dark")
    size = "document.getElementById('plot-y')._fullLayout.width"
    on_screen = page.evaluate(size)
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.pdf(path=SCREENSHOTS / "report.pdf")
    assert (SCREENSHOTS / "report.pdf").stat().st_size > 50_000
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("document.getElementById('histogram').layout.font.color") == "#17212b"
    assert page.evaluate(size) == 330  # two of them fit on a sheet
    assert page.evaluate("document.querySelector('#cite details').open")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate("document.getElementById('histogram').layout.font.color") == "#e8edf2"
    page.wait_for_function(f"Math.abs({size} - {on_screen}) < 3")


def names_on(page, side):
    return page.locator(f"#plot-{side} + .landmarks span").all_inner_texts()


def drag(page, side, corners):
    """Draw around a part of a picture, or from one corner to another; corners are shares of width and height."""
    page.locator(f"#plot-{side}").scroll_into_view_if_needed()
    box = page.locator(f"#plot-{side}").bounding_box()
    places = [(box["x"] + across * box["width"], box["y"] + down * box["height"]) for across, down in corners]
    page.mouse.move(*places[0])
    page.mouse.down()
    for place in places[1:] + (places[:1] if len(places) > 2 else []):
        page.mouse.move(*place, steps=8)
    page.mouse.up()


def colours_of(page, side):
    """How many rows are drawn faint, grey and coloured, and how many different colours there are."""
    return page.evaluate(
        """(side) => {
            const traces = document.getElementById(`plot-${side}`).data;
            return [...traces.map(({ x }) => x.length), new Set(traces[2].marker.color).size];
        }""",
        side,
    )


@pytest.mark.thorough
def test_colours_mean_what_the_legend_says(visit, report, fitted):
    page = visit(report)
    unmatched = len(fitted.x_.unmatched_keys)
    seen = {}
    for colouring in ("partner", "confidence", "match", "label", "cluster"):
        page.get_by_label("Colour by").select_option(colouring)
        seen[colouring] = colours_of(page, "x")
        legend = page.locator("#legend li").all_inner_texts()
        assert 2 <= len(legend) <= 12
        assert page.locator("#legend .swatch").count() == len(legend)
    assert seen["partner"][:3] == seen["confidence"][:3] == [0, unmatched, 2000 - unmatched]
    page.get_by_label("Colour by").select_option("confidence")
    page.get_by_role("button", name="seed (given").click()  # seeds have a colour of their own, and no confidence
    assert colours_of(page, "y")[2:] == [len(fitted.seed_keys_), 1]
    page.get_by_role("button", name="confidence from").click()
    assert colours_of(page, "y")[2] == len(fitted.pairs_)
    page.get_by_role("button", name="confidence from").click()
    assert seen["match"] == [0, 0, 2000, 2]
    assert seen["label"][1] == 100
    assert seen["label"][3] <= 11
    assert seen["cluster"][:3] == [0, 0, 2000]
    assert 2 <= seen["cluster"][3] <= 10
    require_accessible(page)
    page.get_by_label("Colour by").select_option("match")
    page.get_by_role("button", name="unmatched").press("Enter")  # by keyboard alone
    assert page.get_by_role("button", name="unmatched").get_attribute("aria-pressed") == "true"
    described = f"0 pairs and {unmatched + len(fitted.y_.unmatched_keys)} unmatched rows selected"
    assert page.locator(".selected span").all_inner_texts() == [described] * 2
    wait_for_text(page, "#range", lambda text: text == "No rows.")
    page.get_by_label("Table").select_option("unmatched")
    assert page.locator("#table tbody tr").count() == min(25, unmatched + len(fitted.y_.unmatched_keys))
    page.get_by_role("button", name="unmatched").press("Enter")
    assert page.locator(".selected").first.is_hidden()


@pytest.mark.thorough
def test_names_stay_apart_and_zooming_shows_others(visit, report, fitted):
    page = visit(report)
    names = names_on(page, "x")
    assert 5 <= len(names) <= 24
    assert set(names) <= {left for left, _ in fitted.linked_pairs().keys}
    found = fitted.anchor_keys_[int(fitted.anchor_is_seed_.sum()) :]
    assert names[0] in {left for left, _ in found}  # rather than a seed, which was given
    assert not set(names) & {left for left, _ in fitted.seed_keys_}
    boxes = [name.bounding_box() for name in page.locator("#plot-x + .landmarks span").all()]
    for number, one in enumerate(boxes):
        for other in boxes[:number]:
            apart_x = max(one["x"], other["x"]) >= min(one["x"] + one["width"], other["x"] + other["width"])
            apart_y = max(one["y"], other["y"]) >= min(one["y"] + one["height"], other["y"] + other["height"])
            assert apart_x or apart_y
    drag(page, "x", [(0.4, 0.4), (0.55, 0.55)])  # which zooms
    page.wait_for_selector("#whole:not([disabled])")
    near = names_on(page, "x")
    assert len(set(near) - set(names)) > 3  # there is room for others now
    page.get_by_label("Names").uncheck()
    assert names_on(page, "x") == names_on(page, "y") == []


@pytest.mark.thorough
def test_what_is_selected_by_lasso_is_what_tables_show(visit, report, fitted):
    page = visit(report)
    page.get_by_label("Drag to").select_option("lasso")
    drag(page, "x", [(0.3, 0.3), (0.7, 0.3), (0.7, 0.7), (0.3, 0.7)])
    page.wait_for_selector(".selected:not([hidden])")
    faint, grey, coloured, _ = colours_of(page, "x")
    assert faint + grey + coloured == 2000
    assert 100 < coloured < 1900
    assert colours_of(page, "y")[2] == coloured  # the partners, wherever they are
    linked = fitted.linked_pairs()
    rows = page.evaluate("document.getElementById('plot-x').data[2].customdata")
    found = sum(row < linked.found for row in rows)  # the others are seeds
    wait_for_text(page, "#range", lambda text: text == f"1 to 25 of {found:,}")
    assert page.locator(".selected").first.inner_text().startswith(f"{coloured:,} pairs and ")
    inside = {linked.keys[row][0] for row in rows}
    assert set(cells(page, 1)) <= inside
    assert set(names_on(page, "x")) <= inside
    page.get_by_label("Table").select_option("anchors")
    assert 0 < int(page.locator("#range").inner_text().split()[-1]) < 100
    page.get_by_label("Drag to").select_option("select")
    drag(page, "y", [(0.1, 0.1), (0.5, 0.9)])
    page.wait_for_function("(before) => document.getElementById('plot-x').data[2].x.length !== before", arg=coloured)
    page.locator("#found").get_by_role("button", name="Clear selection").click()
    assert colours_of(page, "x")[0] == 0
    wait_for_text(page, "#range", lambda text: text == "1 to 25 of 100")


@pytest.mark.thorough
def test_the_address_keeps_the_look(visit, report):
    page = visit(report)
    page.get_by_label("relative to the seeds").check()
    page.get_by_label("Colour by").select_option("cluster")
    page.get_by_label("Names").uncheck()
    drag(page, "x", [(0.3, 0.3), (0.8, 0.8)])  # zooms
    page.wait_for_selector("#whole:not([disabled])")
    page.get_by_label("Drag to").select_option("lasso")
    drag(page, "y", [(0.2, 0.2), (0.9, 0.2), (0.5, 0.9)])
    page.wait_for_selector(".selected:not([hidden])")
    page.get_by_label("Key of X or Y").fill("wat")
    page.locator("#hits button").first.click()
    page.get_by_label("Keys containing").fill("e")
    page.get_by_label("Confidence at least").fill("0.5")
    page.get_by_role("button", name="y", exact=True).click()
    wait_for_text(page, "#sought", bool)
    wait_until(
        lambda: page.evaluate("location.href"), lambda url: all(part in url for part in ("key=", "min=0.5", "sort=y"))
    )
    page.get_by_role("link", name="Pairs", exact=True).click()  # a link within the page keeps the state
    state = """() => ({
        sought: document.getElementById("sought").textContent,
        hits: document.getElementById("hits").textContent,
        table: document.getElementById("table").textContent,
        range: document.getElementById("range").textContent,
        selected: document.querySelector(".selected").textContent,
        legend: document.getElementById("legend").textContent,
        view: document.querySelector("#views input:checked").parentElement.textContent,
        names: document.getElementById("names").checked,
        part: document.getElementById("plot-y").layout.xaxis.range.map((end) => Math.round(end / 10)),
        lit: document.querySelector("#plot-x .annotation-text")?.textContent,
    })"""
    look = page.evaluate(state)
    assert "relative+to+the+seeds" in page.url
    again = visit(page.url)
    wait_until(lambda: again.evaluate(state), lambda now: now == look)
    assert again.url == page.url
    plain = visit(report)
    plain.evaluate("(look) => { location.hash = look; }", page.url.split("#")[1])  # pasted where the page is open
    plain.wait_for_selector(".selected:not([hidden])")
    wait_until(lambda: plain.evaluate(state), lambda now: now == look)
    wrong = visit(
        report + "#view=none&colour=none&only=99+label&area=z+1+2&part=1+a&table=none&sort=none&side=x&key=none"
    )
    wait_for_text(wrong, "#range", lambda text: text.startswith("1 to 25"))


@pytest.mark.thorough
def test_live_pictures_the_truth_and_a_layout(visit, fitted, words, tmp_path):
    pytest.importorskip("openTSNE", reason="needs kedge[layout]")
    image = pytest.importorskip("PIL.Image", reason="thumbnails need Pillow")
    import threading

    for number, key in enumerate(words[0].keys[:1000]):
        image.new("RGB", (60, 40), f"hsl({number % 360},70%,50%)").save(tmp_path / key, "PNG")
    gold = gold_by_key(*words)
    truth = GoldComparison(evaluate(fitted, *words, gold, complete=True), Truth(*words, gold, complete=True))
    explorer = Explorer(fitted, *words, run="RUN", max_rows=300, gold=truth, images=tmp_path)
    with serve(explorer, 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            page = visit(f"http://127.0.0.1:{server.server_port}/")
            assert page.get_by_role("heading", name="Against the gold pairs").is_visible()
            assert set(cells(page, 4)) <= {"right", "wrong"}
            key = next(key for key in words[0].keys[:1000] if key in dict(fitted.pair_keys_))
            page.get_by_label("Key of X or Y").fill(key)
            page.get_by_role("button", name="Show neighbours").click()
            loaded = "(place) => document.querySelector(`${place} img`)?.naturalWidth === 60"
            for place in ("#sought", "#pointed"):
                page.wait_for_function(loaded, arg=place)
            assert page.locator("#near-x img").count() > 0
            page.get_by_label("t-SNE").check()
            page.wait_for_function("document.getElementById('pointed').textContent.startsWith('Computing')")
            page.wait_for_function("document.getElementById('pointed').textContent === 'Done.'")
            wait_for_text(page, "#view-description", lambda text: text.endswith("long distances mean little."))
            wait_until(lambda: page.evaluate("location.href"), lambda url: "view=" in url)
            assert visit(page.url).get_by_label("t-SNE").is_checked()
            page.get_by_label("Use other anchors").select_option("snapped")
            page.get_by_label("only the first").fill("9")
            page.get_by_role("button", name="Apply").click()
            page.get_by_label("relative to 9 anchors (snapped)").wait_for()
            wait_until(lambda: page.evaluate("location.href"), lambda url: "anchors=" in url)
            assert visit(page.url).get_by_label("relative to 9 anchors (snapped)").is_checked()
            page.screenshot(path=SCREENSHOTS / "pictures.png", full_page=True)
            require_accessible(page)
        finally:
            server.shutdown()


@pytest.mark.thorough
def test_live_any_key_and_other_anchors(visit, fitted, words):
    import threading

    explorer = Explorer(fitted, *words, run="RUN", max_rows=300)
    with serve(explorer, 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            page = visit(f"http://127.0.0.1:{server.server_port}/")
            hidden = next(key for key in words[0].keys if key not in set(explorer.contents["keys"][0]))
            page.get_by_label("Key of X or Y").fill(hidden)
            page.get_by_role("button", name="Show neighbours").click()
            page.wait_for_selector("#neighbours:not([hidden])")
            wait_for_text(page, "#sought", lambda text: text == f"{hidden} in X")
            wait_for_text(page, "#pointed", lambda text: text.endswith("not among the rows shown"))
            before = page.evaluate("Array.from(document.getElementById('plot-y').data[2].x)")
            page.get_by_label("Use other anchors").select_option("keys")
            page.get_by_label("keys, one per line").fill("water\nmusic\nyears")
            page.get_by_role("button", name="Apply").click()
            page.get_by_label("relative to 3 keys you chose").wait_for()
            assert page.get_by_label("relative to 3 keys you chose").is_checked()
            assert page.evaluate("Array.from(document.getElementById('plot-y').data[2].x)") != before
            page.screenshot(path=SCREENSHOTS / "live.png", full_page=True)
            require_accessible(page)
            page.get_by_label("keys, one per line").fill("water\nno such key")
            page.get_by_role("button", name="Apply").click()
            page.wait_for_selector("#trouble:not([hidden])")
            wait_for_text(page, "#trouble", lambda text: "unknown key 'no such key'" in text)
        finally:
            server.shutdown()


@pytest.mark.thorough
@pytest.mark.parametrize("viewport", [WIDE, NARROW], ids=["wide", "narrow"])
def test_live_old_and_new_results_side_by_side(visit, fitted, words, viewport):
    import threading

    explorer = Explorer(fitted, *words, run="RUN", max_rows=300)
    with serve(explorer, 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            page = visit(f"http://127.0.0.1:{server.server_port}/", viewport)
            page.get_by_label("Key of X or Y").fill("water")
            page.keyboard.press("Enter")
            page.wait_for_selector("#results:not([hidden])")
            expected = explorer.results(str(words[0].row_of["water"]))
            for which, entries in expected.items():
                lines = [
                    f"{each['key']} {each['percent'] / 100:.2f}{' in both' if each['both'] else ''}" for each in entries
                ]
                wait_until(
                    page.locator(f"#results-{which} li").all_inner_texts, lambda read, lines=lines: read == lines
                )
            same = sum(each["both"] for each in expected["new"])
            wait_for_text(page, "#agreement", lambda text: text.startswith(f"The old index finds {same} of the 10 "))
            assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]  # nothing sticks out
            page.locator("#search").screenshot(path=SCREENSHOTS / f"old-and-new-{viewport['width']}.png")
            require_accessible(page)
            page.locator("#near-y button").first.click()  # a row of Y is no query of the new model
            wait_for_text(page, "#sought", lambda text: text.endswith(" in Y"))
            assert page.locator("#results").is_hidden()
        finally:
            server.shutdown()


@pytest.mark.thorough
def test_names_of_compared_runs_stay_whole_on_a_phone(browser, fitted, tmp_path):
    write_comparison(tmp_path / "page.html", compare_runs({"runs/15-seeds": fitted, "runs/no-seeds": fitted}))
    page = browser.new_page(viewport=NARROW)
    page.goto((tmp_path / "page.html").as_uri())
    for table in (".runs", ".matrix"):
        names = page.locator(f"{table} tbody th bdi")
        assert names.all_inner_texts() == ["runs/15-seeds", "runs/no-seeds"]
        assert names.evaluate_all("(names) => names.map((name) => name.getClientRects().length)") == [1, 1]
    assert page.evaluate("document.documentElement.scrollWidth") == NARROW["width"]
    page.close()
