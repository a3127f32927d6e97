"""Which rows are suggested, against a plain version of the choice, and `kedge suggest` as a user sees it."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from kedge import InputError
from kedge.cli.main import main
from kedge.geometry import unit
from kedge.tasks import suggest
from kedge.tasks.suggestion import _choose


def run(*arguments) -> int:
    return main([str(argument) for argument in arguments])


def chosen_plainly(rows, known, doubt, cluster, k):
    """With the whole of (I + sum u u')^-1 computed anew at every step."""
    chosen, used = [], set()
    for _ in range(k):
        settled = np.eye(rows.shape[1]) + sum(np.outer(u, u) for u in [*known, *rows[chosen]])
        doubts = np.linalg.norm(rows @ np.linalg.inv(settled) @ doubt, axis=1)
        free = [row for row in range(len(rows)) if row not in chosen and cluster[row] not in used]
        if not free:
            used, free = set(), [row for row in range(len(rows)) if row not in chosen]
        best = max(free, key=lambda row: doubts[row])
        chosen.append(best)
        used.add(cluster[best])
    return chosen


def test_the_choice_is_that_of_the_plain_version():
    chance = torch.Generator().manual_seed(0)
    rows = unit(torch.randn(40, 6, generator=chance))
    known, doubt = unit(torch.randn(3, 6, generator=chance)), torch.randn(6, 4, generator=chance)
    cluster = np.arange(40) % 5
    found = [row for row, _ in _choose(rows, known, doubt, cluster, 12)]
    assert found == chosen_plainly(rows.numpy(), known.numpy(), doubt.numpy(), cluster, 12)


@pytest.mark.parametrize("side", ["x", "y"])
def test_suggestions_are_new_distinct_and_spread_out(fitted, words, side):
    found = suggest(fitted, *words, 40, side=side)
    keys = [suggestion.key for suggestion in found]
    seeds = {pair[side == "y"] for pair in fitted.seed_keys_}
    assert len(set(keys)) == 40
    assert not seeds & set(keys)
    assert set(keys) <= set(words[side == "y"].keys)
    assert len({suggestion.cluster for suggestion in found[:20]}) == 20
    assert all(0 < suggestion.doubt <= 2 for suggestion in found)
    assert keys == [suggestion.key for suggestion in suggest(fitted, *words, 40, side=side)]


def test_what_cannot_be_suggested(fitted, words):
    with pytest.raises(InputError, match="k must be from 1 to 1985"):
        suggest(fitted, *words, 2000)
    with pytest.raises(InputError, match="side must be"):
        suggest(fitted, *words, 5, side="z")
    with pytest.raises(InputError, match="is not what this run had as X"):
        suggest(fitted, words[1], words[0], 5)


def test_the_command(run_files, tmp_path, capsys):
    assert run("suggest", *run_files, "-k", "5") == 0
    named = capsys.readouterr().out.split()
    assert len(named) == 5
    assert run("suggest", *run_files, "-k", "5", "--json", "-o", tmp_path / "again.tsv") == 0
    listed = json.loads(capsys.readouterr().out)
    assert [suggestion["key"] for suggestion in listed["suggested"]] == named
    lines = (tmp_path / "again.tsv").read_text().splitlines()
    assert lines[0] == "key\tdoubt\tcluster"
    assert [line.split("\t")[0] for line in lines[1:]] == named
    assert run("suggest", *run_files, "-k", "5", "-o", tmp_path / "again.tsv") == 2
    assert "already exists" in capsys.readouterr().err
