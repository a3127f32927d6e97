"""What reaches a terminal: data that cannot command it, words that are nearly right, completion by the shell."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from kedge import Embeddings, InputError, read_embeddings, write_embeddings
from kedge.cli import output
from kedge.cli.main import main
from kedge.cli.progress import counting_bar
from kedge.errors import did_you_mean
from kedge.runs.folder import seal
from kedge.spaces.pairs import read_pairs, read_table, write_table

FORGED = "ALIGNED"
# Clipboard, title, clear the screen, a line of its own, 8-bit CSI, turned writing, other line ends, delete.
HOSTILE = (
    "\x1b]52;c;ZXZpbA==\x07",
    "\x1b]0;title\x07",
    "\x1b[2J",
    f"cat\n{FORGED}",
    f"cat\r{FORGED}",
    "\x9b31m",
    "\u202egnp",
    f"\u2028{FORGED}",
    f"\x85{FORGED}",
    "\u2066x\x7f\x00y",
    "[bold]no markup[/]",
    "[/]",
)
EVIL = f"evil\x1b[2J\n{FORGED}"
INPUTS = ("run", "x.npz", "y.npz", "labels.tsv")
RAW = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
COLOUR = re.compile("\x1b\\[[0-9;]*m")


def run(*arguments) -> int:
    return main([str(argument) for argument in arguments])


def exit_code(*arguments) -> int:
    """Also of what the parser refuses, or does itself."""
    try:
        return run(*arguments)
    except SystemExit as stopped:
        return int(stopped.code or 0)


def assert_harmless(*texts: str) -> None:
    for text in texts:
        assert not RAW.search(text), repr(RAW.search(text))
        assert not any(line.startswith(FORGED) for line in text.splitlines())


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Two spaces whose keys, and the folder's own name, hold what a terminal would obey."""
    path = tmp_path_factory.mktemp("terminal") / EVIL
    path.mkdir()
    chance = np.random.default_rng(0)
    x = chance.standard_normal((120, 16)) * np.geomspace(1, 0.2, 16)
    rotation, _ = np.linalg.qr(chance.standard_normal((16, 16)))
    keys = [*HOSTILE, *(f"r{row}\x1b[5m" for row in range(120 - len(HOSTILE)))]
    write_embeddings(Embeddings(keys, x), path / "x.npz")
    write_embeddings(Embeddings(keys, x @ rotation), path / "y.npz")
    write_table(path / "seeds.tsv", ("x", "y"), [(key, key) for key in keys[:14]] + [(keys[14], keys[15])])
    write_table(path / "labels.tsv", ("key", "label"), [(key, f"\x1b[{row % 2}m") for row, key in enumerate(keys)])
    return path


@pytest.fixture(scope="module")
def spaces(folder):
    return folder / "x.npz", folder / "y.npz"


@pytest.fixture(scope="module")
def discovered(folder, spaces) -> str:
    """What `kedge discover` prints, on either stream."""
    seeds, printed = folder / "seeds.tsv", io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        assert run("discover", *spaces, "--seeds", seeds, "--anchors", 20, "--out", folder / "run") == 0
    return printed.getvalue()


@pytest.fixture(scope="module")
def run_folder(folder, discovered) -> Path:
    return folder / "run"


def test_discover_prints_no_key_as_it_is(discovered):
    assert_harmless(discovered)
    assert r"evil\x1b[2J\nALIGNED" in discovered
    assert r"r2\x1b[5m = r3\x1b[5m" in discovered  # the doubtful seed


def test_search_shows_escapes_and_what_looks_like_markup(run_folder, spaces, capsys):
    assert run("search", run_folder, *spaces, *HOSTILE[2:4], "[/]") == 0
    printed = capsys.readouterr()
    assert_harmless(*printed)
    assert [line.split(":  ")[0] for line in printed.out.splitlines()] == [r"\x1b[2J", r"cat\nALIGNED", "[/]"]


@pytest.mark.parametrize(
    "command",
    [
        "info x.npz",
        "info run",
        pytest.param("check x.npz y.npz --limit 25", marks=pytest.mark.thorough),
        "evaluate run x.npz y.npz --gold keys",
        "rehearse run x.npz y.npz --known keys --fail-under 1",
        "suggest run x.npz y.npz -k 100 --side x",
        "suggest run x.npz y.npz -k 5 -o suggested.tsv",
        "translate run x.npz -o in-y.npz",
        "project run Y y.npz -o relative.npz",
        "convert x.npz copy.npz",
        "export run -o to-y.npz",
        "export run -o pairs.tsv",
        pytest.param(
            "stitch run --train x.npz --labels labels.tsv --predict y.npz --head mlp -o told.tsv",
            marks=pytest.mark.thorough,
        ),
        "report run x.npz y.npz --gold keys -o page.html",
    ],
)
@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
def test_no_command_prints_data_as_they_are(command, as_json, run_folder, tmp_path, capsys):
    inputs, outputs = run_folder.parent, tmp_path / EVIL
    outputs.mkdir()
    given = [inputs / word if word in INPUTS else outputs / word if "." in word else word for word in command.split()]
    assert run(*given, *["--json"] * as_json) in (0, 3)
    printed = capsys.readouterr()
    assert_harmless(*printed)
    if as_json:
        json.loads(printed.out)


def test_a_run_of_somebody_else_cannot_forge_its_verdict(run_folder, spaces, tmp_path, capsys):
    copy = shutil.copytree(run_folder, tmp_path / "copy")
    about = json.loads((copy / "run.json").read_text())
    for answer in ("searching", "pairs"):
        about["health"][answer]["reason"] = f"\x1b[2Jgood\n{FORGED} [bold]yes[/bold] [/]"
        about["health"][answer]["advice"] = f"\x1b]0;x\x07\n{FORGED}"
    (copy / "run.json").write_text(json.dumps(about))
    seal(copy)
    for command in (["info", copy], ["evaluate", copy, *spaces, "--gold", "keys"]):
        assert run(*command) == 0
        printed = capsys.readouterr()
        assert_harmless(*printed)
        assert r"\x1b[2Jgood\nALIGNED [bold]yes[/bold] [/]" in printed.out


@pytest.mark.parametrize("evil", HOSTILE)
def test_errors_quote_what_they_complain_about(evil, spaces, capsys):
    for command in (
        ["info", f"gone{evil}.npz".replace("\x00", "")],
        ["search", f"gone{evil}".replace("\x00", ""), *spaces, "a"],
        [evil],
        ["info", "a", evil],
        ["discover", *spaces, "--out", "o", "--method", evil],
    ):
        assert exit_code(*command) == 2
        printed = capsys.readouterr()
        assert_harmless(*printed)
        assert printed.err.count("\n") == 1


def test_commands_have_no_other_way_to_print():
    ways = re.compile(r"\.print\(|\bprint\(|sys\.std|Console\b")
    known = {"output.py", "progress.py", "main.py", "completion.py"}
    files = [file for file in Path(output.__file__).parent.rglob("*.py") if file.name not in known]
    assert not [file.name for file in files if ways.search(file.read_text())]


def test_json_stays_equal_when_parsed(capsys):
    value = {key: [key] for key in HOSTILE}
    output.print_json(value)
    printed = capsys.readouterr().out
    assert_harmless(printed)
    assert json.loads(printed) == value
    output.print_json({"word": "été 日本"})
    assert "été 日本" in capsys.readouterr().out


def test_files_keep_keys_as_they_are(run_folder, spaces, tmp_path):
    assert run("convert", spaces[0], tmp_path / "copy.npz") == 0
    assert list(read_embeddings(tmp_path / "copy.npz").keys[: len(HOSTILE)]) == list(HOSTILE)
    assert set(HOSTILE[:5]) <= {line["x"] for line in read_table(run_folder / "seeds.tsv")}


def test_colours_of_its_own_remain_on_a_terminal(fitted, monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    output.print_health(fitted.health_)
    output.print_line(("title\x1b[2J", "bold"), "\n", HOSTILE[0])
    output.warn("\x1b[2J")
    output.note("\x9b")
    output.print_table(("key\x1b[2J", "n"), [(key, "1") for key in HOSTILE])
    printed = capsys.readouterr()
    assert "\x1b[1;32mOK\x1b[0m" in printed.out
    assert "\x1b[1mtitle\\x1b[2J\x1b[0m\\n\\x1b]52;c;ZXZpbA==\\x07\n" in printed.out
    assert "\x1b[1;31mWARNING\x1b[0m \\x1b[2J\n" in printed.err
    assert_harmless(*(COLOUR.sub("", text) for text in printed))
    assert len(printed.out.splitlines()) == 3 + 1 + 1 + len(HOSTILE)


def test_a_bar_shows_its_label_escaped(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    with counting_bar("encoding\x1b]0;x\x07[/]") as on_progress:
        on_progress(1, 2)
    printed = capsys.readouterr().err
    assert "\x1b]0" not in printed
    assert r"encoding\x1b]0;x\x07[/]" in printed


def test_half_characters_of_a_file_name_can_be_printed(capsys):
    """Names of files need not be UTF-8; Python holds their bytes as lone surrogates."""
    assert run("info", "caf\udce9.npz") == 2
    assert r"caf\udce9.npz: no such file" in capsys.readouterr().err
    output.print_line("caf\udce9")
    assert capsys.readouterr().out == "caf\\udce9\n"


@pytest.mark.parametrize("name", ["missing.npy", "no-suffix", "folder/missing.what"])
def test_info_says_missing_first(name, capsys):
    assert run("info", name) == 2
    assert capsys.readouterr().err == f"kedge: error: {name}: no such file or folder\n"


# What spreadsheets take as a formula


def test_tables_for_people_are_made_safe_where_asked(tmp_path):
    fields = ["=1+1", "+1+1", "-1+1", "@sum", '"=1+1"', "\uff1d1", "-5", "+0.25", "a=1", "'=1", ""]
    write_table(tmp_path / "plain.tsv", ("key",), ([field] for field in fields))
    write_table(tmp_path / "safe.tsv", ("key",), ([field] for field in fields), spreadsheet_safe=True)
    assert (tmp_path / "plain.tsv").read_text().split("\n")[1:-1] == fields
    safe = (tmp_path / "safe.tsv").read_text().split("\n")[1:-1]
    assert safe == [f"'{field}" for field in fields[:6]] + fields[6:]


def test_pairs_of_a_run_are_exported_as_a_safe_table(run_files, tmp_path, capsys):
    run_folder = run_files[0]
    assert run("export", run_folder, "--to", "pairs", "-o", tmp_path / "pairs.tsv") == 0
    assert (tmp_path / "pairs.tsv").read_bytes() == Path(run_folder, "pairs.tsv").read_bytes()
    assert run("export", run_folder, "-o", tmp_path / "to-y.npz", "--spreadsheet-safe") == 2
    assert "--spreadsheet-safe is for tables" in capsys.readouterr().err


def test_commands_write_safe_tables(tmp_path, small_files):
    x, y = (read_embeddings(file) for file in small_files[:2])
    for name, space in (("x.npz", x), ("y.npz", y)):
        write_embeddings(Embeddings([f"=cmd|{key}" for key in space.keys], space.vectors), tmp_path / name)
    files = tmp_path / "x.npz", tmp_path / "y.npz"
    write_table(tmp_path / "seeds.tsv", ("x", "y"), [(f"=cmd|r{row}",) * 2 for row in range(15)])
    folder = tmp_path / "run"
    assert run("discover", *files, "--seeds", tmp_path / "seeds.tsv", "--anchors", 20, "--out", folder) == 0
    assert run("export", folder, "-o", tmp_path / "pairs.tsv", "--spreadsheet-safe") == 0
    assert run("suggest", folder, *files, "-k", 5, "-o", tmp_path / "more.tsv", "--spreadsheet-safe") == 0
    for name, column in (("pairs.tsv", "x"), ("pairs.tsv", "y"), ("more.tsv", "key")):
        table = read_table(tmp_path / name)
        assert table
        assert all(line[column].startswith("'=cmd|") for line in table)
    assert all(line["x"].startswith("=cmd|") for line in read_table(folder / "pairs.tsv"))  # the run keeps its keys


# Nearly the right word


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["discver"], "argument COMMAND: invalid choice: 'discver'; did you mean 'discover'? See `kedge --help`"),
        (["encode", "txt"], "did you mean 'text'? See `kedge encode --help`"),
        (["discover", "a", "b", "--out", "c", "--method", "papr"], "'papr'; did you mean 'paper'?"),
        (["qqqq"], "invalid choice: 'qqqq'; choose from demo, check, "),
    ],
)
def test_commands_and_choices(arguments, told, capsys):
    assert exit_code(*arguments) == 2
    assert told in capsys.readouterr().err


def test_keys(run_files, tmp_path, words, capsys):
    assert run("search", *run_files, "watter") == 2
    assert "unknown key 'watter'" in (told := capsys.readouterr().err)
    assert "did you mean 'water'?" in told
    (tmp_path / "seeds.tsv").write_text("water\tWATER\n")
    with pytest.raises(InputError, match=r"line 1: Y .* has no key 'WATER'; did you mean 'water'\?"):
        read_pairs(tmp_path / "seeds.tsv", *words)
    (tmp_path / "labels.tsv").write_text("watr\t1\n")
    from kedge.spaces import read_labels

    with pytest.raises(InputError, match=r"has no key 'watr'; did you mean 'water'\?"):
        read_labels(tmp_path / "labels.tsv", words[0], complete=False)


def test_columns(tmp_path):
    pytest.importorskip("apsw", reason="needs sqlite-vec: pip install 'kedge[sqlite-vec]'")
    pytest.importorskip("sqlite_vec", reason="needs sqlite-vec: pip install 'kedge[sqlite-vec]'")
    write_embeddings(Embeddings(["a", "b"], np.eye(2)), f"sqlite-vec:{tmp_path / 'store.db'}#items.embedding")
    with pytest.raises(InputError, match=r"no such column of vectors; did you mean 'embedding'\?"):
        read_embeddings(f"sqlite-vec:{tmp_path / 'store.db'}#items.embeding")


def test_fields_of_texts(tmp_path):
    from kedge.spaces.encoders import read_texts

    (tmp_path / "t.jsonl").write_text('{"texts": "a"}\n')
    with pytest.raises(InputError, match=r"there is no field 'text'; did you mean 'texts'\?"):
        read_texts(tmp_path / "t.jsonl")


def test_nearly_the_right_word_is_found_among_many_and_of_any_kind():
    known = dict.fromkeys(map(str, range(200_000)))
    known["Paris"] = None
    assert did_you_mean(" paris\n", known) == "; did you mean 'Paris'?"  # after more than are compared
    assert did_you_mean("x" * 1_000_000, known) == ""
    assert did_you_mean("caat", [1, ("cat",), "cat"]) == "; did you mean 'cat'?"
    assert did_you_mean("caat", []) == ""


# Completion


@pytest.fixture(scope="module")
def completions(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("completions")


def script(shell: str, folder: Path, capsys) -> Path:
    assert exit_code("--print-completion", shell) == 0
    path = folder / f"kedge.{shell}"
    path.write_text(capsys.readouterr().out)
    return path


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_valid_and_knows_every_command(shell, completions, capsys):
    path = script(shell, completions, capsys)
    assert all(word in path.read_text() for word in ("discover", "rehearse", "print-completion", "spreadsheet-safe"))
    if not shutil.which(shell):
        pytest.skip(f"needs {shell}")
    subprocess.run([shell, "-n", path], check=True, timeout=60)


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        (["disc"], ["discover"]),
        (["discover", "--seed"], ["--seeds", "--seed-format"]),
        (["discover", "--method", ""], ["alternate", "paper"]),
        (["encode", ""], ["images", "text"]),
        (["info", "wor"], ["words.npz"]),
        (["evaluate", "RUN", "x", "y", "--gold", "wor"], ["words.npz"]),
    ],
    ids=lambda words: " ".join(words),
)
def test_bash_completes(words, completed, completions, capsys):
    if not shutil.which("bash"):
        pytest.skip("needs bash")
    path = script("bash", completions, capsys)
    (completions / "words.npz").touch()
    lines = (
        f"source {path}",
        'COMP_WORDS=(kedge "$@"); COMP_CWORD=$#; _shtab_kedge kedge "${@: -1}" "${COMP_WORDS[$# - 1]}"',
        'printf "%s\\n" "${COMPREPLY[@]}"',
    )
    command = ["bash", "-c", "\n".join(lines), "bash", *words]
    told = subprocess.run(command, capture_output=True, text=True, check=True, cwd=completions, timeout=60)
    assert told.stdout.split() == completed
    assert not told.stderr


def test_fish_completes(completions, capsys):
    if not shutil.which("fish"):
        pytest.skip("needs fish")
    path = script("fish", completions, capsys)
    lines = f"source {path}; complete -C 'kedge disc'; complete -C 'kedge discover --method p'"
    command = ["fish", "--no-config", "-c", lines]
    told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert [line.split("\t")[0] for line in told.stdout.splitlines()] == ["discover", "paper"]
