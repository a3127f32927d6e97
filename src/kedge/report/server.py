"""A small server for the live page: on this machine only, and nothing but questions and answers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.client import HTTP_PORT
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

from kedge.report.explorer import Explorer
from kedge.report.page import as_json, live_page, plotly_script

LOOPBACK = "127.0.0.1"

_HTML, _SCRIPT, _JSON = "text/html; charset=utf-8", "text/javascript; charset=utf-8", "application/json"


def serve(explorer: Explorer, port: int) -> ThreadingHTTPServer:
    """A server that listens on a port of the loopback device (0: any that is free); `serve_forever` runs it."""
    answers = _answers(explorer)
    pages = {
        "/": (_HTML, live_page(explorer.words).encode()),
        "/plotly.js": (_SCRIPT, plotly_script().encode()),
        "/contents.json": (_JSON, as_json(explorer.contents).encode()),
    }

    class Handler(BaseHTTPRequestHandler):
        """Answers GET and HEAD; there is nothing to write to."""

        server_version = "kedge"
        sys_version = ""

        def do_GET(self) -> None:
            self._send(*self._answer(), with_body=True)

        def do_HEAD(self) -> None:
            self._send(*self._answer(), with_body=False)

        def _answer(self) -> tuple[HTTPStatus, str, bytes]:
            if self.headers.get("Host") not in hosts:  # a page from elsewhere whose name was made to point here
                return HTTPStatus.FORBIDDEN, _JSON, _told(f"ask for {hosts[0]}")
            path, _, query = self.path.partition("?")
            if path in pages:
                return (HTTPStatus.OK, *pages[path])
            if path not in answers:
                return HTTPStatus.NOT_FOUND, _JSON, _told(f"there is no {path}")
            try:
                parameters = {name: values[0] for name, values in parse_qs(query, keep_blank_values=True).items()}
                return HTTPStatus.OK, _JSON, as_json(answers[path](parameters)).encode()
            except ValueError as error:  # an InputError, or too many parameters
                return HTTPStatus.BAD_REQUEST, _JSON, _told(str(error))

        def _send(self, status: HTTPStatus, kind: str, body: bytes, *, with_body: bool) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.send_header("X-Content-Type-Options", "nosniff")
            self.send_header("Cross-Origin-Resource-Policy", "same-origin")
            self.send_header("X-Frame-Options", "DENY")
            self.end_headers()
            if with_body:
                self.wfile.write(body)

        def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:  # noqa: ARG002
            """What the page understands, also where a request is refused before it is looked at."""
            told = message or HTTPStatus(code).phrase
            self.close_connection = True
            self._send(HTTPStatus(code), _JSON, _told(told), with_body=self.command != "HEAD")

        def log_message(self, *_: object) -> None:
            """Nobody wants a line a question."""

    server = _Server((LOOPBACK, port), Handler)
    hosts = [f"{name}:{server.server_port}" for name in (LOOPBACK, "localhost")]
    if server.server_port == HTTP_PORT:  # which browsers leave out
        hosts += [LOOPBACK, "localhost"]
    return server


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that went away in the middle of an answer is no news."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def _answers(explorer: Explorer) -> Mapping[str, Callable[[Mapping[str, str]], Any]]:
    """What can be asked, by path."""
    return {
        "/keys": lambda asked: {"hits": explorer.find(asked.get("text", ""))},
        "/key": lambda asked: {"entry": explorer.look_up(asked.get("key", ""))},
        "/near": lambda asked: {"lists": explorer.neighbours(asked.get("side", ""), asked.get("row", ""))},
        "/view": lambda asked: explorer.view(asked.get("kind", ""), asked.get("count", ""), asked.get("keys", "")),
    }


def _told(error: str) -> bytes:
    return as_json({"error": error}).encode()
