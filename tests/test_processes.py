"""Several processes do what one does, up to rounding; and when one of them dies, none pretends that it worked."""

from __future__ import annotations

import functools
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pytest
import torch

from kedge import Embeddings, InputError, load, read_embeddings, write_embeddings
from kedge.cli.main import main
from kedge.matching import Processes, match_csls, processes
from kedge.matching.processes import Traffic
from kedge.spaces.pairs import write_table

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="needs gloo and POSIX signals"),
    pytest.mark.skipif(not torch.distributed.is_available(), reason="torch was built without torch.distributed"),
]


def torchrun(count: int, *arguments: object, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
    return subprocess.run(
        [*command, *map(str, arguments)], capture_output=True, text=True, timeout=timeout, env=environment
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory, words, word_seeds) -> Path:
    """Two memory-mapped spaces and seeds; the second space has three rows less, so that shares differ."""
    path = tmp_path_factory.mktemp("processes")
    write_embeddings(words[0], path / "x.npy")
    write_embeddings(words[1].take(range(1997)), path / "y.npy")
    present = set(words[1].keys[:1997])
    write_table(path / "seeds.tsv", ("x", "y"), [pair for pair in word_seeds if pair[1] in present])
    return path


def arguments(folder: Path, out: str, *more: str) -> list[str]:
    files = [str(folder / name) for name in ("x.npy", "y.npy")]
    options = ["--seeds", str(folder / "seeds.tsv"), "--anchors", "50", "--device", "cpu", "--out", str(folder / out)]
    return ["discover", *files, *options, *more]


@pytest.fixture(scope="module")
def alone(folder):
    assert main(arguments(folder, "alone")) == 0
    return load(folder / "alone")


@pytest.mark.thorough
@pytest.mark.parametrize("count", [2, 4])
def test_the_result_is_that_of_one_process(folder, alone, count):
    done = torchrun(count, "-m", "kedge", *arguments(folder, f"run{count}", "--json"))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["health"]["map"]["verdict"] == "ok"  # printed once
    assert f"{count} processes" in done.stderr
    together = load(folder / f"run{count}")
    ours, theirs = set(together.pair_keys_), set(alone.pair_keys_)
    assert len(ours & theirs) >= 0.999 * len(ours | theirs)
    assert np.mean(together.match_ == alone.match_) >= 0.999
    np.testing.assert_array_equal(together.anchors_x_, alone.anchors_x_)
    np.testing.assert_allclose(together.map_, alone.map_, atol=1e-3)
    assert together.health_.map.score == pytest.approx(alone.health_.map.score, abs=0.02)
    assert len(together.history_) == len(alone.history_)
    assert not (folder / f"run{count}.checkpoint").exists()


@pytest.mark.thorough
def test_no_seeds_and_anchors_far_apart_work_in_processes_too(folder):
    def command(out: str) -> list[str]:
        files = [str(folder / name) for name in ("x.npy", "y.npy")]
        options = ["--anchors", "50", "--anchor-choice", "farthest", "--limit", "1200", "--device", "cpu"]
        return ["discover", *files, *options, "--force", "--out", str(folder / out)]

    done = torchrun(2, "-m", "kedge", *command("farthest2"))
    assert done.returncode == 0, done.stderr
    assert main(command("farthest1")) == 0
    ours, theirs = load(folder / "farthest2"), load(folder / "farthest1")
    np.testing.assert_array_equal(ours.anchors_x_, theirs.anchors_x_)
    assert ours.health_.map.verdict == theirs.health_.map.verdict
    assert np.mean(ours.match_ == theirs.match_) >= 0.99


PARTS = """
import torch
from kedge.solving.alignment import pair_moments
from kedge.matching.problem import Problem
from kedge.geometry import moments_of, unit
from kedge.matching import *
torch.set_num_threads(1)
draw = torch.Generator().manual_seed(0)
a, b = (unit(torch.randn(n, 12, generator=draw)) for n in (101, 67))
def divided(rows):
    return Rows.divided(rows[processes().share(len(rows))].clone(), len(rows))
penalty = torch.rand(67, generator=draw)
whole = match_csls(a, b)
assigned = assign_distinct(a[:9], b, penalty)
step = transport_step(a, b, torch.zeros(67), 0.05)
close = torch.testing.assert_close
with several_processes(torch.device("cpu")) as here:
    assert here.count == 3
    x, y = divided(a), divided(b)
    assert len(x.own) < 40 and x.whole is None
    match = match_csls(x, y)
    assert torch.equal(match.partner, whole.partner)
    close(match.margin, whole.margin); close(match.column_hubness, whole.column_hubness)
    mixed = match_csls(Rows.shared(a), y)
    assert torch.equal(mixed.partner, whole.partner); close(mixed.margin, whole.margin)
    assert torch.equal(assign_distinct(a[:9], y, penalty), assigned)
    ours = transport_step(x, b, torch.zeros(67), 0.05)
    close(x.joined(ours.targets), step.targets); close(ours.potential, step.potential)
    assert abs(ours.sharpness - step.sharpness) < 1e-5
    chosen = torch.tensor([100, 3, 3, 50])
    assert torch.equal(x.take(chosen), a[chosen]) and torch.equal(x.gathered(), a)
    assert torch.equal(y.without(torch.arange(30)).gathered(), b[30:])  # the first process has none left
    fewer, less = match_csls(x, y.without(torch.arange(30))), match_csls(a, b[30:])
    close(fewer.margin, less.margin)
    close(x.sent(lambda rows: rows * 2).gathered(), 2 * a)
    none = torch.empty(0, dtype=torch.int64)
    problem = Problem(x, y, none, none, 2**20)
    rows_x, rows_y = torch.arange(60), torch.arange(60).flip(0)
    found, expected = pair_moments(problem, rows_x, rows_y), moments_of(a[rows_x], b[rows_y])
    close(found.cross, expected.cross, rtol=1e-5, atol=1e-6); close(found.source, expected.source, rtol=1e-5, atol=1e-6)
    assert torch.equal(here.from_first(torch.full((2,), float(here.rank))), torch.zeros(2))
    each = torch.tensor([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0]])
    here.traffic.clear()
    close(here.log_sum_exp(each[here.rank].clone()), each.logsumexp(0))
    assert here.traffic.calls == {"greatest": 1, "sum": 1} and here.traffic.payload == {"greatest": 8, "sum": 8}
    told = here.object_from_first({"rank": here.rank, "rows": each})
    assert told["rank"] == 0 and torch.equal(told["rows"], each)
    assert here.traffic.calls["object_from_first"] == 2 and here.traffic.payload["object_from_first"] > each.nbytes
    if here.leads:
        print("all parts agree")
"""


def test_every_part_agrees_with_its_undivided_form(tmp_path):
    """Matching, assignment, transport, moments: shares of different sizes, one of them empty in between."""
    (tmp_path / "parts.py").write_text(PARTS)
    done = torchrun(3, tmp_path / "parts.py")
    assert done.returncode == 0, done.stderr
    assert "all parts agree" in done.stdout


BENCHMARK = Path(__file__).parents[1] / "benchmarks" / "processes.py"
BLOCKS = ["match_csls", "match_csls, X a sample", "second_margins", "transport_step", "pair_moments", "spectra"]


@pytest.mark.thorough
@pytest.mark.parametrize("count", [2, 3])
def test_what_processes_tell_each_other_is_what_the_model_says(tmp_path, count):
    """Call by call and byte for byte in the building blocks, and all but a little in a whole fit."""
    done = torchrun(count, BENCHMARK, "--traffic", "--limit", "600", "--json", tmp_path / "traffic.json")
    assert done.returncode == 0, done.stderr
    told = json.loads((tmp_path / "traffic.json").read_text())
    for name in (*BLOCKS, "fit_model", "cross_fitted"):
        assert told[name]["counted"] == told[name]["predicted"], name
    stages = [name for name in told if name.startswith(("fit,", "fit on a part,"))]
    assert len(stages) == 12
    for name in stages:
        ours, theirs = (told[name][side]["payload"] for side in ("counted", "predicted"))
        assert sum(theirs.values()) == pytest.approx(sum(ours.values()), rel=0.05), name
        # What grows with the spaces goes in turn.
        assert theirs.get("in_turn", 0) == pytest.approx(ours.get("in_turn", 0), rel=0.02), name


def test_one_process_alone_tells_nothing(rotated):
    x, y = rotated(60)
    match_csls(torch.from_numpy(x), torch.from_numpy(y))
    assert processes().traffic == Traffic()
    assert Processes(1, 2) == Processes(1, 2, Traffic())  # the tally is nothing that tells processes apart


DYING = """
import os, signal, sys
from kedge.solving import annealing
from kedge.cli.main import entry_point
count, step = 0, annealing.transport_step
def dies(*arguments, **options):
    global count
    count += 1
    if count == 5 and os.environ["RANK"] == "1":
        os.kill(os.getpid(), signal.SIGKILL)
    return step(*arguments, **options)
annealing.transport_step = dies
entry_point()
"""


@pytest.mark.thorough
def test_when_one_dies_all_stop_and_nothing_half_written_is_left(folder, tmp_path):
    (tmp_path / "dying.py").write_text(DYING)
    done = torchrun(2, tmp_path / "dying.py", *arguments(folder, "dead"), timeout=120)
    assert done.returncode != 0
    assert not (folder / "dead").exists()
    assert not [path for path in folder.iterdir() if path.name.startswith(".kedge")]
    # What was reached before is kept, and one process can go on from it.
    assert (folder / "dead.checkpoint").is_dir()
    assert main(arguments(folder, "dead", "--resume")) == 0
    assert load(folder / "dead").health_.map.verdict == "ok"
    assert not (folder / "dead.checkpoint").exists()


@pytest.mark.thorough
def test_the_others_notice_a_death_without_torchrun_too(folder, tmp_path):
    """Started by hand, nobody kills the survivor: it must find out by itself, and say so in one line."""
    (tmp_path / "dying.py").write_text(DYING)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    world = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    first, second = (
        subprocess.Popen(
            [sys.executable, str(tmp_path / "dying.py"), *arguments(folder, "survivor")],
            env=os.environ | world | {"RANK": str(rank), "LOCAL_RANK": str(rank), "OMP_NUM_THREADS": "1"},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    )
    second.communicate(timeout=120)
    _, told = first.communicate(timeout=120)
    assert (first.returncode, second.returncode) == (2, -signal.SIGKILL)
    assert "kedge: error: another of the processes that share this work has stopped" in told
    assert not (folder / "survivor").exists()


# Two processes, of which one fails in a given way, then two more that go on. They are forked: torch is imported once.
FAILING = """
import json, os, pkgutil, signal, socket, sys, traceback
from pathlib import Path
import kedge.cli.output, kedge.cli.progress, kedge.discovery, rich.progress, rich.table
from kedge.cli.main import entry_point
WATCHED = {
    "kedge.spaces:read_embeddings": lambda *given: "reading",
    "kedge.estimators.anchor_discovery:load_normalised": lambda *given: "loading",
    "kedge.runs.journal:Journal.recall": lambda journal, name, *given: f"before {name}",
    "kedge.runs.journal:Journal.tell": lambda journal, step: step.stage,
    "kedge.estimators.findings:choose_map": lambda *given: "maps",
    "kedge.estimators.anchor_discovery:_keys_without": lambda *given: "done",
    "kedge.runs.folder:write_table": lambda *given: "writing",
}
def watch(place, event, happened):
    owner, name = place.replace(":", ".").rsplit(".", 1)
    owner = pkgutil.resolve_name(owner)
    function = getattr(owner, name)
    def watched(*given, **options):
        happened(event(*given))
        return function(*given, **options)
    setattr(owner, name, watched)
def fail_at(wanted, times, how):
    def happened(event):
        nonlocal times
        times -= event == wanted
        if event == wanted and times == 0:
            if how == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            raise MemoryError
    for place, event in WATCHED.items():
        watch(place, event, happened)
def start(rank, port, arguments, failure, told):
    child = os.fork()
    if child:
        return child
    try:
        signal.alarm(120)  # none waits for ever
        here = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, "MASTER_PORT": port}
        os.environ.update({name: str(value) for name, value in here.items()} | {"MASTER_ADDR": "127.0.0.1"})
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(os.open(told, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
        if failure and failure["rank"] == rank:
            fail_at(failure["event"], failure["times"], failure["how"])
        sys.argv = ["kedge", *arguments]
        entry_point()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)
def run(arguments, failure=None):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    files = [Path(f"told-{rank}.txt") for rank in range(2)]
    children = [start(rank, port, arguments, failure, file) for rank, file in enumerate(files)]
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    return {"codes": codes, "told": [file.read_text() for file in files]}
outcomes = {}
for name, (arguments, failure) in json.load(sys.stdin).items():
    arguments = [*arguments, "--out", name]
    failed = run(arguments, failure)
    left = sorted(path.name for path in Path().iterdir() if name in path.name or path.name.startswith(".kedge-"))
    resumed = run([*arguments, "--resume"]) if failure and name not in left else None
    outcomes[name] = {"failed": failed, "left": left, "resumed": resumed}
print(json.dumps(outcomes))
"""


class Failure(NamedTuple):
    """Which event, and the how manieth of them, one of two processes does not survive, in what way, and which of them.

    Events are the steps that are told, and what `WATCHED` names besides.
    """

    event: str
    times: int
    how: Literal["killed", "out of memory"]
    rank: int

    @property
    def name(self) -> str:
        return "-".join(map(str, self)).replace(" ", "-")

    @property
    def options(self) -> list[str]:
        """Rivals compete only where no row is known to recognise another."""
        return ["--disjoint"] if self.event == "rivals" else []


ONE_FAILURE = [Failure("finish", 1, "killed", 1)]
FAILURES = [
    Failure("reading", 2, "killed", 1),
    Failure("anneal", 5, "out of memory", 1),
    Failure("rivals", 2, "killed", 0),
    Failure("confidence", 1, "killed", 1),
    Failure("maps", 2, "out of memory", 0),
    Failure("writing", 2, "killed", 0),
    Failure("health", 1, "killed", 0),
    Failure("before illusion", 1, "out of memory", 1),
    Failure("loading", 2, "out of memory", 0),
    Failure("reading", 1, "out of memory", 1),
    Failure("loading", 1, "killed", 0),
    Failure("anneal", 1, "killed", 1),
    Failure("anneal", 20, "killed", 0),
    Failure("finish", 2, "out of memory", 0),
    Failure("before illusion", 1, "killed", 0),
    Failure("rivals", 3, "out of memory", 1),
    Failure("health", 1, "out of memory", 1),
    Failure("confidence", 2, "out of memory", 0),
    Failure("maps", 1, "killed", 1),
    Failure("writing", 1, "out of memory", 0),
]
AT_THE_END = Failure("done", 2, "killed", 1)


@pytest.fixture(scope="module")
def bring_about(tmp_path_factory):
    """A function that brings about failures, all by one program, and says in which folder and what came of them."""

    @functools.cache
    def outcomes(*failures: Failure) -> tuple[Path, dict[str, Any]]:
        path = tmp_path_factory.mktemp("failing")
        chance = np.random.default_rng(0)
        x = chance.standard_normal((200, 24)) * np.geomspace(1, 0.2, 24)
        turn, _ = np.linalg.qr(chance.standard_normal((24, 24)))
        np.save(path / "x.npy", x.astype(np.float32))
        np.save(path / "y.npy", (x @ turn + 0.05 * chance.standard_normal(x.shape))[:197].astype(np.float32))
        write_table(path / "seeds.tsv", ("x", "y"), [(str(row), str(row)) for row in range(0, 197, 12)])
        (path / "failing.py").write_text(FAILING)
        wanted = {tuple(each.options) for each in failures}
        common = ["discover", "x.npy", "y.npy", "--seeds", "seeds.tsv", "--anchors", "20", "--device", "cpu"]
        cases = {"".join(["undisturbed", *options]): ([*common, *options], None) for options in wanted}
        cases |= {each.name: ([*common, *each.options], each._asdict()) for each in failures}
        program = subprocess.run(
            [sys.executable, "failing.py"],
            cwd=path,
            input=json.dumps(cases),
            capture_output=True,
            text=True,
            timeout=600,
            env=os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "NO_COLOR": "1"},
        )
        assert program.returncode == 0, program.stderr
        return path, json.loads(program.stdout)

    return outcomes


def same_run(one: Path, other: Path) -> bool:
    """Whether two run folders hold the same, times aside."""
    names = {path.name for path in one.iterdir()}
    assert names == {path.name for path in other.iterdir()}
    return all((one / name).read_bytes() == (other / name).read_bytes() for name in names - {"run.json"})


@pytest.mark.parametrize(
    ("failure", "among"),
    [
        *(pytest.param(each, ONE_FAILURE, id=each.name) for each in ONE_FAILURE),
        *(pytest.param(each, [*FAILURES, AT_THE_END], id=each.name, marks=pytest.mark.thorough) for each in FAILURES),
    ],
)
def test_a_failure_at_any_stage_stops_all_and_two_others_go_on(bring_about, failure, among):
    path, outcomes = bring_about(*among)
    failed, left, resumed = (outcomes[failure.name][part] for part in ("failed", "left", "resumed"))
    survivor, killed = 1 - failure.rank, failure.how == "killed"
    assert failed["codes"][failure.rank] == (-signal.SIGKILL if killed else 2), failed["told"]
    assert failed["codes"][survivor] == 2, failed["told"]
    assert "kedge: error: another of the processes that share this work has stopped" in failed["told"][survivor]
    assert killed or "kedge: error: not enough memory" in failed["told"][failure.rank]
    assert not any("Traceback" in told for told in failed["told"])
    # Nothing is there but what can be gone on from; who is killed leaves the files of its locks, which lock nothing any
    # more, and while it writes a hidden folder.
    locks = [entry for entry in left if entry.endswith(".kedge-lock")]
    assert not locks or (killed and failure.rank == 0)
    hidden = [entry for entry in left if entry.startswith(".kedge-")]
    assert len(hidden) == (killed and failure.event == "writing")
    kept = failure.event not in ("reading", "loading")
    assert set(left) - set(hidden) - set(locks) == ({f"{failure.name}.checkpoint"} if kept else set())
    assert resumed["codes"] == [0, 0], resumed["told"]
    assert ("going on from" in resumed["told"][0]) == kept
    assert same_run(path / failure.name, path / "".join(["undisturbed", *failure.options]))
    lost = (f"{failure.name}.checkpoint", f".{failure.name}.kedge-lock", f".{failure.name}.checkpoint.kedge-lock")
    assert not any((path / name).exists() for name in lost)
    assert not list(path.glob(".kedge-*"))


@pytest.mark.thorough
def test_a_process_that_dies_when_all_is_told_does_not_spoil_the_run(bring_about):
    """The first one needs nobody any more to write what was found; but that one of them died is said."""
    path, outcomes = bring_about(*FAILURES, AT_THE_END)
    outcome = outcomes[AT_THE_END.name]
    assert outcome["failed"]["codes"] == [2, -signal.SIGKILL]
    assert "another of the processes that share this work has stopped" in outcome["failed"]["told"][0]
    assert outcome["left"] == [AT_THE_END.name]
    assert same_run(path / AT_THE_END.name, path / "undisturbed")


@pytest.mark.thorough
def test_a_process_whose_share_is_bad_names_the_row(folder, tmp_path, words):
    vectors = np.array(words[0].vectors)
    vectors[1900] = np.nan
    np.save(tmp_path / "x.npy", vectors)
    (tmp_path / "x.keys.txt").write_text("".join(f"{key}\n" for key in words[0].keys))
    done = torchrun(2, "-m", "kedge", "discover", tmp_path / "x.npy", *arguments(folder, "bad")[2:])
    assert done.returncode != 0
    assert "(row 1900) has NaN or infinite values" in done.stderr
    assert not (folder / "bad").exists()


def test_only_the_own_share_of_a_file_is_looked_at(tmp_path):
    vectors = np.ones((10, 3), dtype=np.float32)
    vectors[7] = np.nan
    np.save(tmp_path / "x.npy", vectors)
    space = read_embeddings(tmp_path / "x.npy", share=(0, 2))
    assert (len(space), isinstance(space.vectors, np.memmap)) == (10, True)
    with pytest.raises(InputError, match="row 7"):
        read_embeddings(tmp_path / "x.npy", share=(1, 2))
    with pytest.raises(InputError, match="row 7"):
        read_embeddings(tmp_path / "x.npy")


def test_shares_cover_all_rows_evenly():
    for total in (1, 2, 7, 1000):
        for count in (1, 2, 3, 4):
            spans = [Processes(rank, count).share(total) for rank in range(count)]
            assert [row for span in spans for row in range(total)[span]] == list(range(total))
            sizes = [span.stop - span.start for span in spans]
            assert max(sizes) - min(sizes) <= 1
            assert Processes(0, count).shares(total) == (0, *(span.stop for span in spans))
    assert processes().alone


def test_half_of_torchrun_s_variables_is_one_clear_line(folder):
    environment = {name: value for name, value in os.environ.items() if name != "RANK"} | {"WORLD_SIZE": "2"}
    done = subprocess.run(
        [sys.executable, "-m", "kedge", *arguments(folder, "half")], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 2
    assert "cannot be reached" in done.stderr
    assert "Traceback" not in done.stderr


def test_other_verbs_and_methods_say_that_they_do_not_divide(monkeypatch, capsys, folder):
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert main(["info", str(folder / "x.npy")]) == 2
    assert "only `discover` divides its work" in capsys.readouterr().err
    monkeypatch.delenv("WORLD_SIZE")
    from kedge import AnchorDiscovery
    from kedge.matching.processes import _current

    token = _current.set(Processes(0, 2))
    try:
        with pytest.raises(InputError, match="method 'paper' runs in one process"):
            AnchorDiscovery(method="paper").fit(np.eye(4), np.eye(4))
        with pytest.raises(InputError, match="fewer rows than processes"):
            AnchorDiscovery(n_anchors=1).fit(Embeddings(["a"], np.ones((1, 2))), Embeddings(["a"], np.ones((1, 2))))
    finally:
        _current.reset(token)
