"""A small HTTP server for the live page: local only and read-only.

It is built on asyncio's streams and the header parser of `http.client` rather than a WSGI server: at its connection
limit, waitress accepts no new connection until others time out, so a thousand idle ones block it. Here the oldest idle
connection is closed instead.
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
_HEAD_SECONDS = 5.0  # time limit for receiving a complete request
_STALLED_SECONDS = 10.0  # time limit for a client that does not read the answer
# A process may usually have 1024 open files, and connections just accepted come on top of these.
_MAX_CONNECTIONS = 400
_BACKLOG = 400
_CHUNK = 2**16
# One thread watches all connections; these threads compute answers, each of which keeps a core busy.
_THREADS = 8
ANSWERING = "kedge answers"
"""The name of the threads that compute answers."""


class Request(NamedTuple):
    """A request: method, path, query and its Host headers, of which there should be exactly one."""

    method: str
    path: str
    query: str
    hosts: list[str]


class HttpAnswer(NamedTuple):
    """A response: status, content type and body."""

    status: HTTPStatus
    kind: str
    body: bytes


class _Stage(IntEnum):
    """The stage of a connection; the lowest are closed first to make room for others."""

    WAITING = 0  # for a request, or for the client to close the connection
    SENDING = 1
    ANSWERING = 2


def serve(explorer: Explorer, port: int) -> Server:
    """Create a server that listens on a port of the loopback device (0: any free port); `serve_forever` runs it."""
    answers = _answers(explorer)
    pages = {
        "/": (_HTML, live_page(explorer.words).encode()),
        "/plotly.js": (_SCRIPT, plotly_script().encode()),
        "/contents.json": (_JSON, as_json(explorer.contents).encode()),
    }

    def answer(asked: Request) -> HttpAnswer:
        if len(asked.hosts) != 1 or asked.hosts[0] not in server.hosts:  # DNS rebinding by a page from elsewhere
            return _refusal(HTTPStatus.FORBIDDEN, f"wrong host: use {server.hosts[0]}")
        if asked.method not in ("GET", "HEAD"):
            return _refusal(HTTPStatus.NOT_IMPLEMENTED, "nothing can be written here; use GET")
        if asked.path in pages:
            return HttpAnswer(HTTPStatus.OK, *pages[asked.path])
        if asked.path not in answers:
            return _refusal(HTTPStatus.NOT_FOUND, f"there is no {asked.path}")
        if len(asked.query) > _MAX_QUERY:
            return _refusal(HTTPStatus.REQUEST_URI_TOO_LONG, f"a query may have at most {_MAX_QUERY} characters")
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
    """Listens on a port of the loopback device from its creation on; `hosts` are the Host headers it accepts.

    A fixed number of threads computes answers, however many connections there are. The number of connections is limited
    too: beyond the limit, the oldest one that has not sent a request yet is closed.
    """

    def __init__(self, answer: Callable[[Request], HttpAnswer], port: int) -> None:
        self._answer = answer
        self._socket = socket.create_server((LOOPBACK, port), backlog=_BACKLOG)
        self.server_port = int(self._socket.getsockname()[1])
        self.hosts = [f"{name}:{self.server_port}" for name in (LOOPBACK, "localhost")]
        if self.server_port == HTTP_PORT:  # browsers omit the default port
            self.hosts += [LOOPBACK, "localhost"]
        self._connections: dict[asyncio.StreamWriter, _Stage] = {}
        self._threads = asyncio.Semaphore(_THREADS)
        self._stop = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(_note_failure)
        self._idle = threading.Event()
        self._idle.set()

    def serve_forever(self) -> None:
        """Serve until interrupted, or until another thread calls `shutdown`; unfinished answers are not awaited."""
        self._idle.clear()
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._listen())
        finally:
            self._idle.set()

    def shutdown(self) -> None:
        """Stop `serve_forever`, which runs in another thread, and wait for its end."""
        with suppress(RuntimeError):  # already ended
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
        """Handle one connection: read a request, answer it, and close."""
        if not self._make_room():
            writer.transport.abort()
            return
        self._connections[writer] = _Stage.WAITING
        try:
            # Clients that leave, are too slow or were closed to make room get no answer; at the end all are cancelled.
            with suppress(OSError, EOFError, asyncio.CancelledError):
                request, answer = await self._asked(reader)
                if request and not answer:
                    self._connections[writer] = _Stage.ANSWERING
                    answer = await self._in_thread(request)
                assert answer is not None
                self._connections[writer] = _Stage.SENDING
                await _send(writer, answer, whole=request is None or request.method != "HEAD")
                # Wait for the client to close: if we closed before it has read everything, it might miss the answer.
                self._connections[writer] = _Stage.WAITING
                async with asyncio.timeout(_STALLED_SECONDS):
                    while await reader.read(_CHUNK):
                        pass
        finally:
            self._connections.pop(writer, None)
            writer.transport.abort()

    def _make_room(self) -> bool:
        """Whether one more connection fits; if necessary, close the oldest one without an answer in progress."""
        if len(self._connections) < _MAX_CONNECTIONS:
            return True
        writer = min(self._connections, key=self._connections.__getitem__)  # the oldest of the lowest stage
        if self._connections[writer] is _Stage.ANSWERING:
            return False
        del self._connections[writer]
        writer.transport.abort()
        return True

    async def _asked(self, reader: asyncio.StreamReader) -> tuple[Request | None, HttpAnswer | None]:
        """Read a request; return it, or the error to answer with if it is invalid."""
        try:
            async with asyncio.timeout(_HEAD_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return None, _refusal(HTTPStatus.REQUEST_URI_TOO_LONG, f"the head may have at most {_MAX_HEAD} bytes")
        try:
            return _parsed(head), None
        except (ValueError, HTTPException):
            return None, _refusal(HTTPStatus.BAD_REQUEST, "this is not an HTTP/1.1 request")

    async def _in_thread(self, request: Request) -> HttpAnswer:
        """Compute the answer in a daemon thread; threads of an executor would be awaited at exit."""
        async with self._threads:
            promise: asyncio.Future[HttpAnswer] = self._loop.create_future()

            def answer() -> None:
                try:
                    answered = self._answer(request)
                except Exception:
                    logging.getLogger(__name__).exception("no answer to %s", request.path)
                    answered = _refusal(HTTPStatus.INTERNAL_SERVER_ERROR, "no answer; see the terminal of kedge")
                with suppress(RuntimeError):  # the server has ended
                    self._loop.call_soon_threadsafe(partial(_keep, promise, answered))

            threading.Thread(target=answer, name=ANSWERING, daemon=True).start()
            return await promise


def _note_failure(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log failures as asyncio does, except for the KeyboardInterrupt that ends the server, wherever it arrives."""
    if not isinstance(context.get("exception"), KeyboardInterrupt):
        loop.default_exception_handler(context)


def _parsed(head: bytes) -> Request:
    """Parse the head of a request; raises a `ValueError` or an `HTTPException` if it is invalid."""
    line, _, rest = head.partition(b"\r\n")
    method, target, version = line.decode("ascii").split(" ")
    if not version.startswith("HTTP/1."):
        raise ValueError(f"not a supported version of HTTP: {version!r}")
    parts = urlsplit(target)
    return Request(method, unquote(parts.path), parts.query, parse_headers(io.BytesIO(rest)).get_all("Host", []))


async def _send(writer: asyncio.StreamWriter, answer: HttpAnswer, *, whole: bool) -> None:
    """Send an answer as fast as the client reads it; only its headers unless `whole`."""
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
    """Resolve a promise, unless it is done already (for example cancelled)."""
    if not promise.done():
        promise.set_result(answer)


def _answers(explorer: Explorer) -> Mapping[str, Callable[[Mapping[str, str]], Any]]:
    """The functions that answer requests, by path."""
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
