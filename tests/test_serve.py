"""`kedge serve`: OpenAI's own client asks, a small upstream of our own stands in for the new model."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import kedge
from kedge.cli.main import main

pytest.importorskip("aiohttp", reason="needs aiohttp: pip install 'kedge[serve]'")
openai = pytest.importorskip("openai", reason="needs OpenAI's client: pip install openai")

from aiohttp import web  # noqa: E402

from kedge.integrations.embedding_server import EmbeddingServer, Limits, Upstream  # noqa: E402
from kedge.runs.folder import seal  # noqa: E402

BROKEN = openai.InternalServerError
"""What the client makes of a status from 500 on."""
KEY = "sk-secret-of-upstream"
DIM = 300


class Served:
    """An aiohttp application in a thread, on a free port of this machine."""

    def __init__(self, app: web.Application) -> None:
        self._loop = asyncio.new_event_loop()
        self._runner = web.AppRunner(app)
        self.port = self._loop.run_until_complete(self._start())
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self.port}/v1"

    async def _start(self) -> int:
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        return int(self._runner.addresses[0][1])

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


@contextlib.contextmanager
def served(app: web.Application) -> Iterator[Served]:
    server = Served(app)
    try:
        yield server
    finally:
        server.stop()


class FakeModel:
    """An upstream that encodes words as X does; it remembers what it was asked, and can be told to misbehave."""

    def __init__(self, space: kedge.Embeddings) -> None:
        self.space = space
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.misbehave: Any = None

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_post("/v1/embeddings", self.answer)
        return app

    async def answer(self, request: web.Request) -> web.StreamResponse:
        asked = await request.json()
        self.asked.append(asked)
        self.keys.append(request.headers.get("Authorization"))
        if self.misbehave is not None:
            return await self.misbehave(request)
        vectors = [self.vector(text) for text in asked["input"]]
        shown = [base64.b64encode(v.tobytes()).decode() for v in vectors]
        data = [{"object": "embedding", "index": row, "embedding": v} for row, v in enumerate(shown)]
        usage = {"prompt_tokens": len(data), "total_tokens": len(data)}
        return web.json_response({"object": "list", "data": data[::-1], "model": asked["model"], "usage": usage})

    def vector(self, text: Any) -> np.ndarray:
        row = self.space.row_of[text] if isinstance(text, str) else int(text[0])
        return self.space.vectors[row].astype("<f4")


@pytest.fixture(scope="module")
def translator(run_files) -> kedge.Translator:
    return kedge.load_translator(run_files[0])


@pytest.fixture
def model(words) -> FakeModel:
    return FakeModel(words[0])


@pytest.fixture
def upstream(model) -> Iterator[Served]:
    with served(model.app()) as server:
        yield server


@contextlib.contextmanager
def serving(translator: kedge.Translator, url: str | None, **options: Any) -> Iterator[Served]:
    """A server in front of an upstream."""
    limits, client_key = options.pop("limits", None), options.pop("client_key", None)
    trust = options.pop("trust", False)
    upstream = Upstream(url, **options) if url else None
    with served(EmbeddingServer(translator, upstream, limits, client_key, trust=trust).application()) as server:
        yield server


def client_of(server: Served, key: str = "any") -> Any:
    return openai.OpenAI(base_url=server.url, api_key=key, max_retries=0, timeout=20)


@contextlib.contextmanager
def asking(translator: kedge.Translator, url: str | None, **options: Any) -> Iterator[Any]:
    """OpenAI's client of a server in front of an upstream."""
    with serving(translator, url, **options) as server, client_of(server) as client:
        yield client


def vectors_of(answer: Any) -> np.ndarray:
    return np.asarray([entry.embedding for entry in answer.data])


@contextlib.contextmanager
def refused(kind: type[Exception], said: str) -> Iterator[None]:
    with pytest.raises(kind, match=said) as caught:
        yield
    assert KEY not in str(caught.value)


def test_the_client_gets_vectors_of_the_old_space(translator, model, upstream):
    words = ["dog", "house", "green"]
    expected = translator([model.vector(word) for word in words])
    with serving(translator, upstream.url, model="new", key=KEY) as server, client_of(server) as client:
        answers = [
            client.embeddings.create(model="old", input=words),  # in base64, which the client asks for
            client.embeddings.create(model="old", input=words, encoding_format="float", dimensions=100),
            client.embeddings.create(model="old", input=[model.vector(word).tolist() for word in words]),
            client.embeddings.create(model="old", input=[[model.space.row_of[word]] for word in words]),
        ]
        for answer in answers:
            np.testing.assert_allclose(vectors_of(answer), expected, atol=1e-6)
            assert (answer.model, [entry.index for entry in answer.data]) == ("old", [0, 1, 2])
        assert answers[0].usage.total_tokens == 3
        one = client.embeddings.create(model="old", input="dog")
        np.testing.assert_allclose(vectors_of(one), expected[:1], atol=1e-6)
    assert {asked["model"] for asked in model.asked} == {"new"}
    assert set(model.keys) == {f"Bearer {KEY}"}


def test_many_at_once_and_many_in_one(translator, model, upstream):
    words = list(model.space.keys[:100])
    with serving(translator, upstream.url) as server, client_of(server) as client:
        whole = vectors_of(client.embeddings.create(model="m", input=words))
        with ThreadPoolExecutor(8) as threads:
            singly = threads.map(lambda word: vectors_of(client.embeddings.create(model="m", input=word))[0], words)
            np.testing.assert_allclose(np.stack(list(singly)), whole, atol=1e-6)
    assert set(model.keys) == {None}


def test_a_dead_upstream(translator, upstream):
    upstream_url = upstream.url.replace(str(upstream.port), "9")
    with (
        asking(translator, upstream_url, key=KEY) as client,
        refused(BROKEN, "502.*upstream cannot be reached"),
    ):
        client.embeddings.create(model="m", input="dog")


def test_a_slow_upstream(translator, model, upstream):
    async def sleep(_: web.Request) -> web.Response:
        await asyncio.sleep(2)
        return web.Response()

    model.misbehave = sleep
    with (
        asking(translator, upstream.url, timeout=0.2) as client,
        refused(BROKEN, "504.*did not answer within 0.2 s"),
    ):
        client.embeddings.create(model="m", input="dog")


def answering(status: int = 200, **body: Any) -> Any:
    async def answer(_: web.Request) -> web.Response:
        headers = {"Retry-After": "7"} if status == 429 else {}
        return web.json_response(body, status=status, headers=headers)

    return answer


def entry(vector: Any, index: int = 0) -> dict[str, Any]:
    return {"index": index, "embedding": vector}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"data": [entry([1.0] * 5)]}, "vectors of 5 dimensions, but this run translates from 300"),
        ({"data": [entry([0.0] * DIM)]}, "is zero"),
        ({"data": [entry("?")]}, "neither numbers nor base64"),
        ({"data": [entry(None)]}, "another form"),
        ({"data": [entry([0.5] * (DIM - 1) + [10**400])]}, "must hold vectors of 300 numbers"),
        ({"data": [entry([1.0] * DIM, 1)]}, "an `index` of its own"),
        ({"data": []}, "a list of 1 embeddings"),
        ({}, "a list of 1 embeddings"),
    ],
)
def test_an_upstream_with_other_answers(body, said, translator, model, upstream):
    model.misbehave = answering(**body)
    with (
        asking(translator, upstream.url) as client,
        refused(BROKEN, f"502.*cannot be translated.*{re.escape(said)}"),
    ):
        client.embeddings.create(model="m", input="dog")


def test_an_upstream_that_answers_no_json_too_much_or_elsewhere(translator, model, upstream):
    async def text(_: web.Request) -> web.Response:
        return web.Response(text="<html>")

    async def endless(_: web.Request) -> web.Response:
        return web.Response(body=b"x" * 20_000)

    async def elsewhere(_: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": f"{upstream.url}/embeddings"})

    with asking(translator, upstream.url, limits=Limits(max_bytes=10_000)) as client:
        for misbehave, said in ((text, "not JSON"), (endless, "more than 10000 bytes"), (elsewhere, "status 302")):
            model.misbehave = misbehave
            with refused(BROKEN, f"502.*{said}"):
                client.embeddings.create(model="m", input="dog")
    assert len(model.asked) == 3


def test_an_upstream_that_refuses(translator, model, upstream):
    quoted = {"error": {"message": f"the key {KEY} may not ask {'x' * 500}"}}
    variable = {"key": KEY, "key_variable": "NEW_KEY"}
    with asking(translator, upstream.url, **variable) as client:
        for status, kind, said in (
            (401, BROKEN, r"502.*refuses the key in \$NEW_KEY"),
            (400, openai.BadRequestError, r"400.*the key \*\*\*"),
            (404, BROKEN, "502.*status 404"),
            (429, openai.RateLimitError, "429"),
            (500, BROKEN, "502.*status 500"),
        ):
            model.misbehave = answering(status, **quoted)
            with refused(kind, said):
                client.embeddings.create(model="m", input="dog")
    model.misbehave = answering(401)
    with (
        asking(translator, upstream.url) as client,
        refused(BROKEN, "502.*without a key; name its variable with --upstream-key-env"),
    ):
        client.embeddings.create(model="m", input="dog")


def test_a_connection_that_upstream_closed_is_tried_again(translator, model, upstream):
    async def drop_once(request: web.Request) -> web.Response:
        model.misbehave = None
        request.transport.abort()
        return web.Response()

    with serving(translator, upstream.url) as server, client_of(server) as client:
        model.misbehave = drop_once
        assert vectors_of(client.embeddings.create(model="m", input="dog")).shape == (1, 100)
    assert len(model.asked) == 2


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"input": []}, "not empty"),
        ({"input": ""}, "texts that are not empty"),
        ({"input": ["dog", [0.5]]}, "either texts that"),
        ({"input": ["a", "b", "c", "d"]}, "has 4 entries, but at most 3"),
        ({"input": [[0.5, 1.0]]}, "2 dimensions, but this run translates from 300"),
        ({"input": [[0.0] * DIM]}, "is zero"),
        ({"input": [[0.5] * (DIM - 1) + [10**400]]}, "must hold vectors of 300 numbers"),
        ({"input": "dog", "dimensions": 64}, "dimensions must be 100"),
        ({"input": "dog", "encoding_format": "hex"}, "one of float, base64"),
    ],
)
def test_requests_that_cannot_be_answered(asked, said, translator, model, upstream):
    with asking(translator, upstream.url, limits=Limits(max_inputs=3)) as client, refused(openai.BadRequestError, said):
        client.embeddings.create(**{"model": "m"} | asked)
    assert not model.asked


def test_vectors_need_no_upstream(translator, model):
    with serving(translator, None) as server, client_of(server) as client:
        vector = model.vector("dog")
        answer = client.embeddings.create(model="m", input=[vector.tolist()])
        np.testing.assert_allclose(vectors_of(answer)[0], translator(vector), atol=1e-6)
        with refused(openai.BadRequestError, "without --upstream only vectors are translated"):
            client.embeddings.create(model="m", input="dog")


def test_trust_comes_with_each_embedding(translator, upstream, model):
    texts = ["dog", "house"]
    expected = translator.trust([model.vector(text) for text in texts])
    with serving(translator, upstream.url, trust=True) as server, client_of(server) as client:
        data = client.embeddings.create(model="m", input=texts).data
    np.testing.assert_allclose([each.trust for each in data], expected.probability, atol=1e-4)
    np.testing.assert_allclose([each.familiarity for each in data], expected.familiarity, atol=1e-4)
    with serving(translator, upstream.url) as server, client_of(server) as client:
        assert not hasattr(client.embeddings.create(model="m", input="dog").data[0], "trust")


def test_a_key_for_clients(translator, upstream):
    with serving(translator, upstream.url, client_key="right") as server:
        with client_of(server, "right") as client:
            assert client.embeddings.create(model="m", input="dog").data
        with client_of(server, "wrong") as client, refused(openai.AuthenticationError, "missing or wrong"):
            client.embeddings.create(model="m", input="dog")
        status, said = post(f"{server.url}/embeddings", b"{}", Authorization="Bearer \xff\xfe")  # not UTF-8 on the wire
        assert (status, "missing or wrong" in said) == (401, True)


def post(url: str, body: bytes, **headers: str) -> tuple[int, str]:
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"} | headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_what_is_refused_before_it_is_read(translator, upstream, model):
    with serving(translator, upstream.url, limits=Limits(max_bytes=4000)) as server:
        url = f"{server.url}/embeddings"
        good = json.dumps({"model": "m", "input": "dog"}).encode()
        assert post(url, good)[0] == 200
        for status, said, answer in (
            (413, "more than 4000 bytes", post(url, b"x" * 4001)),
            (415, "must be JSON", post(url, good, **{"Content-Type": "text/plain"})),
            (403, "wrong host: use 127.0.0.1", post(url, good, Host="elsewhere.example")),
            (404, "POST /v1/embeddings", post(f"{server.url}/others", good)),
            (400, "not JSON", post(url, b"{")),
            (400, "not JSON", post(url, b"[" * 900)),
            (400, "must be a JSON object", post(url, b"[]")),
            (400, "model must be a text", post(url, b'{"input": "dog"}')),
        ):
            assert (answer[0], said in json.loads(answer[1])["error"]["message"]) == (status, True), answer
    assert len(model.asked) == 1


def test_more_requests_than_there_is_room_for(translator, model, upstream):
    begun, release = threading.Event(), threading.Event()

    async def wait(_: web.Request) -> web.Response:
        begun.set()
        await asyncio.to_thread(release.wait, 20)
        return web.Response(status=500)

    model.misbehave = wait
    with asking(translator, upstream.url, limits=Limits(max_requests=1)) as client, ThreadPoolExecutor(1) as thread:
        first = thread.submit(post, f"{client.base_url}embeddings", b'{"model": "m", "input": "dog"}')
        assert begun.wait(20)
        with refused(BROKEN, "503.*1 requests are in progress"):
            client.embeddings.create(model="m", input="dog")
        release.set()
        assert first.result(20)[0] == 502


# -- the command ----------------------------------------------------------------------------------


def test_the_command_serves_until_it_is_stopped(run_files, upstream, model):
    command = [sys.executable, "-m", "kedge", "serve", run_files[0], "--upstream", f"{upstream.url}/embeddings"]
    command += ["--upstream-key-env", "NEW_KEY", "--client-key-env", "OUR_KEY", "--json", "--scale", "raw"]
    settings = os.environ | {"NEW_KEY": KEY, "OUR_KEY": "right"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=settings) as process:
        try:
            described = json.loads("".join(process.stdout.readline() for _ in range(5)))
            with openai.OpenAI(base_url=described["url"], api_key="right", max_retries=0) as client:
                answer = client.embeddings.create(model="m", input="dog")
        finally:
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=30)
    assert process.returncode == 0, errors
    assert (described["dimensions_in"], described["dimensions_out"]) == (300, 100)
    expected = kedge.load_translator(run_files[0], scale="raw")(model.vector("dog"))
    np.testing.assert_allclose(vectors_of(answer)[0], expected, atol=1e-3)
    assert model.keys == [f"Bearer {KEY}"]
    assert "stopped" in errors
    assert KEY not in errors


def test_a_map_that_is_not_ok_is_mentioned(run_files, tmp_path, monkeypatch, capsys):
    folder = tmp_path / "run"
    shutil.copytree(run_files[0], folder)
    stored = json.loads((folder / "run.json").read_text())
    stored["health"]["searching"] |= {"verdict": "uncertain", "reason": "Nobody knows."}
    (folder / "run.json").write_text(json.dumps(stored))
    seal(folder)
    monkeypatch.setattr(EmbeddingServer, "run", lambda _, listener: listener.close())
    assert main(["serve", str(folder)]) == 0
    assert "the map of this run is uncertain: Nobody knows." in capsys.readouterr().err
    assert main(["serve", run_files[0]]) == 0
    assert "the map of this run" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("host", "shown"), [("::1", "[::1]"), ("[::1]", "[::1]"), ("localhost", "localhost"), ("127.0.0.1", "127.0.0.1")]
)
def test_the_address_that_is_printed_can_be_asked(host, shown, run_files, monkeypatch, capsys):
    listener = socket.create_server(("127.0.0.1", 0))  # not every machine has IPv6
    monkeypatch.setattr("kedge.cli.use.serve._listen", lambda *_: listener)
    monkeypatch.setattr(EmbeddingServer, "run", lambda _, listener: listener.close())
    port = listener.getsockname()[1]
    assert main(["serve", run_files[0], "--host", host, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["url"] == f"http://{shown}:{port}/v1"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--upstream", "localhost:80"], "must begin with http:// or https://"),
        (["--upstream", "http://me:secret@host/v1"], "must hold no key"),
        (["--upstream", "http://host/v1?key=secret"], "must hold no key"),
        (["--upstream", "http://host:x/v1"], "is not a URL"),
        (
            ["--upstream", "http://host/v1", "--upstream-key-env", "NOBODY_SET"],
            "NOBODY_SET: the environment has no",
        ),
        (["--model", "m"], "--model is about --upstream, which is missing"),
        (["--host", "0.0.0.0"], "--client-key-env"),
        (["--host", "256.0.0.1", "--client-key-env", "OUR_KEY"], "cannot be used"),
    ],
)
def test_what_the_command_refuses(arguments, said, run_files, capsys, monkeypatch):
    monkeypatch.setenv("OUR_KEY", "right")
    monkeypatch.delenv("NOBODY_SET", raising=False)
    assert main(["serve", run_files[0], *arguments]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "secret" not in error
