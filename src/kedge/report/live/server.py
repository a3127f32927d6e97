"""A small server for the live page: on this machine only, and nothing but questions and answers.

It is made of asyncio's streams and the parser of `http.client`, and not of a server for WSGI: once waitress has as many
connections as it may, it accepts no other until some time out, and a thousand that ask nothing stop it. Here the oldest
that has not asked makes room.
"""

from __future__ import annotations

import asyncio
import io
import logging
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import IntEnum
from functools import partial
from http import HTTPStatus
from http.client import HTTP_PORT, HTTPException, parse_headers
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from kedge.report.live.explorer import Explorer
from kedge.report.page.rendering import as_json, plotly_script
from kedge.report.page.run_page import live_page

LOOPBACK = "127.0.0.1"

_HTML, _SCRIPT, _JSON = "text/html; charset=utf-8", "text/javascript; charset=utf-8", "application/json"
_PNG = "image/png"
_HEADERS = {
    "Server": "kedge",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Connection": "close",
}
_MAX_QUERY = 2**16
_MAX_HEAD = 2**17
_HEAD_SECONDS = 5.0  # within which a request is there, whole
_STALLED_SECONDS = 10.0  # after which nobody is waited for who does not take the answer
# A process may have 1024 files open, as a rule; beside these connections there are those just accepted.
_MAX_CONNECTIONS = 400
_BACKLOG = 400
_CHUNK = 2**16
# Connections are watched by one thread and cost no other; these are for answers, of which one keeps a core busy.
_THREADS = 8
ANSWERING = "kedge answers"
"""The name of such a thread."""


class Request(NamedTuple):
    """What is asked: method, path, query and the hosts it is addressed to, of which there should be one."""

    method: str
    path: str
    query: str
    hosts: list[str]


class HttpAnswer(NamedTuple):
    """Status, type and content."""

    status: HTTPStatus
    kind: str
    body: bytes


class _Stage(IntEnum):
    """Where a connection is; the lower, the sooner it makes room for another."""

    WAITING = 0  # for a request, or for the other end to close it
    SENDING = 1
    ANSWERING = 2


def serve(explorer: Explorer, port: int) -> Server:
    """A server that listens on a port of the loopback device (0: any that is free); `serve_forever` runs it."""
    answers = _answers(explorer)
    pages = {
        "/": (_HTML, live_page(explorer.words).encode()),
        "/plotly.js": (_SCRIPT, plotly_script().encode()),
        "/contents.json": (_JSON, as_json(explorer.contents).encode()),
    }

    def answer(asked: Request) -> HttpAnswer:
        if len(asked.hosts) != 1 or asked.hosts[0] not in server.hosts:  # a page from elsewhere, made to point here
            return _refusal(HTTPStatus.FORBIDDEN, f"ask for {server.hosts[0]}")
        if asked.method not in ("GET", "HEAD"):
            return _refusal(HTTPStatus.NOT_IMPLEMENTED, "there is nothing to write to; ask by GET")
        if asked.path in pages:
            return HttpAnswer(HTTPStatus.OK, *pages[asked.path])
        if asked.path not in answers:
            return _refusal(HTTPStatus.NOT_FOUND, f"there is no {asked.path}")
        if len(asked.query) > _MAX_QUERY:
            return _refusal(HTTPStatus.REQUEST_URI_TOO_LONG, f"more than {_MAX_QUERY} letters are too many")
        try:
            parameters = {name: values[0] for name, values in parse_qs(asked.query, keep_blank_values=True).items()}
            found = answers[asked.path](parameters)
        except ValueError as error:  # an InputError
            return _refusal(HTTPStatus.BAD_REQUEST, str(error))
        if found is None:
            return _refusal(HTTPStatus.NOT_FOUND, f"there is no such {asked.path[1:]}")
        if isinstance(found, bytes):
            return HttpAnswer(HTTPStatus.OK, _PNG, found)
        return HttpAnswer(HTTPStatus.OK, _JSON, as_json(found).encode())

    server = Server(answer, port)
    return server


class Server:
    """Listens on a port of the loopback device from the start; `hosts` are the names it goes by.

    A fixed number of threads answers, however many connections there are. Of those there is a fixed number too: for one
    more, the oldest that has not asked yet is closed.
    """

    def __init__(self, answer: Callable[[Request], HttpAnswer], port: int) -> None:
        self._answer = answer
        self._socket = socket.create_server((LOOPBACK, port), backlog=_BACKLOG)
        self.server_port = int(self._socket.getsockname()[1])
        self.hosts = [f"{name}:{self.server_port}" for name in (LOOPBACK, "localhost")]
        if self.server_port == HTTP_PORT:  # which browsers leave out
            self.hosts += [LOOPBACK, "localhost"]
        self._connections: dict[asyncio.StreamWriter, _Stage] = {}
        self._threads = asyncio.Semaphore(_THREADS)
        self._stop = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(_note_failure)
        self._idle = threading.Event()
        self._idle.set()

    def serve_forever(self) -> None:
        """Answer, until interrupted or asked to `shutdown` by another thread; answers in the making are not awaited."""
        self._idle.clear()
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._listen())
        finally:
            self._idle.set()

    def shutdown(self) -> None:
        """End `serve_forever`, which runs in another thread."""
        with suppress(RuntimeError):  # it has ended already
            self._loop.call_soon_threadsafe(self._stop.set)
        self._idle.wait()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
        if not self._loop.is_closed():
            self._loop.close()

    async def _listen(self) -> None:
        listener = await asyncio.start_server(self._talk, sock=self._socket, limit=_MAX_HEAD, backlog=_BACKLOG)
        try:
            await self._stop.wait()
        finally:
            listener.close()
            for writer in self._connections:
                writer.transport.abort()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection: a request, its answer, and the end."""
        if not self._make_room():
            writer.transport.abort()
            return
        self._connections[writer] = _Stage.WAITING
        try:
            # Who goes away, is too slow or made room for another gets no answer; and all are cancelled at the end.
            with suppress(OSError, EOFError, asyncio.CancelledError):
                request, answer = await self._asked(reader)
                if request and not answer:
                    self._connections[writer] = _Stage.ANSWERING
                    answer = await self._in_thread(request)
                assert answer is not None
                self._connections[writer] = _Stage.SENDING
                await _send(writer, answer, whole=request is None or request.method != "HEAD")
                # Closed before it has taken all that was sent, the other end might not see the answer.
                self._connections[writer] = _Stage.WAITING
                async with asyncio.timeout(_STALLED_SECONDS):
                    while await reader.read(_CHUNK):
                        pass
        finally:
            self._connections.pop(writer, None)
            writer.transport.abort()

    def _make_room(self) -> bool:
        """Whether there is place for one more connection; the oldest that nobody works for makes room, if it must."""
        if len(self._connections) < _MAX_CONNECTIONS:
            return True
        writer = min(self._connections, key=self._connections.__getitem__)  # the first of those as low
        if self._connections[writer] is _Stage.ANSWERING:
            return False
        del self._connections[writer]
        writer.transport.abort()
        return True

    async def _asked(self, reader: asyncio.StreamReader) -> tuple[Request | None, HttpAnswer | None]:
        """The request, or what is answered to one that is none."""
        try:
            async with asyncio.timeout(_HEAD_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return None, _refusal(HTTPStatus.REQUEST_URI_TOO_LONG, f"more than {_MAX_HEAD} bytes are too many")
        try:
            return _parsed(head), None
        except (ValueError, HTTPException):
            return None, _refusal(HTTPStatus.BAD_REQUEST, "this is no request of HTTP/1.1")

    async def _in_thread(self, request: Request) -> HttpAnswer:
        """The answer, by a thread that nobody waits for at the end: those of an executor would be waited for."""
        async with self._threads:
            promise: asyncio.Future[HttpAnswer] = self._loop.create_future()

            def answer() -> None:
                try:
                    answered = self._answer(request)
                except Exception:
                    logging.getLogger(__name__).exception("no answer to %s", request.path)
                    answered = _refusal(HTTPStatus.INTERNAL_SERVER_ERROR, "no answer; the reason is where kedge runs")
                with suppress(RuntimeError):  # the server has ended
                    self._loop.call_soon_threadsafe(partial(_keep, promise, answered))

            threading.Thread(target=answer, name=ANSWERING, daemon=True).start()
            return await promise


def _note_failure(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What asyncio logs, but for the interruption that ends the server, wherever it arrives."""
    if not isinstance(context.get("exception"), KeyboardInterrupt):
        loop.default_exception_handler(context)


def _parsed(head: bytes) -> Request:
    """The request that begins with these lines; what is none is a `ValueError` or an `HTTPException`."""
    line, _, rest = head.partition(b"\r\n")
    method, target, version = line.decode("ascii").split(" ")
    if not version.startswith("HTTP/1."):
        raise ValueError(f"not a version of HTTP that is spoken here: {version!r}")
    parts = urlsplit(target)
    return Request(method, unquote(parts.path), parts.query, parse_headers(io.BytesIO(rest)).get_all("Host", []))


async def _send(writer: asyncio.StreamWriter, answer: HttpAnswer, *, whole: bool) -> None:
    """The answer, as fast as it is taken; without `whole` only its headers."""
    status, kind, body = answer
    headers = {"Content-Type": kind, "Content-Length": str(len(body)), **_HEADERS}
    lines = [f"HTTP/1.1 {status.value} {status.phrase}", *(f"{name}: {value}" for name, value in headers.items())]
    writer.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
    for begin in range(0, len(body) if whole else 0, _CHUNK):
        writer.write(body[begin : begin + _CHUNK])
        async with asyncio.timeout(_STALLED_SECONDS):
            await writer.drain()
    writer.write_eof()


def _keep(promise: asyncio.Future[HttpAnswer], answer: HttpAnswer) -> None:
    """Keep a promise, unless nobody waits for it any longer."""
    if not promise.done():
        promise.set_result(answer)


def _answers(explorer: Explorer) -> Mapping[str, Callable[[Mapping[str, str]], Any]]:
    """What can be asked, by path."""
    return {
        "/keys": lambda asked: {"hits": explorer.find(asked.get("text", ""))},
        "/key": lambda asked: {"entry": explorer.look_up(asked.get("side", ""), asked.get("key", ""))},
        "/near": lambda asked: {"lists": explorer.neighbours(asked.get("side", ""), asked.get("row", ""))},
        "/results": lambda asked: explorer.results(asked.get("row", "")),
        "/view": lambda asked: explorer.view(asked.get("kind", ""), asked.get("count", ""), asked.get("keys", "")),
        "/layout": lambda asked: explorer.layout(),  # noqa: ARG005
        "/image": lambda asked: explorer.thumbnail(asked.get("key", "")),
    }


def _refusal(status: HTTPStatus, reason: str) -> HttpAnswer:
    return HttpAnswer(status, _JSON, as_json({"error": reason}).encode())
