"""A model of what processes that share a discovery tell each other, and what a cluster would take by it.

    python benchmarks/traffic.py                                       10^9 rows against 10^9, 100 GPUs: an estimate
    python benchmarks/traffic.py --rows 1000000 --processes 8
    python benchmarks/traffic.py --bandwidth 12.5                      GB/s into each process, here 100 Gb/s

Of every building block that goes over rows the model knows the collective calls and their bytes; those of a whole `fit`
are a sum over named passes. Several processes compare all rows with all, so the model knows no candidates.
`benchmarks/processes.py --traffic` counts them in real processes, and
`tests/test_processes.py` holds the model to that. Time and memory of a cluster are arithmetic from it, not measured.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import tracemalloc
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

from kedge.matching.processes import Traffic
from kedge.solving.schedule import FINISH_ROWS, FINISH_ROWS_OF_X, Schedule
from kedge.spaces import write_table

FLOAT, DOUBLE, INDEX = 4, 8, 8
# Speed of the kernels on one H200 in tf32, TFLOP/s, of `benchmarks/rivals.py` (docs/performance.md).
TOP_K_SPEED, BEST_TWO_SPEED = 184, 277
NEIGHBOURS = 10
GPUS_A_MACHINE = 8
BRIEF = Schedule()


@dataclass(frozen=True)
class Held:
    """A matrix (rows, width) in float32 of which each process holds its share, or all of it where not `divided`."""

    rows: int
    width: int
    divided: bool = True

    @property
    def size(self) -> int:
        """Bytes of all rows."""
        return self.rows * self.width * FLOAT

    def read(self, width: int) -> Held:
        """The same rows in so many other coordinates."""
        return replace(self, width=width)

    def sampled(self, most: int) -> Held:
        """At most so many of the rows, which every process holds."""
        return Held(min(self.rows, most), self.width, divided=False)


def together(*parts: Traffic) -> Traffic:
    """All of it."""
    whole = Traffic()
    for part in parts:
        whole.calls.update(part.calls)
        whole.payload.update(part.payload)
    return whole


def repeated(times: int, part: Traffic) -> Traffic:
    """The same so many times."""
    return together(*[part] * times)


def call(name: str, size: int, times: int = 1) -> Traffic:
    """So many calls of that name, of so many bytes in all."""
    return Traffic(Counter({name: times}), Counter({name: size}))


@dataclass(frozen=True)
class Model:
    """What each of so many processes hands to collective calls in the building blocks of a discovery.

    a, b, x and y are the arguments of the functions of the same names in `kedge.matching` and `kedge.discovery`.
    """

    processes: int

    def parts(self, rows: Held) -> Traffic:
        """All rows seen by all: `Rows.parts`."""
        return call("in_turn", rows.size, self.processes) if rows.divided else Traffic()

    def joined(self, rows: int, size: int) -> Traffic:
        """A result of so many bytes a row brought to all: `Rows.joined`."""
        return call("in_turn", rows * size, self.processes)

    def take(self, rows: Held, count: int) -> Traffic:
        """Some rows brought to all: `Rows.take`."""
        return call("sum", count * rows.width * FLOAT) if rows.divided else Traffic()

    def sample(self, rows: Held, most: int) -> Traffic:
        """At most so many rows drawn for all; all of them, where there are no more."""
        return self.parts(rows) if rows.rows <= most else self.take(rows, most)

    # -- matching ---------------------------------------------------------------------------------

    def hubness(self, a: Held, b: Held) -> Traffic:
        """Half the mean similarity of each row of a to its nearest of b."""
        return together(self.parts(b), self.joined(a.rows, FLOAT))

    def best_partners(self, a: Held, b: Held) -> Traffic:
        """Partner, value and rival of each row of a, and who was turned down by each of b."""
        results = self.joined(a.rows, INDEX), repeated(2, self.joined(a.rows, FLOAT))
        return together(self.parts(b), call("greatest", b.rows * FLOAT), *results)

    def match_csls(self, a: Held, b: Held) -> Traffic:
        """4 (2 m + n) c + 20 n + 8 m bytes, where both are divided."""
        return together(self.hubness(a, b), self.hubness(b, a), self.best_partners(a, b))

    def second_margins(self, a: Held, b: Held, count: int) -> Traffic:
        """Second choices of some rows of a."""
        return together(self.take(a, count), self.parts(b), self.take(b, count), self.parts(a))

    def choices(self, x: Held, y: Held, most: int) -> Traffic:
        """Second choices of at most so many rows of either side."""
        of_x = self.second_margins(x, y, min(most, x.rows))
        return together(of_x, self.second_margins(y, x, min(most, y.rows)))

    def transport_step(self, columns: int) -> Traffic:
        """One step against so many columns: their log-sum-exp, and the sharpness."""
        return together(call("greatest", columns * FLOAT), call("sum", columns * FLOAT + DOUBLE, 2))

    # -- what pairs imply -------------------------------------------------------------------------

    def pair_moments(self, x: Held, y: Held) -> Traffic:
        """Y once, and three small matrices."""
        sums = x.width**2 + x.width * y.width + y.width**2
        return together(self.parts(y), call("sum", sums * DOUBLE, 3))

    def spectra(self, *spaces: Held) -> Traffic:
        """Variances and axes of spaces, the same in every process."""
        each = [
            together(
                call("sum", space.width**2 * DOUBLE), call("from_first", (space.width + space.width**2) * DOUBLE, 2)
            )
            for space in spaces
        ]
        return together(*each)

    def fit_model(self, x: Held, y: Held, directions: int) -> Traffic:
        """The pair model of so many canonical directions, without the spectra."""
        model = call("from_first", (x.width + y.width + 1) * directions * DOUBLE, 3)
        return together(repeated(2, self.pair_moments(x, y)), model)

    def cross_fitted(self, x: Held, y: Held, directions: int, folds: int) -> Traffic:
        """The same, and the pairs of each fold, without the spectra."""
        return together(self.fit_model(x, y, directions), repeated(folds, self.pair_moments(x, y)))

    def leading_axes(self, space: Held, rank: int) -> Traffic:
        """So many principal axes, the same in every process."""
        return call("from_first", space.width * min(rank, space.width) * FLOAT)

    def rotation(self, x: Held, y: Held) -> Traffic:
        """The rotation between coordinates x and y that targets imply, the same in every process."""
        size = x.width * y.width
        return together(call("sum", size * DOUBLE), call("from_first", size * FLOAT))

    def part(self, x: Held, y: Held, rows_x: int, rows_y: int) -> Traffic:
        """So many rows of X, and of Y those that a first reading takes for their best; then both brought to all."""
        chosen = together(self.take(x, rows_x), self.parts(y))
        return together(chosen, self.take(x, rows_x), self.take(y, rows_y))

    def anneal(self, x: Held, y: Held, rounds: int) -> Traffic:
        """Rounds of a transport step and a rotation between coordinates x and y of a sample.

        In how many parts the rows of x take turns makes no difference: what is told is of the columns.
        """
        return repeated(rounds, together(self.transport_step(y.rows), self.rotation(x, y)))


@dataclass(frozen=True)
class Course:
    """How a fit goes, as far as what it tells depends on that: the straight way, one attempt that is surely right.

    `directions` are those of the pair model. Annealing stops when it is sharp, and then took fewer `anneal_rounds` than
    the schedule has. Where a space has more than `finish_rows` rows, `part_x` rows of X and `part_y` of Y are finished
    on (at most three for each of X), and then all rows in `all_rounds`. Maps were compared on `tested` pairs of
    `folds_tested` folds. The numbers of rounds, rows and folds are those of `kedge.discovery`.
    """

    directions: int
    seeds: int = 15
    anchors: int = 300
    schedule: Schedule = BRIEF
    anneal_rounds: int = BRIEF.anneal_rounds
    finish_rounds: int = 3
    all_rounds: int = 2
    finish_rows: int = FINISH_ROWS
    part_x: int = FINISH_ROWS_OF_X
    part_y: int = 3 * FINISH_ROWS_OF_X
    judged_rows: int = 4000
    judged_folds: int = 4
    illusion_rounds: int = 4
    choices: int = 4000
    folds: int = 10
    map_folds: int = 5
    folds_tested: int = 1
    index: int = 5000
    tested: int = 1000

    def to_finish_on(self, x: Held, y: Held) -> tuple[Held, Held]:
        """The spaces themselves, or the part of them that the rounds of finishing go over."""
        if max(x.rows, y.rows) <= self.finish_rows:
            return x, y
        return x.sampled(self.part_x), y.sampled(self.part_y)


STAGES = ("anneal", "finish", "health", "confidence", "reading")
"""The parts of a fit, as `on_step` tells them apart; the last follows the last step."""


def fit_traffic(processes: int, x: Held, y: Held, course: Course) -> dict[tuple[str, str], Traffic]:
    """What each process hands over in a whole fit, by stage and pass."""
    model = Model(processes)
    return {
        **_annealed(model, x, y, course),
        **_finished(model, x, y, course),
        **_judged(model, x, y, course),
        **_read(model, x, y, course),
    }


def _annealed(model: Model, x: Held, y: Held, course: Course) -> dict[tuple[str, str], Traffic]:
    schedule = course.schedule
    sample_x, sample_y = (space.sampled(schedule.sample_size) for space in (x, y))
    axes_x, axes_y = (rows.read(min(schedule.rank, rows.width)) for rows in (sample_x, sample_y))
    loaded = [together(call("sum", 2 * DOUBLE + space.width * DOUBLE, 3), model.take(space, 1)) for space in (x, y)]
    drawn = [model.sample(space, schedule.sample_size) for space in (x, y)]
    axes = [model.leading_axes(space, schedule.rank) for space in (x, y)]
    start = together(repeated(3, model.transport_step(axes_y.rows)), model.rotation(axes_x, axes_y))
    return {
        ("anneal", "lengths and centers"): together(*loaded),
        ("anneal", "samples"): together(*drawn, *axes, model.spectra(x, y)),
        ("anneal", "rounds on a sample"): together(start, model.anneal(axes_x, axes_y, course.anneal_rounds)),
    }


def _finished(model: Model, x: Held, y: Held, course: Course) -> dict[tuple[str, str], Traffic]:
    """Rounds over all rows; where they are many, over a part of them that every process holds, and then over all."""
    on_x, on_y = course.to_finish_on(x, y)
    width = course.directions + 2
    passes = _rounds(
        model, on_x, on_y, course, [min(course.schedule.rank, y.width), *[width] * (course.finish_rounds - 1)]
    )
    if on_x is not x:
        passes["finish", "part to finish on"] = model.part(x, y, on_x.rows, on_y.rows)
        for (stage, name), told in _rounds(model, x, y, course, [width] * course.all_rounds).items():
            passes[stage, f"{name}, all rows"] = told
        passes["finish", "model of the part"] = model.fit_model(on_x, on_y, course.directions)
    return passes


def _rounds(model: Model, x: Held, y: Held, course: Course, widths: list[int]) -> dict[tuple[str, str], Traffic]:
    """Rounds of finishing, each in so many coordinates."""
    fits = repeated(len(widths) - 1, model.fit_model(x, y, course.directions))
    return {
        ("finish", "matches"): together(*(model.match_csls(x.read(width), y.read(width)) for width in widths)),
        ("finish", "second choices"): together(
            *(model.choices(x.read(width), y.read(width), course.choices) for width in widths[:-1])
        ),
        ("finish", "moments of pairs"): together(fits, model.spectra(x, y)),
    }


def _judged(model: Model, x: Held, y: Held, course: Course) -> dict[tuple[str, str], Traffic]:
    """What was finished on is judged; if that is a part, all rows are too in the end, which counts in what follows."""
    on_x, on_y = course.to_finish_on(x, y)
    passes = {
        ("health", "sample recognised"): _sample_recognised(model, on_x, on_y, course),
        ("health", "random start"): _random_start(model, x, y, course),
    }
    if on_x is not x:
        passes["confidence", "sample recognised"] = _sample_recognised(model, x, y, course)
    return passes


def _random_start(model: Model, x: Held, y: Held, course: Course) -> Traffic:
    """How many rows seem to be recognised where nothing is known, on a sample of all rows."""
    sample_x, sample_y = (space.sampled(course.judged_rows) for space in (x, y))
    ground = [
        together(model.sample(space, course.judged_rows), model.leading_axes(space, course.schedule.rank))
        for space in (x, y)
    ]
    axes_x, axes_y = (rows.read(min(course.schedule.rank, rows.width)) for rows in (sample_x, sample_y))
    rounds = model.anneal(axes_x, axes_y, 20)
    matches = repeated(course.illusion_rounds, model.match_csls(axes_x, axes_y))
    fits = repeated(course.illusion_rounds - 1, model.fit_model(sample_x, sample_y, course.directions))
    spectra = model.spectra(sample_x, sample_y)
    return together(*ground, rounds, matches, fits, spectra, _recognised(model, x, y, course, spectra=False))


def _sample_recognised(model: Model, x: Held, y: Held, course: Course) -> Traffic:
    """The same of a match: rows of X drawn with their partners."""
    drawn = [model.take(space, min(course.judged_rows, space.rows)) for space in (x, y)]
    return together(*drawn, _recognised(model, x, y, course))


def _recognised(model: Model, x: Held, y: Held, course: Course, *, spectra: bool = True) -> Traffic:
    """First and second choices in a sample, of which each process reads its rows by models that had not seen them."""
    sample_x, sample_y = (space.sampled(course.judged_rows) for space in (x, y))
    width = y.width + 1 + course.judged_folds
    honest_x, honest_y = Held(sample_x.rows, width), sample_y.read(width)
    return together(
        repeated(int(spectra), model.spectra(sample_x, sample_y)),
        model.cross_fitted(sample_x, sample_y, course.directions, course.judged_folds),
        model.match_csls(honest_x, honest_y),
        model.choices(honest_x, honest_y, course.choices),
    )


def _read(model: Model, x: Held, y: Held, course: Course) -> dict[tuple[str, str], Traffic]:
    width = y.width + 1 + course.folds
    honest_x, honest_y = x.read(width), y.read(width)
    seeds = together(*(model.take(rows, course.seeds) for rows in (honest_x, honest_y)))
    takes = [model.take(space, count) for space in (x, y) for count in (course.anchors, course.seeds)]
    return {
        ("confidence", "moments of folds"): model.cross_fitted(x, y, course.directions, course.folds),
        ("confidence", "seeds"): together(seeds, call("sum", course.seeds * INDEX)),
        ("confidence", "match of all rows"): model.match_csls(honest_x, honest_y),
        ("confidence", "second choices"): model.choices(honest_x, honest_y, course.choices),
        ("reading", "pair model"): model.fit_model(x, y, course.directions),
        ("reading", "map"): _map(model, x, y, course),
        ("reading", "map back"): together(_map(model, y, x, course), model.spectra(x, y)),
        ("reading", "anchors"): together(
            model.pair_moments(x, y),
            repeated(2, model.take(x, course.anchors)),
            model.parts(y.read(course.directions + 2)),
        ),
        ("reading", "vectors of anchors and seeds"): together(*takes),
    }


def _map(model: Model, x: Held, y: Held, course: Course) -> Traffic:
    """Candidates of the pairs of all folds but one, and of halves of them, tried on some rows."""
    index = model.take(y, min(course.index, y.rows))
    queries = call("sum", course.tested * x.width * FLOAT, course.folds_tested)
    return together(
        repeated(course.map_folds + 1 + 2, model.pair_moments(x, y)),
        repeated(course.folds_tested, index),
        queries,
        call("from_first", x.width * y.width * FLOAT),
    )


def received(traffic: Traffic, processes: int) -> float:
    """Bytes that come into one process over the network: all parts but its own, and twice that of what is reduced.

    So it is where an all-reduce goes round a ring. What the first process sends comes whole.
    """
    share = (processes - 1) / processes
    payload = traffic.payload
    reduced = payload["sum"] + payload["greatest"]
    return share * (payload["in_turn"] + 2 * reduced) + payload["from_first"] + payload["object_from_first"]


def main() -> None:
    """Print what would be told, and the time and memory it would take."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10**9)
    parser.add_argument("--dim", type=int, default=300)
    parser.add_argument("--processes", type=int, default=100)
    parser.add_argument("--bandwidth", type=float, default=50.0, help="GB/s into each process (50)")
    arguments = parser.parse_args()
    rows, dim, count = arguments.rows, arguments.dim, arguments.processes
    passes = fit_traffic(count, Held(rows, dim), Held(rows, dim), Course(directions=dim))
    print(f"estimated, not measured: {rows:.3g} x {rows:.3g} x {dim}, {count} processes\n")
    print(
        f"| stage | pass | calls | handed over, GB | seconds at {arguments.bandwidth:g} GB/s |\n|---|---|---|---|---|"
    )
    for (stage, name), traffic in passes.items():
        _print_row(stage, name, traffic, count, arguments.bandwidth)
    whole = together(*passes.values())
    _print_row("all", "", whole, count, arguments.bandwidth)
    hours = match_seconds(rows, rows, dim, count) / 3600
    print(
        f"\none match of all rows: {hours:.3g} hours of kernels at the speed of an H200; two of them: {2 * hours:.3g}"
    )
    for moment, held in memory(rows, rows, dim, count).items():
        print(f"\n| held by each process while {moment} | GB |\n|---|---|")
        for name, size in (held | {"together": sum(held.values())}).items():
            print(f"| {name} | {size / 1e9:.3g} |")
    each, here = key_bytes(), min(count, GPUS_A_MACHINE)
    print(
        f"\nkeys: {each:.0f} bytes each, as Python strings with their rows; of both spaces {2 * rows * each / 1e9:.3g} "
        f"GB in each process, {2 * rows * each * here / 1e9:.3g} GB in a machine of {here}"
    )
    lines = lines_a_second()
    print(f"pairs.tsv: {lines:.3g} lines a second by the first process; {rows / lines / 60:.3g} minutes for {rows:.3g}")


def _print_row(stage: str, name: str, traffic: Traffic, count: int, bandwidth: float) -> None:
    seconds = received(traffic, count) / (bandwidth * 1e9)
    print(f"| {stage} | {name} | {traffic.calls.total()} | {traffic.payload.total() / 1e9:.3g} | {seconds:.3g} |")


def match_seconds(rows_x: int, rows_y: int, dim: int, processes: int) -> float:
    """Kernel time of one `match_csls`: the ten nearest in either direction, and the best two in either direction."""
    product = 2 * rows_x * rows_y * dim / processes
    return 2 * product / (TOP_K_SPEED * 1e12) + 2 * product / (BEST_TWO_SPEED * 1e12)


def memory(rows_x: int, rows_y: int, dim: int, processes: int) -> dict[str, dict[str, float]]:
    """Bytes that one process holds at two moments of the match for confidence, as the code reads."""
    both = (rows_x + rows_y) * FLOAT / processes
    width = dim + 1 + Course(directions=dim).folds
    spaces = {"its share of both spaces": both * dim, "the same, as models read it": both * width}
    return {
        "the nearest are looked for": spaces
        | {
            "rows of another process": rows_y * width * FLOAT / processes,
            "similarities to the ten nearest of every part, twice": 2 * rows_x * NEIGHBOURS * FLOAT,
        },
        "rivals are looked for": spaces
        | {
            "partners, values and hubness of all rows": rows_x * (INDEX + 3 * FLOAT) + 2 * rows_y * FLOAT,
            "partners in every part": rows_x * (INDEX + FLOAT),
            "all rows sorted by partner": rows_x * (5 * INDEX + 3 * FLOAT) + 2 * rows_y * INDEX,
        },
    }


def key_bytes(count: int = 100_000) -> float:
    """Bytes of memory that a key takes, with the row it stands for."""
    tracemalloc.start()
    keys = [f"{row:09d}" for row in range(count)]
    row_of = {key: row for row, key in enumerate(keys)}
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return size / len(row_of)


def lines_a_second(count: int = 100_000) -> float:
    """How fast a table of pairs is written."""
    with tempfile.TemporaryDirectory() as scratch:
        began = time.perf_counter()
        rows = ((f"{row:09d}", f"{row:09d}", f"{0.5:.4f}") for row in range(count))
        write_table(Path(scratch) / "pairs.tsv", ("x", "y", "confidence"), rows)
        return count / (time.perf_counter() - began)


if __name__ == "__main__":
    main()
