"""`kedge compare`: several runs over the same spaces, side by side."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kedge.cli.arguments import add_command, add_overwrite, positive
from kedge.cli.exit_codes import EXIT_NOT_PASSED
from kedge.cli.page_options import add_page
from kedge.cli.true_pairs import add_gold, describe_pairs, read_gold

if TYPE_CHECKING:
    from kedge.estimators import AnchorDiscovery
    from kedge.tasks import RunComparison, Truth


def add_parser(commands: Any) -> None:
    """Describe the command."""
    parser = add_command(
        commands,
        "compare",
        run,
        "put runs over the same spaces side by side",
        "Put runs over the same spaces side by side: what each found, where they differ, which to trust.",
        """  kedge compare RUN1 RUN2 RUN3
  kedge compare RUN1 RUN2 -o compared.html
  kedge compare RUN1 RUN2 --gold dictionary.tsv --json

expected precision:  the mean confidence of a run's pairs
agreement:           of the pairs with a row that is also in a pair of another run, the share which that run has too
A run is trusted if its own verdicts are ok and it agrees with at least half of the other runs whose verdicts are ok;
with --gold, the gold pairs decide.
If no run can be trusted, the exit code is 3.
Runs by `kedge unite` are compared with each other by their groups.""",
    )
    parser.add_argument(
        "run_folders",
        metavar="RUN",
        type=Path,
        nargs="+",
        help="two or more folders written by `kedge discover`, or by `kedge unite`",
    )
    add_gold(parser, required=False)
    parser.add_argument("--examples", metavar="N", type=positive, default=10, help="list N disagreements (10)")
    add_page(parser, "-o", "--out", default=None)
    add_overwrite(parser)


def run(arguments: argparse.Namespace) -> int:
    """Load, compare, print, write the page."""
    from kedge.cli.output import print_json, print_page
    from kedge.cli.output_files import require_free
    from kedge.errors import InputError
    from kedge.estimators import load
    from kedge.report import require_page_target, write_comparison
    from kedge.runs.description import holds_common_space
    from kedge.tasks import compare_runs

    if arguments.out:
        require_page_target(arguments.out)
        require_free(arguments)
    folders = _distinct(arguments.run_folders)
    of_many = [holds_common_space(folder) for folder in folders]
    if all(of_many):
        return _compare_common(arguments, folders)
    if any(of_many):
        raise InputError(
            f"{folders[of_many.index(True)]}: is a run of many spaces, and {folders[of_many.index(False)]} one of two; "
            "compare runs of the same kind"
        )
    named = {str(folder): load(folder) for folder in folders}
    truth = _read_truth(arguments, named) if arguments.gold else None
    compared = compare_runs(named, truth=truth, examples=arguments.examples)
    if arguments.out:
        write_comparison(arguments.out, compared)
    if arguments.json:
        print_json(as_json(compared) | {"out": str(arguments.out) if arguments.out else None})
    else:
        print_compared(compared)
        if arguments.out:
            print_page(arguments.out)
    return 0 if compared.trust.run is not None else EXIT_NOT_PASSED


def _compare_common(arguments: argparse.Namespace, folders: list[Path]) -> int:
    """Compare runs of many spaces."""
    from dataclasses import asdict

    from kedge.cli.output import print_json, print_line, print_table
    from kedge.errors import InputError
    from kedge.many.common_space import CommonSpace
    from kedge.tasks import COMMON_COLUMNS, compare_common_runs

    if arguments.gold:
        raise InputError("--gold: for runs of many spaces only `kedge evaluate` takes it, one run at a time; omit it")
    if arguments.out:
        raise InputError("-o: runs of many spaces are compared without a page; omit it, or use --json")
    compared = compare_common_runs({str(folder): CommonSpace.load(folder) for folder in folders})
    if arguments.json:
        print_json(asdict(compared))
    else:
        print_table(COMMON_COLUMNS, compared.table())
        print_line()
        print_table(("groups of, the same in", *(run.name for run in compared.runs)), compared.agreement_table())
        print_line()
        trusted = ("No run can be trusted", "bold red")
        if compared.trusted is not None:
            trusted = (f"Trust {compared.trusted}", "bold green")
        print_line(trusted, f": {compared.reason}")
    return 0 if compared.trusted is not None else EXIT_NOT_PASSED


def as_json(compared: RunComparison) -> dict[str, Any]:
    """The documented JSON object."""
    trusted, what, reason = compared.trust
    return {
        "trust": {"run": None if trusted is None else compared.names[trusted], "for": what, "reason": reason},
        "runs": [
            {
                "name": run.name,
                "searching": run.health.searching,
                "pairs": run.health.pairs,
                "found": run.pairs,
                "expected_precision": run.expected_precision,
                "agreement": run.agreement,
                "anchors": run.anchors,
                "seeds": run.seeds,
                "seconds": run.seconds,
                "inputs": run.inputs,
                "gold": run.gold and run.gold._asdict(),
            }
            for run in compared.runs
        ],
        "between": [
            {"pairs_of": one, "in": other} | agreement._asdict() | {"share": agreement.share}
            for one, row in zip(compared.names, compared.agreements, strict=True)
            for other, agreement in zip(compared.names, row, strict=True)
            if one != other
        ],
        "agreed": {"pairs": compared.agreed, "confidence": compared.agreed_confidence},
        "disputed": {
            "rows": compared.disputed,
            "examples": [
                {"x": each.key, "partners": [partner and partner._asdict() for partner in each.partners]}
                for each in compared.disagreements
            ],
        },
        "settings": compared.settings,
        "remarks": compared.remarks,
    }


def print_compared(compared: RunComparison) -> None:
    """Print the same for people."""
    from kedge.cli.output import print_line, print_table
    from kedge.tasks import GOLD_COLUMNS, RUN_COLUMNS

    print_table((*RUN_COLUMNS, *(GOLD_COLUMNS if compared.runs[0].gold else ())), compared.table())
    if compared.settings:
        print_line()
        print_table(("settings that differ", *compared.names), compared.setting_table())
    for remark in compared.remarks:
        print_line(remark)
    print_line()
    print_table(("pairs of, the same in", *compared.names), compared.agreement_table())
    sure = "" if compared.agreed_confidence is None else f", with mean confidence {compared.agreed_confidence:.2f}"
    print_line(
        f"In all of them: {compared.agreed:,} pairs{sure}. With different partners: {compared.disputed:,} rows of X."
    )
    if compared.disagreements:
        print_line()
        print_table(("different partners, most confident first", *compared.names), compared.disagreement_table())
    print_line()
    if compared.trust.run is None:
        print_line(("No run can be trusted.", "bold red"), f" {compared.trust.reason}")
    else:
        trusted = f"Trust the {compared.trust.what} of {compared.names[compared.trust.run]}"
        print_line((trusted, "bold green"), f": {compared.trust.reason}")


def _distinct(folders: list[Path]) -> list[Path]:
    """The folders, if none is named twice."""
    from kedge.errors import InputError

    seen: dict[Path, Path] = {}
    for folder in folders:
        if folder.resolve() in seen:
            raise InputError(f"{folder}: is the same run as {seen[folder.resolve()]}; name each once")
        seen[folder.resolve()] = folder
    return folders


def _read_truth(arguments: argparse.Namespace, named: dict[str, AnchorDiscovery]) -> Truth:
    """Read `--gold` for the keys of the runs."""
    from kedge.cli.output import note
    from kedge.tasks import Truth, keys_of_runs

    x, y = keys_of_runs(named.values())
    gold = read_gold(arguments, x, y)
    note(f"gold: {describe_pairs(gold)}")
    return Truth(x, y, gold.pairs, complete=gold.complete)
