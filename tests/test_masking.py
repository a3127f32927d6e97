"""Passwords and keys: whatever an address looks like, right or mistyped, they are shown and written nowhere."""

from __future__ import annotations

import json
from copy import copy
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge import Embeddings, InputError, read_embeddings, write_embeddings
from kedge.cli.main import main
from kedge.errors import KedgeError, OutputError
from kedge.masking import mask, secrets_in
from kedge.spaces.stores.address import KINDS, Address, file_name

# All secrets are made of these, so that a part of one is found too.
PARTS = ("hush", "s1lent", "qu1et")
HERE = "127.0.0.1:1"  # where nobody answers, at once

FORMS = {
    # right
    "pgvector": f"pgvector:postgresql://me:hush@{HERE}/db#docs.vector",
    "pgvector, postgres": f"pgvector:postgres://me:hush@{HERE}/db#docs.vector",
    "password as an option": f"pgvector:postgresql://{HERE}/db?password=hush&connect_timeout=1#docs",
    "sslpassword": f"pgvector:postgresql://{HERE}/db?sslpassword=hush&connect_timeout=1#docs",
    "encoded": f"pgvector:postgresql://me:hush%40s1lent@{HERE}/db#docs",
    "qdrant with a login": f"qdrant:http://me:hush@{HERE}#docs",
    "a key as the user": f"qdrant:http://hush@{HERE}#docs",
    # the kind forgotten, misspelt, or in capitals
    "no kind": f"postgresql://me:hush@{HERE}/db",
    "no kind, with a table": f"postgresql://me:hush@{HERE}/db#docs",
    "no kind, http": f"https://me:hush@{HERE}#docs",
    "misspelt kind": f"pgvetcor:postgresql://me:hush@{HERE}/db#docs",
    "kind in capitals": f"PGVECTOR:postgresql://me:hush@{HERE}/db#docs",
    "kind of another product": f"milvus:http://me:hush@{HERE}#docs",
    "kind and a dash": f"pg-vector:postgresql://me:hush@{HERE}/db#docs",
    # the scheme forgotten or misspelt
    "no scheme": f"pgvector:me:hush@{HERE}/db#docs",
    "neither kind nor scheme": f"me:hush@{HERE}/db",
    "neither, no folder": "me:hush@localhost",
    "misspelt scheme": f"pgvector:postgresq://me:hush@{HERE}/db#docs",
    "one slash": f"pgvector:postgresql:/me:hush@{HERE}/db#docs",
    "no slash": f"pgvector:postgresql:me:hush@{HERE}/db#docs",
    "no colon": f"pgvector:postgresql//me:hush@{HERE}/db#docs",
    "no kind, no colon": f"postgresql//me:hush@{HERE}/db#docs",
    "scheme of a driver": f"pgvector:postgresql+psycopg://me:hush@{HERE}/db#docs",
    # letters in the password that mean something else in an address
    "# in it": f"pgvector:postgresql://me:hush#s1lent@{HERE}/db#docs",
    "# in it, no table": f"pgvector:postgresql://me:hush#s1lent@{HERE}/db",
    "# in it, no kind": f"postgresql://me:hush#s1lent@{HERE}/db",
    "@ in it": f"pgvector:postgresql://me:hush@s1lent@{HERE}/db#docs",
    "@ in it, no kind": f"postgresql://me:hush@s1lent@{HERE}/db",
    "@ and # in it": f"pgvector:postgresql://me:hush@s1lent#qu1et@{HERE}/db",
    "/ in it": f"pgvector:postgresql://me:hush/s1lent@{HERE}/db#docs",
    "? in it": f"pgvector:postgresql://me:hush?s1lent@{HERE}/db#docs",
    ": in it": f"pgvector:postgresql://me:hush:s1lent@{HERE}/db#docs",
    "& in it": f"pgvector:postgresql://me:hush&s1lent@{HERE}/db#docs",
    "a space in it": f"pgvector:postgresql://me:hush s1lent@{HERE}/db#docs",
    "a space in it, no kind": f"me:hush s1lent@{HERE}/db",
    "digits first": f"pgvector:postgresql://me:123/hush@{HERE}/db#docs",
    "% in it": f"pgvector:postgresql://me:hush%zz@{HERE}/db#docs",
    "it is an option": f"pgvector:postgresql://me:hush?token=s1lent@{HERE}/db#docs",
    "# in an option": f"pgvector:postgresql://{HERE}/db?password=hush#s1lent",
    "@ in an option": f"pgvector:{HERE}/db?password=hush@s1lent#docs",
    "a space in an option": f"qdrant:http://{HERE}?api-key=hush s1lent#docs",
    # options, of whatever name
    "?pwd=": f"pgvector:postgresql://{HERE}/db?pwd=hush#docs",
    "?passwd=": f"pgvector:postgresql://{HERE}/db?passwd=hush#docs",
    "?api-key=": f"qdrant:http://{HERE}?api-key=hush#docs",
    "?api_key=": f"qdrant:http://{HERE}?api_key=hush#docs",
    "?apikey=": f"qdrant:http://{HERE}?x=1&apiKey=hush#docs",
    "?token=": f"chroma:http://{HERE}?token=hush#docs",
    "?x-chroma-token=": f"chroma:http://{HERE}?x-chroma-token=hush#docs",
    "?key=": f"chroma:http://{HERE}?key=hush#docs",
    "?secret=": f"chroma:http://{HERE}?client_secret=hush#docs",
    "?api-key=, no kind": f"http://{HERE}?api-key=hush#docs",
    "?api-key=, no scheme": f"{HERE}?api-key=hush",
    "?api-key=, of a folder": "lancedb:folder?api-key=hush#docs",
    "after #": f"qdrant:http://{HERE}#api-key=hush",
    "another character after ?": f"pgvector:postgresql://{HERE}/db?password:hush#docs",
    "an encoded name": f"pgvector:postgresql://{HERE}/db?pass%77ord=hush&connect_timeout=1#docs",
    **{
        f"?{name}=": f"qdrant:http://{HERE}?{name}=hush&x=1#docs"
        for name in (
            *("subscription-key", "auth_key", "account_key", "AccountKey", "master-key", "admin-key", "service_key"),
            *("session", "bearer", "access", "pin", "user_pw", "pasword", "passw", "passwort", "pword", "whatever"),
        )
    },
    # what a client of PostgreSQL takes instead of a URL
    "keywords": "pgvector:host=127.0.0.1 port=1 password=hush user=me#docs",
    "keywords, no kind": "host=127.0.0.1 password=hush user=me",
    "keywords, quoted": "pgvector:host=127.0.0.1 password='hush s1lent' user=me#docs",
    "keywords, = forgotten": "pgvector:host=127.0.0.1 port=1 user=me passwd hush#docs",
    "keywords, misspelt": "pgvector:host=127.0.0.1 pasword=hush user=me#docs",
    "keywords, password first": "pgvector:password=hush host=127.0.0.1#docs",
    # a login that is not user:password
    "a space after the colon": f"pgvector:postgresql://me: hush@{HERE}/db#docs",
    "a space after the colon, no kind": f"postgresql://me: hush@{HERE}/db",
    "a line break after the colon": f"pgvector:postgresql://me:\nhush@{HERE}/db#docs",
    "a key as the user, no password": f"qdrant:http://hush:@{HERE}#docs",
    "a key as the user, any password": f"qdrant:http://hush:x@{HERE}#docs",
    **{
        f"{mark!r} for the colon": f"pgvector:postgresql://me{mark}hush@{HERE}/db#docs"
        for mark in (" ", ";", "=", "%3A", "/", "|", ",")
    },
    # something else forgotten
    "no host": "pgvector:postgresql://me:hush/db#docs",
    "nothing but the login": "pgvector:postgresql://me:hush",
    "no user": f"pgvector:postgresql://:hush@{HERE}/db#docs",
    "no table": f"pgvector:postgresql://me:hush@{HERE}/db",
    "a name where there is none": "faiss:index?token=hush#docs",
}  # fmt: skip


def run(*arguments) -> int:
    try:
        return main([str(argument) for argument in arguments])
    except SystemExit as end:
        return int(end.code)


def assert_silent(*texts: str) -> None:
    for text in texts:
        assert not [part for part in PARTS if part in text], text


@pytest.fixture
def here(tmp_path, monkeypatch, small_files):
    """An empty folder to work in, with files of vectors elsewhere; nobody waits long for a server."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PGCONNECT_TIMEOUT", "2")
    return tmp_path


def files_say(folder: Path) -> list[str]:
    """Names and contents of all files and folders in it."""
    paths = list(folder.rglob("*"))
    return [path.name for path in paths] + [path.read_bytes().decode("latin-1") for path in paths if path.is_file()]


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_nothing_is_shown_or_written_of_it(here, small_files, run_files, capfd, form):
    x, y, seeds = small_files
    commands = [
        ("info", form),
        ("info", "--json", form),
        ("convert", form, "out.npz"),
        ("discover", x, y, "--seeds", seeds, "--out", form),
        ("discover", x, y, "--seeds", form, "--out", "run"),
        ("suggest", x, "-o", form),
        ("migrate", form, "parquet:new", "--run", run_files[0]),
        ("migrate", x, "parquet:new", "--run", form),
        ("project", x, "--like", form),
        ("info", x, form),
        ("info", x, "--limit", form),
        ("stores", f"--{form}"),
        (form,),
    ]
    for command in commands:
        assert run(*command) == 2, command
        said = capfd.readouterr()
        assert "Traceback" not in said.err
        assert_silent(said.out, said.err)
    assert_silent(*files_say(here))


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_nothing_is_written_where_a_file_goes(here, small_files, capfd, form):
    x, y, _ = small_files
    for command in (
        ("convert", x, f"{form}.npz"),
        ("translate", "run", x, "--out", f"{form}.npz"),
        ("plot", "run", x, y, "--out", f"{form}.pdf"),
    ):
        assert run(*command) == 2, command
    said = capfd.readouterr()
    assert_silent(said.out, said.err, *files_say(here))


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_no_error_in_python_shows_it(here, form):
    with pytest.raises(KedgeError) as caught:
        read_embeddings(form)
    errors = [caught.value, InputError(f"{form}: no such file"), OutputError(28, "No space left", form)]
    with pytest.raises(InputError) as caught:
        file_name(form)
    errors.append(caught.value)
    with pytest.raises(InputError) as caught:
        read_embeddings(Path(form))
    errors.append(caught.value)
    for error in errors:
        assert_silent(str(error), repr(error))
    assert_silent(mask(form), mask(form, whole=True), mask(f"'{form}' is wrong"), mask(f"not {form}: so"))
    assert mask(mask(form)) == mask(form)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_an_address_as_text_shows_it_not(form):
    kind, _, rest = form.partition(":")
    place, _, name = rest.rpartition("#")
    assert_silent(str(Address(kind, place or rest, name)), str(Address.of_file(Path(form))))


# What is right is shown as it is.
PLAIN = [
    "pgvector:postgresql://me@host:5432/db#docs.vector",
    "pgvector:postgresql://host:5432/db?sslmode=require#docs",
    "pgvector:postgresql://postgres:@/postgres?host=/run/pg#docs",
    "qdrant:http://localhost:6333#docs",
    "qdrant:http://localhost:6333#docs@2",
    "chroma:https://vectors.example.org:8000#docs@2",
    "chroma:/home/me@work.example/db#docs",
    "parquet:/home/me@work.example/vectors",
    "parquet:/data/token=7/part=3",
    "faiss:/data/api_key=3/index",
    "chroma:db: there is nothing of that name; recall@1 is 0.5",
    "pgvector:postgresql://host:5432/db#docs: 3 of 4 have recall@1 of 0.5",
    "page: http://127.0.0.1:8000/ (Ctrl-C ends it)",
    "/home/me@work.example/x.npz: no such file",
    "x.npz: 120 x 16, y@2.npz: 120 x 16; preparing the picture",
    "self-recall@1: 0.93, csls@10: 0.95",
    "rows from chroma:db#docs to pgvector:postgresql://me:***@host/db#docs",
    "tokens=5, passes=3, passfile=/home/me/.pgpass, keys=all, monkey=2",
    "pgvector:postgresql://me.a-b@host/db?sslmode=require&application_name=kedge&connect_timeout=10#docs",
    "pgvector:postgresql:///db?host=/run/pg&user=me&sslrootcert=/etc/root.crt&target_session_attrs=any#docs",
    "http://127.0.0.1:8000/v1?api-version=2024-10-01&limit=100&x=true: is not there",
    'FATAL: password authentication failed for user "me"',
    "password: leave it to the environment",
    "no column 'token': there are id and vector",
    "the server wants a bearer token; the bearer of this",
    "http://localhost:8000 has recall@1 of 0.5",
    "page: http://host.example/a b@c",
]


@pytest.mark.parametrize("text", [*PLAIN, *(f"{kind}:folder#docs" for kind in KINDS)])
def test_what_holds_no_secret_stays(text):
    assert mask(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Authorization: Bearer hush", "Authorization: Bearer ***"),
        ("authorization: Basic hush==, x: 1", "authorization: Basic ***, x: 1"),
        ("Bearer hush", "Bearer ***"),
        ("401: 'Bearer hush' is not known", "401: 'Bearer ***' is not known"),
        ("api-key: hush", "api-key: ***"),
        ("x-api-key:hush\naccept: */*", "x-api-key:***\naccept: */*"),
        ("password: hush", "password: ***"),
        ("password: hush: no such file", "password: ***: no such file"),
        ("user:me password:hush", "user:me password:***"),
        ('{"password": "hush s1lent", "user": "me"}', '{"password": ***, "user": "me"}'),
        ("{'api_key': 'hush'}", "{'api_key': ***}"),
        ("-password hush", "-password ***"),
    ],
)
def test_secrets_in_what_others_say(text, shown):
    assert mask(text) == mask(text, whole=True) == mask(shown) == shown


def test_files_whose_names_look_like_addresses_are_read(here):
    write_embeddings(Embeddings(["a", "b"], np.eye(2)), "at:me@home.npz")
    assert run("info", "at:me@home.npz") == 0
    assert file_name("plain.npz") == Path("plain.npz")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("pgvetcor:postgresql://me:hush@h/db#docs", r"^pgvetcor:postgresql://me:\*\*\*@h/db#docs: .*mean 'pgvector'"),
        (
            "postgresql://me@h/db#docs",
            r"^postgresql://me@h/db#docs: looks like an address, but begins with none of chr",
        ),
        ("chroma:db#docs", r"^chroma:db#docs: is the address of a store, but a file or folder is needed here"),
        ("host=h password=hush", r"^host=h password=\*\*\*: looks like an address"),
    ],
)
def test_what_is_no_file_is_refused_with_advice(text, told):
    with pytest.raises(InputError, match=told):
        file_name(text)


@pytest.mark.parametrize("password", ["a@b", "a#b", "a/b", "a?b"])
def test_passwords_that_a_client_would_take_apart_are_refused(password):
    with pytest.raises(InputError, match=r"postgresql://me:\*\*\*@host/db#docs: it is unclear where the password ends"):
        Address.parse(f"pgvector:postgresql://me:{password}@host/db#docs")


@pytest.mark.parametrize("end", ["?password=hush#docs", "?x=1&token=hush#docs"])
def test_names_that_may_be_the_end_of_a_password_are_refused(end):
    with pytest.raises(InputError, match="it is unclear where the password ends"):
        Address.parse(f"pgvector:postgresql://host/db{end}")
    Address.parse(f"pgvector:postgresql://host/db{end.replace('#', '&y=2#')}")


def test_keys_of_the_environment_are_hidden_in_what_clients_say(monkeypatch):
    monkeypatch.setenv("CHROMA_TOKEN", "hush\nhush")
    said = Address.parse("chroma:http://localhost:8000#docs").hide("Illegal header value b'Bearer hush\\nhush'")
    assert said == "Illegal header value b'Bearer ***'"


def test_secrets_of_an_address():
    assert secrets_in("pgvector:postgresql://me:hush@h/db?sslpassword=quiet&x=1#docs") == {"hush", "quiet"}


# -- what is written ------------------------------------------------------------------------------


@pytest.fixture
def guarded(here, run_files) -> str:
    """The address of a store that looks as if it held a password, as one of a server does."""
    pytest.importorskip("pyarrow", reason="needs pyarrow: pip install 'kedge[parquet]'")
    address = "parquet:folder?token=hush&x=1"
    write_embeddings(read_embeddings(run_files[1]), address)
    return address


def test_what_is_written_and_printed_of_a_store_shows_it_not(here, guarded, run_files, capfd):
    assert run("migrate", guarded, "parquet:new", "--run", run_files[0], "--from-model", "http://me:hush@host/x") == 0
    assert run("migrate", guarded, "parquet:new", "--run", run_files[0], "--dry-run", "--resume", "--json") == 2
    assert run("info", guarded) == 0
    assert run("info", guarded, "--json") == 0
    assert run("convert", guarded, "out.npz", "--json") == 0
    said = capfd.readouterr()
    assert_silent(said.out, said.err, *files_say(here / "new"))
    about = json.loads(json.loads((here / "new" / "_kedge.json").read_text())["metadata"]["kedge"])
    assert about["source"] == "parquet:folder?token=***&x=1"


def test_runs_and_pages_show_it_not(here, guarded, fitted, run_files):
    from kedge.cli.find.provenance import describe_input
    from kedge.report import Explorer
    from kedge.report.page.rendering import as_json

    x, y = read_embeddings(guarded), read_embeddings(run_files[2])
    copy(fitted).save(here / "run", extra={"inputs": {"x": describe_input(Address.parse(guarded), x)}})
    assert "token=***" in (here / "run" / "run.json").read_text()
    page = as_json(Explorer(fitted, x, y, run="RUN", max_rows=50).contents)
    assert_silent(*files_say(here / "run"), page)


# -- whatever comes -------------------------------------------------------------------------------

_PIECES = ("me", ":", "@", "/", "//", "#", "?", "&", "=", "password=", "token=", "***", "postgresql://", "http://")
_MORE = ("pgvector:", "parquet:", " ", ": ", "word", "host", "1", "5432", ".", ",", "'", '"', "--password ", "\n")
_MORE += ("password: ", "bearer ", "?a=", "&whatever=", "h=1 passwd ", "%3A", ";", "|")


@given(st.lists(st.sampled_from(_PIECES + _MORE), max_size=14).map("".join), st.booleans())
def test_masking_twice_is_masking_once(text, whole):
    masked = mask(text, whole=whole)
    assert mask(masked) == masked
    assert mask(masked, whole=whole) == masked


@given(
    st.sampled_from(["", "pgvector:", "pgvetcor:", "x "]),
    st.sampled_from(["postgresql://", "postgres:/", "http://", "", "any://"]),
    st.text("ab1%/#?@:&=.-+~", max_size=8).map(lambda middle: f"hush{middle}hush"),
    st.sampled_from(["host", "127.0.0.1:1/db", "localhost/db#docs"]),
)
def test_a_password_of_any_letters_is_hidden(kind, scheme, password, host):
    address = f"{kind}{scheme}me:{password}@{host}"
    assert_silent(mask(address), mask(address, whole=True), mask(f"{address}: no such file"))


def test_a_text_made_to_take_long_takes_a_moment():
    for piece in (
        "a:",
        "postgresql://a:",
        "http://",
        "'",
        "?token=a ",
        "a@",
        "a:a http:// ",
        "https://a.b:1",
        "password=",
        "password: ",
        '"token": "',
        "bearer ",
        "a=1 passwd ",
        "http://h?a=b",
        "&a=",
        "postgresql://a ",
        "postgresql://a/b",
        "postgresql://a: ",
        "pas" * 3,
    ):
        for text in (piece * (200_000 // len(piece)), "@" + piece * (200_000 // len(piece)), piece * 10_000 + " @"):
            assert len(mask(text)) <= 2 * len(text)
