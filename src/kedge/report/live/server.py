"""A small server for the live page: on this machine only, and nothing but questions and answers."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from http.client import HTTP_PORT
from typing import Any
from urllib.parse import parse_qs

from kedge.extras import needing
from kedge.report.live.explorer import Explorer
from kedge.report.page.rendering import as_json, plotly_script
from kedge.report.page.run_page import live_page

LOOPBACK = "127.0.0.1"

_HTML, _SCRIPT, _JSON = "text/html; charset=utf-8", "text/javascript; charset=utf-8", "application/json"
_PNG = "image/png"
_HEADERS = (
    ("Cache-Control", "no-store"),
    ("X-Content-Type-Options", "nosniff"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("X-Frame-Options", "DENY"),
)
_LONGEST_QUERY = 2**16
_IDLE_SECONDS = 30
# Connections are watched by one thread and cost no other; these are for answers, of which one keeps a core busy.
_THREADS = 8
_LIMITS = {
    "threads": _THREADS,
    "connection_limit": 800,  # a process may have 1024 files open, as a rule
    "max_request_header_size": 2**22,  # no browser sends more: what is too long gets an answer the page understands
    "max_request_body_size": 2**16,
    "outbuf_overflow": 2**24,  # longer answers would go through a file
}

Environment = Mapping[str, Any]
StartResponse = Callable[[str, list[tuple[str, str]]], object]


def serve(explorer: Explorer, port: int) -> Server:
    """A server that listens on a port of the loopback device (0: any that is free); `serve_forever` runs it."""
    answers = _answers(explorer)
    pages = {
        "/": (_HTML, live_page(explorer.words).encode()),
        "/plotly.js": (_SCRIPT, plotly_script().encode()),
        "/contents.json": (_JSON, as_json(explorer.contents).encode()),
    }

    def answer(asked: Environment) -> tuple[HTTPStatus, str, bytes]:
        if asked.get("HTTP_HOST") not in server.hosts:  # a page from elsewhere whose name was made to point here
            return HTTPStatus.FORBIDDEN, _JSON, _told(f"ask for {server.hosts[0]}")
        if asked["REQUEST_METHOD"] not in ("GET", "HEAD"):
            return HTTPStatus.NOT_IMPLEMENTED, _JSON, _told("there is nothing to write to; ask by GET")
        path, query = asked["PATH_INFO"], asked["QUERY_STRING"]
        if path in pages:
            return (HTTPStatus.OK, *pages[path])
        if path not in answers:
            return HTTPStatus.NOT_FOUND, _JSON, _told(f"there is no {path}")
        if len(query) > _LONGEST_QUERY:
            return HTTPStatus.REQUEST_URI_TOO_LONG, _JSON, _told(f"more than {_LONGEST_QUERY} letters are too many")
        try:
            parameters = {name: values[0] for name, values in parse_qs(query, keep_blank_values=True).items()}
            found = answers[path](parameters)
            if found is None:
                return HTTPStatus.NOT_FOUND, _JSON, _told(f"there is no such {path[1:]}")
            if isinstance(found, bytes):
                return HTTPStatus.OK, _PNG, found
            return HTTPStatus.OK, _JSON, as_json(found).encode()
        except ValueError as error:  # an InputError
            return HTTPStatus.BAD_REQUEST, _JSON, _told(str(error))

    def application(asked: Environment, start: StartResponse) -> Iterable[bytes]:
        status, kind, body = answer(asked)
        described = [("Content-Type", kind), ("Content-Length", str(len(body)))]
        start(f"{status.value} {status.phrase}", [*described, *_HEADERS])
        return [] if asked["REQUEST_METHOD"] == "HEAD" else [body]

    server = Server(application, port)
    return server


class Server:
    """Listens on a port of the loopback device from the start; `hosts` are the names it goes by.

    A fixed number of threads answers, however many connections there are; those that are silent for long are closed.
    """

    def __init__(self, application: Callable[[Environment, StartResponse], Iterable[bytes]], port: int) -> None:
        with needing("the live page needs", "waitress", install="kedge[report]"):
            from waitress import create_server
        logging.getLogger("waitress").setLevel(logging.ERROR)  # that questions wait for each other is no news
        self._connections: dict[int, Any] = {}
        try:
            self._listener = create_server(
                application,
                self._connections,
                host=LOOPBACK,
                port=port,
                ident="kedge",
                channel_timeout=_IDLE_SECONDS,
                cleanup_interval=_IDLE_SECONDS // 3,
                log_socket_errors=False,
                **_LIMITS,
            )
        except OSError:  # the port is taken
            self._close_connections()
            raise
        self.server_port = int(self._listener.effective_port)
        self.hosts = [f"{name}:{self.server_port}" for name in (LOOPBACK, "localhost")]
        if self.server_port == HTTP_PORT:  # which browsers leave out
            self.hosts += [LOOPBACK, "localhost"]
        self._idle = threading.Event()
        self._idle.set()

    def serve_forever(self) -> None:
        """Answer, until interrupted or told to `shutdown` by another thread."""
        from waitress.wasyncore import loop  # not the listener's own `run`, which waits for answers when interrupted

        self._idle.clear()
        try:
            loop(timeout=1, use_poll=True, map=self._connections)
        finally:
            self._idle.set()

    def shutdown(self) -> None:
        """End `serve_forever`, which runs in another thread."""
        self._listener.trigger.pull_trigger(self._close_connections)
        self._idle.wait()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self._close_connections()
        self._listener.task_dispatcher.shutdown(timeout=0)

    def _close_connections(self) -> None:
        from waitress.wasyncore import close_all

        close_all(self._connections)


def _answers(explorer: Explorer) -> Mapping[str, Callable[[Mapping[str, str]], Any]]:
    """What can be asked, by path."""
    return {
        "/keys": lambda asked: {"hits": explorer.find(asked.get("text", ""))},
        "/key": lambda asked: {"entry": explorer.look_up(asked.get("side", ""), asked.get("key", ""))},
        "/near": lambda asked: {"lists": explorer.neighbours(asked.get("side", ""), asked.get("row", ""))},
        "/view": lambda asked: explorer.view(asked.get("kind", ""), asked.get("count", ""), asked.get("keys", "")),
        "/layout": lambda asked: explorer.layout(),  # noqa: ARG005
        "/image": lambda asked: explorer.thumbnail(asked.get("key", "")),
    }


def _told(error: str) -> bytes:
    return as_json({"error": error}).encode()
