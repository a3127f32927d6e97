"""Every benchmark that a table of the documentation rests on: one command, results as files, resumed if stopped.

    python benchmarks/run.py --list                                  what there is, how long it takes, what is stored
    python benchmarks/run.py --data DIR                              everything that a laptop can do; about two hours
    python benchmarks/run.py --data DIR --size gpu --only reading    one of them, at full size
    python benchmarks/tables.py                                      afterwards: the tables of the pages

Results go to `benchmarks/results/NAME-SIZE.json`, row by row. Rows that are there are not measured again, so the same
command continues where another was stopped. To measure anew, delete the file.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from setting import markdown_header, markdown_row, new_parser
from stored import RESULTS, read_record

SIZES = ("laptop", "gpu")


@dataclass(frozen=True)
class Size:
    """How a benchmark is run on some machine: its arguments, and the minutes that it takes there, roughly."""

    arguments: str
    minutes: int
    data: bool = True


@dataclass(frozen=True)
class Benchmark:
    """A script, what its tables are about, and how it is run on a laptop and on a GPU."""

    script: str
    about: str
    laptop: Size
    gpu: Size


BENCHMARKS = {
    "methods": Benchmark(
        "methods.py",
        "kedge beside other methods, with 0 to 1,000 known pairs",
        Size("--rows 1500", 50),
        Size("--rows 4000 --device cuda", 60),
    ),
    "reading": Benchmark(
        "reading.py",
        "whole runs on seven pairs, and other readings of what they found",
        Size("--rows 1500 --device cpu", 8),
        Size("--device cuda", 5),
    ),
    "shared": Benchmark(
        "shared.py",
        "verdicts, overlap and confidence where all to nothing is shared",
        Size("--rows 1000 --states 1 --pairs easy medium vit texts", 40),
        Size("--states 1 --pairs easy medium glove vit texts texts-fr upgrade --jobs 4 --device cuda", 30),
    ),
    "lexicon": Benchmark(
        "lexicon.py",
        "translations of words (English x French only with --dictionary, see there)",
        Size("--runs kedge-lexicons --pairs 'FastText x Word2Vec' --rows 4000 --states 0 --device cpu", 3),
        Size("--runs kedge-lexicons --rows 6000 --device cuda", 10),
    ),
    "optimiser": Benchmark(
        "paper_optimiser.py",
        "the paper's optimiser beside the default method",
        Size("--words 1000 --random-states 0 --pairs easy medium --device cpu", 2),
        Size("--pairs easy medium --device cuda", 10),
    ),
    "other-half": Benchmark(
        "other_half.py",
        "words of two models without a common word or a known pair",
        Size("--states 3 --device cpu", 6, data=False),
        Size("--states 10 --device cuda", 5, data=False),
    ),
    "scale": Benchmark(
        "scale.py",
        "a whole discovery of made-up rows: time and memory",
        Size("--rows 100000 --device cpu", 4, data=False),
        Size("--rows 1000000 --repeats 2 --device cuda", 3, data=False),
    ),
}


def main() -> None:
    """List the benchmarks, or run those that were asked for, one after the other."""
    parser = new_parser(__doc__)
    parser.add_argument("--data", type=Path, default=os.environ.get("KEDGE_DATA"), help="(default: $KEDGE_DATA)")
    parser.add_argument("--size", choices=SIZES, default="laptop")
    parser.add_argument("--only", nargs="+", choices=BENCHMARKS, default=list(BENCHMARKS), metavar="NAME")
    parser.add_argument("--list", action="store_true", help="only say what there is")
    arguments = parser.parse_args()
    if arguments.list:
        print(listing())
        return
    for name in arguments.only:
        command = command_of(name, arguments.size, arguments.data)
        print(f"\n== {name}: {shlex.join(command[1:])}", flush=True)
        code = subprocess.run(command).returncode
        if code:
            raise SystemExit(f"{name} ended with code {code}; what it measured is kept, the same command goes on")


def command_of(name: str, size: str, data: Path | None) -> list[str]:
    """The command line of a benchmark; its rows go to the file that tables are made of."""
    benchmark = BENCHMARKS[name]
    setting: Size = getattr(benchmark, size)
    command = [sys.executable, str(Path(__file__).parent / benchmark.script), *shlex.split(setting.arguments)]
    if setting.data:
        if data is None:
            raise SystemExit(f"{name} needs --data, or KEDGE_DATA")
        command += ["--data", str(data)]
    return [*command, "--json", str(result_file(name, size))]


def result_file(name: str, size: str) -> Path:
    """Where the rows of a benchmark are."""
    return RESULTS / f"{name}-{size}.json"


def listing() -> str:
    """A table of what there is and what is stored."""
    lines = [markdown_header(("name", "size", "minutes", "rows stored", "commits", "about"))]
    for name, benchmark in BENCHMARKS.items():
        for size in SIZES:
            file = result_file(name, size)
            rows = read_record(file)["rows"] if file.exists() else []
            commits = ", ".join(dict.fromkeys(row["commit"] for row in rows))
            minutes = getattr(benchmark, size).minutes
            lines.append(markdown_row((name, size, str(minutes), str(len(rows)), commits, benchmark.about)))
    return "\n".join(lines)


if __name__ == "__main__":
    main()
